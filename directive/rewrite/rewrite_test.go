package rewrite

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	seamark "github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// newTestBlock serves rewrite directives above other handlers.
func newTestBlock(t testing.TB, corefile string, below ...any) *chaintest.Server {
	b, err := plan(corefile, below...)
	if err != nil {
		t.Fatal(err)
	}
	r := chaintest.NewServer(t, map[string]*seamark.Chain{".": b.Chain})
	r.Prepare = func(q *seamark.Query) {
		q.Peer, q.Local = netip.MustParseAddrPort("192.0.2.77:5353"), netip.MustParseAddrPort("10.0.0.2:53")
	}
	return r
}

// The handler below gets the rewritten EDNS options, and the client's are restored.
func TestEDNSOptions(t *testing.T) {
	for _, c := range []struct {
		rules string
		has   string // options of the query
		peer  string
		want  string
	}{
		{"edns0 local set 0xffee 0x61626364", "", "", "ffee:61626364"},
		{"edns0 local set 65518 abcd", "", "", "ffee:61626364"},
		{"edns0 local set 0xffee 0x", "", "", "ffee:"},
		{"edns0 local set 0xffee a", "ffee0001ff000d0000", "", "000d: ffee:61"},
		{"edns0 local append 0xffee a", "ffee0001ff", "", "ffee:ff"},
		{"edns0 local append 0xffee a", "000d0000", "", "000d: ffee:61"},
		{"edns0 local replace 0xffee a", "", "", ""},
		{"edns0 local replace 0xffee a", "ffee0001ff", "", "ffee:61"},
		{"edns0 local unset 0xffee", "ffee0001ff000d0000", "", "000d:"},
		{"edns0 local unset 0xffee", "000d0000", "", "000d:"},
		{"edns0 nsid set", "", "", "0003:"},
		{"continue edns0 nsid set\nrewrite edns0 nsid unset", "000d0000", "", "000d:"},
		{"edns0 subnet set 24 56", "", "", "0008:00011800c00002"},
		{"edns0 subnet set 20 56", "00080004ffffffff", "", "0008:00011400c00000"},
		{"edns0 subnet set 0 0", "", "", "0008:00010000"},
		{"edns0 subnet set 24 56", "", "[2001:db8:1:2:3::1]:1", "0008:0002380020010db8000100"},
		{"edns0 subnet unset", "00080004ffffffff", "", ""},
		{"edns0 local set 1000 {qname}", "", "", "03e8:" + hex.EncodeToString([]byte("a.example."))},
		{"edns0 local set 1000 {qtype}", "", "", "03e8:001c"},
		{"edns0 local set 1000 {protocol}", "", "", "03e8:" + hex.EncodeToString([]byte("udp"))},
		{"edns0 local set 1000 {client_ip}", "", "", "03e8:c000024d"},
		{"edns0 local set 1000 {client_port}", "", "", "03e8:14e9"},
		{"edns0 local set 1000 {server_ip}", "", "", "03e8:0a000002"},
		{"edns0 local set 1000 {server_port}", "", "", "03e8:0035"},
		{"edns0 local set 1000 {/kubernetes/namespace}", "", "", "03e8:" + hex.EncodeToString([]byte("shop"))},
		{"edns0 local set 1000 {kubernetes/namespace}", "", "", "03e8:" + hex.EncodeToString([]byte("shop"))},
		{"edns0 local set 1000 {kubernetes/pod}", "", "", ""},
		{"continue edns0 nsid set\nrewrite edns0 local set 1 x", "", "", "0003: 0001:78"},
		{"edns0 nsid set\nrewrite edns0 local set 1 x", "", "", "0003:"},
		{"edns0 local replace 1 x\nrewrite edns0 local set 1 y", "", "", "0001:79"},
	} {
		var got []string
		below := &answerAll{func(q *seamark.Query) {
			for code, data := range wire.Options(q.Options) {
				got = append(got, fmt.Sprintf("%04x:%x", code, data))
			}
		}}
		r := newTestBlock(t, ".:53 {\nrewrite "+c.rules+"\n}", below)
		has, err := hex.DecodeString(c.has)
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeAAAA)
		m.SetEdns0(1232, false)
		p := chaintest.Pack(t, m)
		p[len(p)-1] = byte(len(has))
		p = append(p, has...)
		if c.peer != "" {
			r.Prepare = func(q *seamark.Query) { q.Peer = netip.MustParseAddrPort(c.peer) }
		}
		r.Serve(p, seamark.UDP)
		after := r.Last.Options
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s on %q: got %q, want %q", c.rules, c.has, text, c.want)
		}
		if string(after) != string(has) {
			t.Errorf("%s: after FinishDNS: got options %x, want the client's %x", c.rules, after, has)
		}
	}
}

