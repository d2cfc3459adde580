package dns

import (
	"net/netip"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// The chain of the longest zone answers; the chain of its parent answers for its DS
// records.
func TestMuxLongestZone(t *testing.T) {
	named := func(n int) *Chain { return chain(serve(addresses(n))) }
	r := newRig(t, 1, map[string]*Chain{".": named(1), "local": named(2), "cluster.local": named(3), "a.b.c.d.e.example": named(4)})
	for _, c := range []struct {
		name  string
		qtype uint16
		want  int
	}{
		{".", mdns.TypeA, 1}, {"example", mdns.TypeA, 1}, {"xlocal", mdns.TypeA, 1}, {"local", mdns.TypeA, 2},
		{"x.LOCAL", mdns.TypeA, 2}, {"xcluster.local", mdns.TypeA, 2}, {"cluster.local", mdns.TypeA, 3},
		{"a.b.c.svc.Cluster.Local", mdns.TypeA, 3}, {"z.a.b.c.d.e.example", mdns.TypeA, 4}, {"b.c.d.e.example", mdns.TypeA, 1},
		{"cluster.local", mdns.TypeDS, 2}, {"x.cluster.local", mdns.TypeDS, 3}, {".", mdns.TypeDS, 1},
	} {
		if _, reply := r.ask(newQuery(c.name, c.qtype)); len(reply.Answer) != c.want {
			t.Errorf("%s %s: answered by chain %d, want %d", c.name, mdns.TypeToString[c.qtype], len(reply.Answer), c.want)
		}
	}
	if err := r.mux.Route("\x05local\x00", named(1)); err == nil {
		t.Error("Route of a second chain for local.: got no error, want one")
	}
}

// No message makes the search for its zone fail, however few bytes it has and however many
// zones there are.
func TestMuxIncompleteMessages(t *testing.T) {
	whole, err := newQuery("www.a.example", mdns.TypeSOA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for zones := range 20 {
		routes := map[string]*Chain{}
		for i := range zones {
			routes[string(rune('a'+i))+".example"] = chain(serve(addresses(1)))
		}
		r := newRig(t, 1, routes)
		q, lent := NewQuery(r), make([]byte, 0, 4096)

		for opcode := range byte(16) {
			for size := 12; size <= len(whole); size++ {
				packet := append([]byte(nil), whole[:size]...)
				packet[2] = packet[2]&^0x78 | opcode<<3
				for questions := range byte(3) {
					packet[5] = questions
					q.Reset(packet, UDP, time.Time{})
					if r.port.Serve(q, lent) == Answered { // a panic ends the test
						q.Observe(time.Time{})
					}
				}
			}
		}
	}
}

// The first chain of a zone whose view matches serves the query; if there is none, a
// chain of the parent zone does.
func TestMuxViews(t *testing.T) {
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
	if err := m.Route(zone, view("ten", "10.0.0.0/8", 4)); err == nil {
		t.Error("Route of a view after a chain without a view: got no error, want one")
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
		{"10.1.0.1", "\x07example\x00", 1}, // the first view that matches
		{"192.0.2.1", "\x07example\x00", 3},
		{"10.1.0.1", "\x04only\x07example\x00", 6},
		{"192.0.2.1", "\x04only\x07example\x00", 3}, // The parent zone serves the name.
		{"192.0.2.1", "\x03org\x00", 5},
	} {
		var p Port
		p.Swap(m)
		q := NewQuery(nil)
		q.Peer = netip.AddrPortFrom(netip.MustParseAddr(c.peer), 1)
		q.Reset(wire.AppendRequest(nil, 1, 0, []byte(c.name), wire.TypeA), UDP, q.Start)
		if out := p.Serve(q, make([]byte, 0, 1024)); out != Answered || int(q.Answer.Count[0]) != c.want {
			t.Errorf("client %s, name %q: got %d addresses, want %d", c.peer, c.name, q.Answer.Count[0], c.want)
		}
	}
}

// A query in no zone is refused, and the observers of Mux.Unserved see it.
func TestMuxUnserved(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"example.": chain(addresses(1))})
	var seen []string
	r.mux.Unserved = &Chain{Zone: "dropped"}
	r.mux.Unserved.Observe(observe(func(q *Query) { seen = append(seen, q.Chain().Zone+" "+q.RCode.String()+" "+q.AnsweredBy()) }))
	r.answer(newQuery("example.", mdns.TypeA))
	if reply := r.answer(newQuery("org.", mdns.TypeA)); reply.Rcode != mdns.RcodeRefused || len(seen) != 1 || seen[0] != "dropped REFUSED " {
		t.Errorf("org.: got %v, observed %q; want REFUSED, observed once by the chain dropped", reply, seen)
	}
}
