package dns

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// renamer asks those below for "b." in place of whatever was asked.
type renamer struct {
	to     string
	rename wire.Rename
	seen   *string
}

func (h renamer) ServeDNS(q *Query) Verdict {
	q.SetQuestion([]byte(h.to), wire.TypeA, wire.ClassIN)
	return Next
}

func (h renamer) FinishDNS(q *Query) {
	if h.seen != nil {
		*h.seen = string(q.QuestionName())
	}
	q.RestoreQuestion(h.rename)
}

func TestSetAndRestoreQuestion(t *testing.T) {
	seen := ""
	back := func(name []byte, _ wire.Type, rdata bool) []byte {
		if !rdata {
			return []byte("\x03WWW\x07example\x00")
		}
		return name
	}
	below := func(q *Query) Verdict {
		if string(q.Name()) != "\x01b\x00" || q.Labels() != 1 {
			return Drop
		}
		return addresses(2)(q)
	}
	for _, slow := range []bool{false, true} {
		c := chain(renamer{"\x01B\x00", back, &seen}, both{serve(below), func(context.Context, *Query) error { return nil }})
		if slow {
			parkFirst(c)
		}
		r := newRig(t, 1, map[string]*Chain{".": c})
		reply := r.answer(question("WWW.example", mdns.TypeA))
		if len(reply.Answer) != 2 || reply.Answer[0].Header().Name != "WWW.example." || reply.Question[0].Name != "WWW.example." {
			t.Errorf("slow %v: %v", slow, reply)
		}
		if seen != "\x01B\x00" {
			t.Errorf("on the way up the question is %q", seen)
		}
	}
}