// revert restores the client's options of the code in the reply, and removes the
// option if the client sent none.
func TestRevert(t *testing.T) {
	for _, c := range []struct{ rules, client, want string }{
		{"rewrite edns0 local set 0xffee a", "", "65519: 65518:answer"},
		{"rewrite edns0 local set 0xffee a revert", "", "65519:"},
		{"rewrite edns0 local append 0xffee a revert", "", "65519:"},
		{"rewrite edns0 local set 0xffee a revert", "own", "65519: 65518:own"},
		{"rewrite edns0 local replace 0xffee a revert", "own", "65519: 65518:own"},
		{"rewrite edns0 local unset 0xffee revert", "own", "65519: 65518:own"},
		{"rewrite edns0 local append 0xffee a revert", "own", "65519: 65518:answer"},
		{"rewrite edns0 local set 0xffee a revert", "own second", "65519: 65518:own 65518:second"},
		{"rewrite edns0 local unset 0xffee revert", "own own", "65519: 65518:own 65518:own"},
		{"rewrite continue edns0 local set 0xffee a\nrewrite edns0 local replace 0xffee b revert", "", "65519: 65518:a"},
		{"rewrite continue edns0 local set 0xffee a revert\nrewrite edns0 local set 0xffee b revert", "own", "65519: 65518:own"},
	} {
		r := newTestBlock(t, ".:53 {\n"+c.rules+"\n}", &answerAll{func(q *seamark.Query) {
			q.AddReplyOption(0xffef, nil)
			q.AddReplyOption(0xffee, []byte("answer"))
		}})
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		m.SetEdns0(1232, false)
		for _, data := range strings.Fields(c.client) {
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: 0xffee, Data: []byte(data)})
		}
		reply := r.Ask(m, seamark.UDP)
		var options []string
		for _, o := range reply.IsEdns0().Option {
			options = append(options, fmt.Sprintf("%d:%s", o.Option(), o.(*dns.EDNS0_LOCAL).Data))
		}
		if got := strings.Join(options, " "); got != c.want {
			t.Errorf("%s\nclient option %q: got %s, want %s", c.rules, c.client, got, c.want)
		}
	}
}

// A client subnet that a rule has added does not reach a client that has sent none.
func TestAddedSubnetRemovedFromReply(t *testing.T) {
	subnet := &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{192, 0, 2, 0}}
	for _, own := range []bool{false, true} {
		r := newTestBlock(t, ".:53 {\nrewrite edns0 subnet set 24 56\n}", &answerAll{func(q *seamark.Query) {
			q.AddReplyOption(wire.OptionSubnet, []byte{0, 1, 24, 24, 192, 0, 2})
		}})
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		m.SetEdns0(1232, false)
		if own {
			m.IsEdns0().Option = []dns.EDNS0{subnet}
		}
		if got := r.Ask(m, seamark.UDP).IsEdns0().Option; len(got) > 0 != own {
			t.Errorf("client sends a subnet %v: got the options %v", own, got)
		}
	}
}

// The text of a group is not searched for groups.
func TestGroupsNotExpandedTwice(t *testing.T) {
	var got string
	r := newTestBlock(t, ".:53 {\nrewrite name regex (.*)\\.(.*)\\.example\\. {1}.{2}.org\n}", &answerAll{func(q *seamark.Query) {
		got = wire.Name(q.Name()).String()
	}})
	r.Serve(wire.AppendRequest(nil, 1, 0, name("{2}.secret.example."), wire.TypeA), seamark.UDP)
	if got != "{2}.secret.org." {
		t.Errorf("{2}.secret.example.: got %s, want {2}.secret.org.", got)
	}
}

// aliasAnswers answers for new.example with an address, and for other names with a CNAME record of old.example. Each of
// the two answers may be cacheable.
type aliasAnswers struct {
	aliasCacheable, targetCacheable bool
	observed                        chan bool // whether the client's answer is cacheable
}

