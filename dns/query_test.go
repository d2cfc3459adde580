package dns

import (
	"context"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// questionRenamer replaces the question by one for the name to, and restores it with
// rename.
type questionRenamer struct {
	to     string
	rename wire.Rename
	seen   *string
}

func (h questionRenamer) ServeDNS(q *Query) Verdict {
	q.SetQuestion([]byte(h.to), wire.TypeA, wire.ClassIN)
	return Next
}

func (h questionRenamer) FinishDNS(q *Query) {
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
	for _, parked := range []bool{false, true} {
		c := chain(questionRenamer{"\x01B\x00", back, &seen}, serveAndResolve{serve(below), func(context.Context, *Query) error { return nil }})
		if parked {
			parkFirst(c)
		}
		r := newRig(t, 1, map[string]*Chain{".": c})
		reply := r.answer(newQuery("WWW.example", mdns.TypeA))
		if len(reply.Answer) != 2 || reply.Answer[0].Header().Name != "WWW.example." || reply.Question[0].Name != "WWW.example." {
			t.Errorf("parked %v: got %v, want two addresses of WWW.example.", parked, reply)
		}
		if seen != "\x01B\x00" {
			t.Errorf("parked %v: the question in FinishDNS is %q, want %q", parked, seen, "\x01B\x00")
		}
	}
}

// The reply has the client's question if a handler below SetQuestion panics or
// cannot be parked.
func TestRestoreQuestionAfterPanic(t *testing.T) {
	c := chain(questionRenamer{"\x01b\x00", nil, nil}, serve(func(*Query) Verdict { panic("test") }))
	r := newRig(t, 1, map[string]*Chain{".": c})
	if reply := r.answer(newQuery("www.example", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure || reply.Question[0].Name != "www.example." {
		t.Errorf("got %v, want SERVFAIL for www.example.", reply)
	}
	c = chain(questionRenamer{"\x01b\x00", nil, nil}, resolve(func(context.Context, *Query) error { return nil }))
	r = newRig(t, 0, map[string]*Chain{".": c})
	if reply := r.answer(newQuery("www.example", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure || reply.Question[0].Name != "www.example." {
		t.Errorf("got %v, want SERVFAIL for www.example.", reply)
	}
}

// If a renamed record cannot be written, the answer is SERVFAIL.
func TestRestoreQuestionNameTooLong(t *testing.T) {
	long := func([]byte, wire.Type, bool) []byte { return make([]byte, 300) }
	r := newRig(t, 1, map[string]*Chain{".": chain(questionRenamer{"\x01b\x00", long, nil}, addresses(1))})
	if reply := r.answer(newQuery("a.", mdns.TypeA)); reply.Rcode != mdns.RcodeServerFailure || len(reply.Answer) > 0 {
		t.Errorf("got %v, want SERVFAIL without records", reply)
	}
}

// stateHandler stores a value in ServeDNS and reads it in FinishDNS.
type stateHandler struct {
	key   StateKey
	value string
	got   *[]any
}

func (h stateHandler) ServeDNS(q *Query) Verdict {
	*h.got = append(*h.got, q.State(h.key))
	q.SetState(h.key, h.value)
	return Next
}

func (h stateHandler) FinishDNS(q *Query) { *h.got = append(*h.got, q.State(h.key)) }

func TestQueryState(t *testing.T) {
	c := &Chain{Zone: "."}
	var got []any
	for _, value := range strings.Split("a b c d e f", " ") {
		c.Add(value, stateHandler{c.NewStateKey(), value, &got})
	}
	c.Add("end", addresses(1))
	r := newRig(t, 1, map[string]*Chain{".": c.CopyFor("dns://:53", ".")})
	for range 2 { // The second query must not see the values of the first.
		got = nil
		r.answer(newQuery("a.", mdns.TypeA))
		want := []any{nil, nil, nil, nil, nil, nil, "f", "e", "d", "c", "b", "a"}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
}

// refresher calls Refresh for each query.
type refresher struct {
	done  chan string
	times *int
}

func (h refresher) ServeDNS(q *Query) Verdict {
	*h.times++
	ok := q.Shared().Refresh(q.at, func(c *Query) {
		h.done <- c.RCode.String() + " " + string(c.Name()) + string('0'+rune(c.Answer.Count[0]))
	})
	if !ok {
		h.done <- "full"
	}
	return Next
}

func TestRefresh(t *testing.T) {
	var walked []string
	times := 0
	h := refresher{make(chan string, 1), &times}
	parked := resolve(func(_ context.Context, q *Query) error { addresses(3)(q); return nil })
	c := chain(trace{"above", &walked, next}, questionRenamer{"\x01b\x00", nil, nil}, h, parked)
	r := newRig(t, 2, map[string]*Chain{".": c})
	r.answer(newQuery("a.", mdns.TypeA))
	if got := <-h.done; got != "NOERROR \x01b\x003" || times != 1 {
		t.Errorf("the copy's answer is %q, and ServeDNS was called %d times; want %q, once", got, times, "NOERROR \x01b\x003")
	}
	r.lot.Close(t.Context())
	if got := strings.Join(walked, " "); got != "down above up above" {
		t.Errorf("the handler above was called %q, want %q", got, "down above up above")
	}
	h = refresher{make(chan string, 2), &times}
	r = newRig(t, 0, map[string]*Chain{".": chain(h, parked)})
	r.answer(newQuery("a.", mdns.TypeA))
	if got := <-h.done; got != "full" {
		t.Errorf("full parking lot: got %q, want Refresh to return false", got)
	}
}

// A panic in a copy made by Refresh is reported, and the client's query is
// answered.
func TestRefreshPanic(t *testing.T) {
	times := 0
	h := refresher{make(chan string, 1), &times}
	r := newRig(t, 2, map[string]*Chain{".": chain(h, serveAndResolve{
		func(q *Query) Verdict {
			if q.Sender == nil {
				panic("copy")
			}
			return addresses(1)(q)
		}, nil})})
	r.answer(newQuery("a.", mdns.TypeA))
	r.lot.Close(t.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.panics) != 1 {
		t.Errorf("reported panics %v, want one", r.panics)
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
	query := newQuery("a.", mdns.TypeA)
	if reply := r.answer(query); len(reply.Extra) > 0 || reply.AuthenticatedData || !reply.Truncated {
		t.Errorf("request without EDNS and AD: got %v, want no OPT, no AD, TC", reply)
	}
	query.AuthenticatedData = true
	if reply := r.answer(query); !reply.AuthenticatedData {
		t.Errorf("request with AD: got %v, want AD", reply)
	}
	query.SetEdns0(1232, false)
	opt := r.answer(query).IsEdns0()
	if opt == nil || len(opt.Option) != 2 {
		t.Fatalf("got OPT %v, want two options", opt)
	}
	if ede, ok := opt.Option[0].(*mdns.EDNS0_EDE); !ok || ede.InfoCode != 22 || ede.ExtraText != "no upstream" {
		t.Errorf("got %v, want EDE 22 with text \"no upstream\"", opt.Option[0])
	}
	if nsid, ok := opt.Option[1].(*mdns.EDNS0_NSID); !ok || nsid.Nsid != "6d65" {
		t.Errorf("got %v, want NSID 6d65", opt.Option[1])
	}
	// If the options do not fit, the reply has an empty OPT record and all
	// records.
	r = newRig(t, 1, map[string]*Chain{".": chain(serve(func(q *Query) Verdict {
		q.AddReplyOption(65001, make([]byte, 300))
		return addresses(20)(q)
	}))})
	query.Extra = nil
	query.SetEdns0(512, false)
	if reply := r.answer(query); len(reply.Answer) != 20 || len(reply.IsEdns0().Option) != 0 || reply.Truncated {
		t.Errorf("got %v, want 20 records, no options, no TC", reply)
	}
}

// Options without the hop-by-hop ones are passed to upstreams.
func TestForwardableOptions(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"\x00\x0a\x00\x01c": "",
		"\x00\x08\x00\x01s": "\x00\x08\x00\x01s",
		"\x00\x0a\x00\x01c\x00\x08\x00\x01s\x00\x03\x00\x00\x00\x0b\x00\x00\x00\x0c\x00\x02pp\xfd\xe9\x00\x00": "\x00\x08\x00\x01s\xfd\xe9\x00\x00",
	} {
		if got := appendForwardable(nil, []byte(in)); string(got) != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// CVE-2026-41292: with long lists of options a query costs its server much, and the message that is
// made of it may be too long. A client has no part in what an upstream gets beyond a bound.
func TestForwardableOptionsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want int
	}{
		"at the bound":            {strings.Repeat("\x00\x08\x00\x00", 128), 512},
		"above the bound":         {strings.Repeat("\x00\x08\x00\x00", 129), 0},
		"one large option":        {"\xfd\xe9\xff\x00" + strings.Repeat("x", 0xff00), 0},
		"small beside hop-by-hop": {strings.Repeat("\x00\x0c\x00\x00", 16000) + "\x00\x08\x00\x00", 4},
	} {
		if got := appendForwardable(make([]byte, 0, 8), []byte(c.in)); len(got) != c.want {
			t.Errorf("%s: got options of %d bytes, want %d", name, len(got), c.want)
		}
	}
}

func TestRemoveReplyOption(t *testing.T) {
	q := NewQuery(nil)
	q.AddReplyOption(3, []byte("a"))
	q.AddReplyOption(15, nil)
	q.AddReplyOption(3, []byte("bc"))
	q.RemoveReplyOption(7)
	if got := string(q.ReplyOptions()); got != "\x00\x03\x00\x01a\x00\x0f\x00\x00\x00\x03\x00\x02bc" {
		t.Errorf("after removing option 7: got %q, want all three options", got)
	}
	q.RemoveReplyOption(3)
	if got := string(q.ReplyOptions()); got != "\x00\x0f\x00\x00" {
		t.Errorf("after removing option 3: got %q, want only option 15", got)
	}
}