// A handler that panics below a changed question, and one that is given up.
func TestQuestionIsRestoredAfterPanic(t *testing.T) {
	c := chain(renamer{"\x01b\x00", nil, nil}, serve(func(*Query) Verdict { panic("test") }))
	r := newRig(t, 1, map[string]*Chain{".": c})
	if reply := r.answer(question("www.example", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure || reply.Question[0].Name != "www.example." {
		t.Error(reply)
	}
	c = chain(renamer{"\x01b\x00", nil, nil}, resolve(func(context.Context, *Query) error { return nil }))
	r = newRig(t, 0, map[string]*Chain{".": c})
	if reply := r.answer(question("www.example", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure || reply.Question[0].Name != "www.example." {
		t.Error(reply)
	}
}

// A record whose name grows too long makes the answer SERVFAIL, not a lie.
func TestRestoreFails(t *testing.T) {
	long := func([]byte, wire.Type, bool) []byte { return make([]byte, 300) }
	r := newRig(t, 1, map[string]*Chain{".": chain(renamer{"\x01b\x00", long, nil}, addresses(1))})
	if reply := r.answer(question("a.", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure || len(reply.Answer) > 0 {
		t.Error(reply)
	}
}

// stater leaves a value on the way down and reads it on the way up.
type stater struct {
	w     StateKey
	value string
	got   *[]any
}

func (h stater) ServeDNS(q *Query) Verdict {
	*h.got = append(*h.got, q.State(h.w))
	q.SetState(h.w, h.value)
	return Next
}

func (h stater) FinishDNS(q *Query) { *h.got = append(*h.got, q.State(h.w)) }

func TestState(t *testing.T) {
	c := &Chain{Zone: "."}
	var got []any
	for _, value := range strings.Split("a b c d e f", " ") {
		c.Add(value, stater{c.NewStateKey(), value, &got})
	}
	c.Add("end", addresses(1))
	r := newRig(t, 1, map[string]*Chain{".": c.CopyFor("dns://:53", ".")})
	for range 2 { // nothing stays for the next query
		got = nil
		r.answer(question("a.", mdns.TypeA))
		want := []any{nil, nil, nil, nil, nil, nil, "f", "e", "d", "c", "b", "a"}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
}

func TestViews(t *testing.T) {
	view := func(name string, from string, n int) *Chain {
		c := chain(addresses(n))
		if c.View = name; name != "" {
			net := netip.MustParsePrefix(from)
			c.Match = func(q *Query) bool { return net.Contains(q.Peer.Addr()) }
		}
		return c
	}
	lot := NewParkingLot(1)
	m := NewMux(lot, nil)
	zone, _ := wire.ParseName("example.")
	for _, c := range []*Chain{view("ten", "10.0.0.0/8", 1), view("one", "10.1.0.0/16", 2), view("", "", 3)} {
		if err := m.Route(zone, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Route(zone, view("late", "10.0.0.0/8", 4)); err == nil {
		t.Error("a view behind the block without one is taken")
	}
	if err := m.Route(wire.Root, chain(addresses(5))); err != nil {
		t.Fatal(err)
	}
	sub, _ := wire.ParseName("only.example.")
	if err := m.Route(sub, view("ten", "10.0.0.0/8", 6)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		peer, name string
		want       int
	}{
		{"10.1.0.1", "\x07example\x00", 1}, // the first that holds
		{"192.0.2.1", "\x07example\x00", 3},
		{"10.1.0.1", "\x04only\x07example\x00", 6},
		{"192.0.2.1", "\x04only\x07example\x00", 3}, // the parent's
		{"192.0.2.1", "\x03org\x00", 5},
	} {
		var p Port
		p.Swap(m)
		q := NewQuery(nil)
		q.Peer = netip.AddrPortFrom(netip.MustParseAddr(c.peer), 1)
		q.Reset(wire.AppendRequest(q.Buffer(512)[:0], 1, 0, []byte(c.name), wire.TypeA), UDP, q.Start)
		if out := p.Serve(q, make([]byte, 0, 1024)); out != Answered || int(q.Answer.Count[0]) != c.want {
			t.Errorf("%s %q: %d addresses, want %d", c.peer, c.name, q.Answer.Count[0], c.want)
		}
	}
}

// classy meets queries of every class.
type classy struct {
	serve
	answers bool
}

func (h classy) AnyClass() bool { return h.answers }

func TestClasses(t *testing.T) {
	var walked []string
	in := trace{"in", &walked, next}
	ch := func(answers bool) *Chain { return chain(in, classy{addresses(1), answers}) }
	query := question("version.bind", mdns.TypeTXT)
	query.Question[0].Qclass = mdns.ClassCHAOS
	if reply := newRig(t, 1, map[string]*Chain{".": ch(false)}).answer(query); reply.Rcode != mdns.RcodeRefused {
		t.Errorf("nobody answers this class: %v", reply)
	}
	if reply := newRig(t, 1, map[string]*Chain{".": ch(true)}).answer(query); len(reply.Answer) != 1 || len(walked) > 0 {
		t.Errorf("%v; met %v", reply, walked)
	}
	if newRig(t, 1, map[string]*Chain{".": ch(true)}).answer(question("a.", mdns.TypeA)); len(walked) != 2 {
		t.Errorf("met %v", walked)
	}
}

// again asks once more in the background.
type again struct {
	done  chan string
	times *int
}

func (h again) ServeDNS(q *Query) Verdict {
	*h.times++
	ok := q.Requery(func(ctx context.Context, c *Query) {
		c.Next(ctx)
		h.done <- c.RCode.String() + " " + string(c.Name()) + string('0'+rune(c.Answer.Count[0]))
	})
	if !ok {
		h.done <- "full"
	}
	return Next
}

func TestAgain(t *testing.T) {
	var walked []string
	times := 0
	h := again{make(chan string, 1), &times}
	slow := resolve(func(_ context.Context, q *Query) error { addresses(3)(q); return nil })
	c := chain(trace{"above", &walked, next}, renamer{"\x01b\x00", nil, nil}, h, slow)
	r := newRig(t, 2, map[string]*Chain{".": c})
	r.answer(question("a.", mdns.TypeA))
	if got := <-h.done; got != "NOERROR \x01b\x003" || times != 1 {
		t.Errorf("%q, %d times", got, times)
	}
	r.lot.Close(t.Context())
	if got := strings.Join(walked, " "); got != "down above up above" {
		t.Errorf("those above see the copy: %s", got)
	}
	h = again{make(chan string, 2), &times}
	r = newRig(t, 0, map[string]*Chain{".": chain(h, addresses(1))})
	r.answer(question("a.", mdns.TypeA))
	if got := <-h.done; got != "full" {
		t.Error(got)
	}
}

// A panic in a copy is told, and ends nothing else.
func TestAgainPanics(t *testing.T) {
	times := 0
	h := again{make(chan string, 1), &times}
	r := newRig(t, 2, map[string]*Chain{".": chain(h, both{
		func(q *Query) Verdict {
			if q.sender == nil {
				panic("copy")
			}
			return addresses(1)(q)
		}, nil})})
	r.answer(question("a.", mdns.TypeA))
	r.lot.Close(t.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.panics) != 1 {
		t.Error(r.panics)
	}
}

func TestReplyOptions(t *testing.T) {
	h := serve(func(q *Query) Verdict {
		q.Fail(wire.ServFail)
		q.AddExtendedError(wire.EDENoReachable, "no upstream")
		q.AddReplyOption(wire.OptionNSID, []byte("me"))
		q.AD, q.TC = true, true
		return Done
	})
	r := newRig(t, 1, map[string]*Chain{".": chain(h)})
	query := question("a.", mdns.TypeA)
	if reply := r.answer(query); len(reply.Extra) > 0 || reply.AuthenticatedData || !reply.Truncated {
		t.Errorf("without EDNS and AD: %v", reply)
	}
	query.AuthenticatedData = true
	if reply := r.answer(query); !reply.AuthenticatedData {
		t.Errorf("with AD: %v", reply)
	}
	query.SetEdns0(1232, false)
	opt := r.answer(query).IsEdns0()
	if opt == nil || len(opt.Option) != 2 {
		t.Fatal(opt)
	}
	if ede, ok := opt.Option[0].(*mdns.EDNS0_EDE); !ok || ede.InfoCode != 22 || ede.ExtraText != "no upstream" {
		t.Error(opt.Option[0])
	}
	if nsid, ok := opt.Option[1].(*mdns.EDNS0_NSID); !ok || nsid.Nsid != "6d65" {
		t.Error(opt.Option[1])
	}
	// Options that do not fit are left out, and no record for them.
	r = newRig(t, 1, map[string]*Chain{".": chain(serve(func(q *Query) Verdict {
		q.AddReplyOption(65001, make([]byte, 300))
		return addresses(20)(q)
	}))})
	query.Extra = nil
	query.SetEdns0(512, false)
	if reply := r.answer(query); len(reply.Answer) != 20 || len(reply.IsEdns0().Option) != 0 || reply.Truncated {
		t.Error(reply)
	}
}

func TestUnserved(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"example.": chain(addresses(1))})
	var seen []string
	r.mux.Unserved = &Chain{Zone: "dropped"}
	r.mux.Unserved.Observe(observe(func(q *Query) { seen = append(seen, q.Chain().Zone+" "+q.RCode.String()+" "+q.AnsweredBy()) }))
	r.answer(question("example.", mdns.TypeA))
	if reply := r.answer(question("org.", mdns.TypeA)); reply.Rcode != mdns.RcodeRefused || len(seen) != 1 || seen[0] != "dropped REFUSED " {
		t.Errorf("%v %q", reply, seen)
	}
}

// Those who send a question on see what is meant for them of its options.
func TestOptionsPassedOn(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"\x00\x0a\x00\x01c": "",
		"\x00\x08\x00\x01s": "\x00\x08\x00\x01s",
		"\x00\x0a\x00\x01c\x00\x08\x00\x01s\x00\x03\x00\x00\x00\x0b\x00\x00\x00\x0c\x00\x02pp\xfd\xe9\x00\x00": "\x00\x08\x00\x01s\xfd\xe9\x00\x00",
	} {
		if got := forwardable([]byte(in)); string(got) != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