func (h *aliasAnswers) ServeDNS(q *seamark.Query) seamark.Verdict {
	if wire.Name(q.Name()).String() == "new.example." {
		q.Cacheable = h.targetCacheable
		q.Answer.Append(wire.Answers, wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.IPv6Loopback()), 1)
		return seamark.Done
	}
	q.Cacheable = h.aliasCacheable
	target := name("old.example")
	record := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeCNAME, 60, len(target))
	q.Answer.Append(wire.Answers, append(record, target...), 1)
	return seamark.Done
}

func (h *aliasAnswers) ObserveDNS(q *seamark.Query) { h.observed <- q.Cacheable }

// An answer to which a cname rule adds own data of this server is not cached, nor is one whose alias is own data.
func TestCNAMECacheable(t *testing.T) {
	for _, alias := range []bool{false, true} {
		for _, target := range []bool{false, true} {
			h := &aliasAnswers{alias, target, make(chan bool, 1)}
			r := newTestBlock(t, ".:53 {\nrewrite cname exact old.example. new.example.\n}", h)
			m := chaintest.Unpack(t, r.Serve(wire.AppendRequest(nil, 1, 0, name("www.example"), wire.TypeAAAA), seamark.UDP))
			if len(m.Answer) != 2 {
				t.Fatalf("www.example. AAAA: got\n%v\nwant two records", m)
			}
			if got := <-h.observed; got != (alias && target) {
				t.Errorf("alias cacheable %v, target %v: got an answer that is cacheable %v, want %v", alias, target, got, alias && target)
			}
		}
	}
}

// A query that matches no rule allocates nothing.
func TestAllocations(t *testing.T) {
	r := newTestBlock(t, `.:53 {
		rewrite name exact a.example.org b.example.org
		rewrite name prefix old- new-
		rewrite name suffix .example.net .example.org
		rewrite name substring .consul. .example.
		rewrite name regex (.*)\.apps\.example\.org {1}.example.org
		rewrite type ANY A
		rewrite edns0 local replace 0xffee x
		rewrite ttl other.example.org 5
	}`, &answerAll{})
	packet := wire.AppendRequest(nil, 1, wire.FlagRD, name("www.shop.example.com"), wire.TypeA)
	// With the race detector, a sync.Pool drops items at random, so the minimum counts.
	lowest := testing.AllocsPerRun(1, func() { r.Serve(packet, seamark.UDP) })
	for range 100 {
		lowest = min(lowest, testing.AllocsPerRun(1, func() { r.Serve(packet, seamark.UDP) }))
	}
	if lowest != 0 {
		t.Errorf("got %v allocations, want 0", lowest)
	}
}

// A transaction that serves a second query has no state of the first.
func TestTransactionReuse(t *testing.T) {
	var seen []string
	r := newTestBlock(t, ".:53 {\nrewrite continue ttl a.example 5\nrewrite name a.example b.example\nrewrite edns0 local set 1 x\n}", &answerAll{func(q *seamark.Query) {
		seen = append(seen, fmt.Sprint(wire.Name(q.Name()), len(q.Options)))
		q.Answer.Append(wire.Answers, wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.IPv6Loopback()), 1)
	}})
	var ttls []uint32
	for _, n := range []string{"a.example", "c.example", "a.example", "c.example"} {
		m := chaintest.Unpack(t, r.Serve(wire.AppendRequest(nil, 1, 0, name(n), wire.TypeAAAA), seamark.UDP))
		if m.Answer[0].Header().Name != n+"." {
			t.Errorf("%s: got %v, want the owner name of the query", n, m.Answer)
		}
		ttls = append(ttls, m.Answer[0].Header().Ttl)
	}
	if got, want := fmt.Sprint(seen, ttls), "[b.example.0 c.example.5 b.example.0 c.example.5] [5 60 5 60]"; got != want {
		t.Errorf("names with options, and TTLs: got %s, want %s", got, want)
	}
}

func BenchmarkNoMatch(b *testing.B) {
	r := newTestBlock(b, ".:53 {\nrewrite name a.example b.example\nrewrite name suffix .example.net .example.org\nrewrite name regex (.*)\\.apps\\.example\\.org {1}.org\n}", &answerAll{})
	packet := wire.AppendRequest(nil, 1, wire.FlagRD, name("www.shop.example.com"), wire.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		r.Serve(packet, seamark.UDP)
	}
}

func BenchmarkName(b *testing.B) {
	r := newTestBlock(b, ".:53 {\nrewrite name www.shop.example.com b.example\n}", &answerAll{})
	packet := wire.AppendRequest(nil, 1, wire.FlagRD, name("www.shop.example.com"), wire.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		r.Serve(packet, seamark.UDP)
	}
}
