package cache

import (
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func withOptions(m *mdns.Msg, do bool, options ...mdns.EDNS0) *mdns.Msg {
	m.SetEdns0(1232, do)
	m.IsEdns0().Option = options
	return m
}

func subnet(last byte) mdns.EDNS0 {
	return &mdns.EDNS0_SUBNET{Code: mdns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{192, 0, last, 0}}
}

// Two queries share an entry only if an upstream would answer both alike.
func TestKeyDistinguishesQueries(t *testing.T) {
	name := "www.example.org"
	plain := func() *mdns.Msg { return newQuery(name, mdns.TypeA) }
	cd, norec, ad, ch := plain(), plain(), plain(), plain()
	cd.CheckingDisabled, norec.RecursionDesired, ad.AuthenticatedData = true, false, true
	ch.Question[0].Qclass = mdns.ClassCHAOS
	long := make([]byte, 200)
	for _, test := range []struct {
		name   string
		m      *mdns.Msg
		change func(q *dns.Query)
		same   bool // shares the entry of the plain query
		never  bool // is not cached
	}{
		{name: "the same", m: plain(), same: true},
		{name: "another spelling", m: newQuery("WWW.example.ORG", mdns.TypeA), same: true},
		{name: "over TCP", m: plain(), change: func(q *dns.Query) { q.Proto = dns.TCP }, same: true},
		{name: "EDNS", m: withOptions(plain(), false), same: true},
		{name: "AD", m: ad, same: true},
		{name: "a cookie", m: withOptions(plain(), false, &mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0011223344556677"}), same: true},
		{name: "NSID, padding", m: withOptions(plain(), false, &mdns.EDNS0_NSID{Code: mdns.EDNS0NSID}, &mdns.EDNS0_PADDING{Padding: long}), same: true},
		{name: "another type", m: newQuery(name, mdns.TypeTXT)},
		{name: "another name", m: newQuery("example.org", mdns.TypeA)},
		{name: "another class", m: ch},
		{name: "DO", m: withOptions(plain(), true)},
		{name: "CD", m: cd},
		{name: "no RD", m: norec},
		{name: "a subnet", m: withOptions(plain(), false, subnet(1))},
		{name: "another subnet, and a cookie", m: withOptions(plain(), false, &mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0011223344556677"}, subnet(2))},
		{name: "another view", m: plain(), change: func(q *dns.Query) { q.Interface = len("inside") }},
		{name: "too many options", m: withOptions(plain(), false, &mdns.EDNS0_LOCAL{Code: 65001, Data: long}), never: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			block := "{\n cache\n upstream a\n}\n"
			w := newHarness(t, ".:53 {\n view inside\n cache\n upstream a\n}\n.:53 "+block)
			if test.change == nil {
				test.change = func(*dns.Query) {}
			}
			want := int64(2)
			w.ask(plain())
			w.ask(test.m, test.change)
			if test.same {
				want = 1
			}
			w.upstreams["a"].wantQueries(t, want)
			w.ask(test.m, test.change)
			w.ask(plain())
			if test.never {
				want++
			}
			w.upstreams["a"].wantQueries(t, want)
		})
	}
}

// The key of a query that a handler below changes is the client's.
func TestKeyChangedBelow(t *testing.T) {
	w := newHarness(t, stock)
	w.local = func(q *dns.Query) dns.Verdict {
		q.Flags |= wire.FlagCD
		q.DO = true
		q.Options = []byte{0, 8, 0, 0}
		return dns.Next
	}
	w.ask(newQuery("www.example.org", mdns.TypeA))
	w.ask(newQuery("www.example.org", mdns.TypeA))
	w.upstreams["a"].wantQueries(t, 1)
}

// AD is only sent to clients that request it (RFC 6840 §5.8).
func TestADBit(t *testing.T) {
	w := newHarness(t, stock)
	w.upstreams["a"].answer = func(q *dns.Query, n int) error {
		q.AD, q.AA = true, true
		return addressAnswer(300)(q, n)
	}
	ad := newQuery("www.example.org", mdns.TypeA)
	ad.AuthenticatedData = true
	w.ask(ad)
	for _, test := range []struct {
		m    *mdns.Msg
		want bool
	}{{ad, true}, {newQuery("www.example.org", mdns.TypeA), false}} {
		if r, inline := w.ask(test.m); !inline || r.AuthenticatedData != test.want || !r.Authoritative {
			t.Errorf("inline %v, want AD %v: %v", inline, test.want, r)
		}
	}
}

// Extended errors are part of the entry; other options of the reply are not.
func TestExtendedErrorsCached(t *testing.T) {
	w := newHarness(t, stock)
	w.upstreams["a"].answer = func(q *dns.Query, _ int) error {
		q.AddExtendedError(wire.EDEFiltered, "no")
		q.AddReplyOption(wire.OptionNSID, []byte("x"))
		return write(q, wire.NXDomain, ";\n"+soa)
	}
	m := withOptions(newQuery("www.example.org", mdns.TypeA), false)
	w.ask(m)
	r, inline := w.ask(m)
	options := r.IsEdns0().Option
	if !inline || len(options) != 1 || options[0].(*mdns.EDNS0_EDE).InfoCode != mdns.ExtendedErrorCodeFiltered || options[0].(*mdns.EDNS0_EDE).ExtraText != "no" {
		t.Errorf("second query: got inline %v and\n%v\nwant an entry with the extended error Filtered", inline, r)
	}
}

// Answers of different handlers of a block have different entries.
func TestKeyIncludesAnsweringStep(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache\n upstream a\n upstream b\n}\n")
	w.ask(newQuery("www.example.org", mdns.TypeA))
	w.ask(newQuery("www.example.org", mdns.TypeA))
	w.upstreams["a"].wantQueries(t, 1)
	w.upstreams["b"].wantQueries(t, 0)
}

// TOB-CDNS-8: queries whose hashes are equal share neither an entry nor a pending query.
func TestKeyCollision(t *testing.T) {
	st := NewStore(1<<20, nil)
	s := st.scope("a", [2]int{20, 20})
	e := newTestEntry(st, s, "www.example.org", success)
	if _, ok := st.put(e, 0, 0); !ok || st.find(s, e.key()).byKind[success] != e {
		t.Fatal("got no entry, want the one that was stored")
	}
	same, leads := st.startPending(s, e.key(), dns.UDP)
	if again, leadsAgain := st.startPending(s, e.key(), dns.UDP); !leads || leadsAgain || again != same {
		t.Fatal("two equal queries: got two leaders, want one")
	}

	for what, change := range map[string]func(k *key){
		"name":    func(k *key) { k.name = []byte("\x03wwx\x07example\x03org\x00") },
		"length":  func(k *key) { k.name = k.name[4:] },
		"type":    func(k *key) { k.t++ },
		"class":   func(k *key) { k.class++ },
		"flags":   func(k *key) { k.flags ^= flagDO },
		"step":    func(k *key) { k.step++ },
		"options": func(k *key) { k.options = []byte("\x00\x08\x00\x00") },
	} {
		k := e.key().clone()
		change(&k)
		k.hash = e.hash
		if got := st.find(s, &k); got != (found{}) {
			t.Errorf("another %s with the same hash: got an entry, want none", what)
		}
		if p, leads := st.startPending(s, &k, dns.UDP); !leads || p == same {
			t.Errorf("another %s with the same hash: got the pending query of the first, want one of its own", what)
		}
	}
}
