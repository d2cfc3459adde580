package autopath

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

const clusterZone = "cluster.local."

// A result is what a name has for one type.
type result struct {
	code  wire.RCode
	addrs []netip.Addr
}

// A world is all there is: results by "name type", and the namespaces of a
// cluster. What is not in it does not exist. It stands below autopath.
type world struct {
	results    map[string]result
	namespaces []string
	client     string // namespace of the pod that asks
	late       func() bool
	blocked    func(name string) bool // by what stands above autopath
	silent     string                 // a name that nobody answers
	asked      []string
}

func (w *world) ServeDNS(q *dns.Query) dns.Verdict {
	if w.late != nil && w.late() || w.silent != "" {
		return dns.Wait
	}
	w.answer(q)
	return dns.Done
}

func (w *world) Resolve(ctx context.Context, q *dns.Query) error {
	if wire.Name(q.Name()).String() == w.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	w.answer(q)
	return nil
}

func (w *world) answer(q *dns.Query) {
	name := wire.Name(q.Name()).String()
	w.asked = append(w.asked, name+" "+q.Type.String())
	r, ok := w.results[name+" "+q.Type.String()]
	if !ok {
		r.code = wire.NXDomain
	}
	q.RCode = r.code
	for _, ip := range r.addrs {
		q.Answer.Append(wire.Answers, wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, ip), 1)
	}
	if len(r.addrs) == 0 && r.code != wire.ServFail {
		soa := wire.AppendRecordHeader(nil, "\x00", wire.TypeSOA, 30, 22)
		q.Answer.Append(wire.Authority, append(soa, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x1e"...), 1)
	}
}

// SearchPath takes a name apart as the kubernetes directive does; it knows of
// no Service.
func (w *world) SearchPath(q *dns.Query, byAddress bool) (labels int, ok bool) {
	labels, ns := firstStep(wire.Name(q.Name()).String())
	if !slices.Contains(w.namespaces, ns) || byAddress && ns != w.client {
		return 0, false
	}
	return labels, labels > 0
}

func (w *world) NeedClients() error { return nil }

// firstStep says which namespace a name would be the first of a search path of,
// and how many labels are in front of that.
func firstStep(name string) (labels int, ns string) {
	before, ok := strings.CutSuffix(name, ".svc."+clusterZone)
	if !ok {
		return 0, ""
	}
	parts := strings.Split(before, ".")
	return len(parts) - 1, parts[len(parts)-1]
}

// A guard stands above autopath as acl does: it refuses names.
type guard struct{ w *world }

func (g guard) ServeDNS(q *dns.Query) dns.Verdict {
	if g.w.blocked != nil && g.w.blocked(wire.Name(q.Name()).String()) {
		q.Fail(wire.Refused)
		return dns.Done
	}
	return dns.Next
}

type sent chan []byte

func (s sent) Send(q *dns.Query) { s <- append([]byte{}, q.Reply()...) }

// A server is one that answers from a world, with autopath or without.
type server struct {
	t       testing.TB
	port    dns.Port
	sent    sent
	queries int
	metrics *metrics.Registry
}

func serve(t testing.TB, w *world, a *AutoPath) *server {
	c := new(dns.Chain)
	s := &server{t: t, sent: make(sent, 1), metrics: &metrics.Registry{}}
	c.Add("acl", guard{w})
	if a != nil {
		a.metrics, a.cluster, a.zones = s.metrics, w, config.Fallthrough{On: true}
		if a.how == "" {
			a.cluster = nil
		}
		c.Add("autopath", a)
	}
	c.Add("world", w)
	lot := dns.NewParkingLot(16)
	mux := dns.NewMux(lot, nil)
	if err := mux.Route(wire.Root, c.CopyFor("dns://:53", ".")); err != nil {
		t.Fatal(err)
	}
	s.port.Swap(mux)
	return s
}

func (s *server) ask(name string, t wire.Type) *mdns.Msg {
	n, err := wire.ParseName(name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.queries++
	q := dns.NewQuery(s.sent)
	q.Reset(wire.AppendRequest(q.Buffer(1500)[:0], 1, wire.FlagRD, []byte(n), t), dns.TCP, time.Now())
	var got []byte
	switch s.port.Serve(q, make([]byte, 8192)) {
	case dns.Answered:
		got = q.Reply()
	case dns.Parked:
		got = <-s.sent
	}
	m := new(mdns.Msg)
	if err := m.Unpack(got); err != nil {
		s.t.Fatalf("%s: %x: %v", name, got, err)
	}
	return m
}

// reply is what a resolver reads out of a message.
func (s *server) reply(name string, t wire.Type) result {
	m := s.ask(name, t)
	r := result{code: wire.RCode(m.Rcode)}
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *mdns.A:
			ip, _ := netip.AddrFromSlice(rr.A.To4())
			r.addrs = append(r.addrs, ip)
		case *mdns.AAAA:
			ip, _ := netip.AddrFromSlice(rr.AAAA)
			r.addrs = append(r.addrs, ip)
		}
	}
	return r
}

// A client is one way in which stub resolvers walk a search path, with ndots:5.
type client struct {
	name string
	// step says what the replies for one name mean: addresses, or an end
	// without them, or that the next name is to be asked for.
	step func(replies []result) (addrs []netip.Addr, end bool)
	// after says that a name with five dots or more is looked for in the search
	// path when it has failed by itself.
	after bool
}

func addresses(replies []result) (all []netip.Addr) {
	for _, r := range replies {
		all = append(all, r.addrs...)
	}
	return all
}

func has(replies []result, code wire.RCode) bool {
	return slices.ContainsFunc(replies, func(r result) bool { return r.code == code })
}

func clients() []client {
	return []client{
		// A name without addresses, or an error, is not the end.
		{"glibc", func(replies []result) ([]netip.Addr, bool) {
			all := addresses(replies)
			return all, len(all) > 0 || has(replies, wire.Refused)
		}, true},
		// An error is the end; so is a name without addresses. NXDOMAIN for one
		// type is NXDOMAIN.
		{"musl", func(replies []result) ([]netip.Addr, bool) {
			for _, r := range replies {
				switch r.code {
				case wire.NXDomain:
					return nil, false
				case wire.NoError:
				default:
					return nil, true
				}
			}
			return addresses(replies), true
		}, false},
		{"go", func(replies []result) ([]netip.Addr, bool) {
			all := addresses(replies)
			return all, len(all) > 0
		}, true},
	}
}

// lookup is the client's whole walk: addresses, or "failure".
func (c client) lookup(s *server, name string, search []string, types []wire.Type) string {
	names := []string{name}
	for _, suffix := range search {
		names = append(names, name+suffix)
	}
	if strings.Count(name, ".")-1 < 5 {
		names = append(names[1:], name)
	} else if !c.after {
		names = names[:1]
	}
	for _, n := range names {
		var replies []result
		for _, t := range types {
			replies = append(replies, s.reply(n, t))
		}
		addrs, end := c.step(replies)
		if len(addrs) > 0 {
			slices.SortFunc(addrs, netip.Addr.Compare)
			return fmt.Sprint(addrs)
		}
		if end {
			break
		}
	}
	return "failure"
}

// randomWorld has the names that lookups of wanted can come to.
func randomWorld(r *rand.Rand, wanted, suffixes []string, tlds []string) *world {
	w := &world{results: map[string]result{}, namespaces: []string{"shop", "b", "dev"}, client: "shop"}
	w.late = func() bool { return r.IntN(3) == 0 }
	for _, tld := range tlds {
		w.results[tld+". A"], w.results[tld+". AAAA"] = result{}, result{}
	}
	for _, x := range wanted {
		for _, suffix := range append(suffixes, "") {
			labels := strings.Split(strings.TrimSuffix(x, "."), ".")
			if suffix == "" && !slices.Contains(tlds, labels[len(labels)-1]) || r.IntN(4) > 0 && !(suffix == "" && r.IntN(2) == 0) {
				continue
			}
			var pair [2]result
			switch kind := r.IntN(12); {
			case kind < 6: // addresses of both families
				pair[0].addrs, pair[1].addrs = some(r, 4), some(r, 16)
			case kind < 8: // of one
				i := r.IntN(2)
				pair[i].addrs = some(r, []int{4, 16}[i])
			case kind < 9: // of none
			case kind < 10: // one type fails
				pair[r.IntN(2)].code = wire.ServFail
			case kind < 11: // both fail
				pair[0].code, pair[1].code = wire.ServFail, wire.ServFail
			default: // a broken zone: the name exists for one type alone
				i := r.IntN(2)
				pair[i].code, pair[1-i].addrs = wire.NXDomain, some(r, []int{16, 4}[i])
			}
			w.results[x+suffix+" A"], w.results[x+suffix+" AAAA"] = pair[0], pair[1]
		}
	}
	if r.IntN(4) == 0 {
		refused := wanted[r.IntN(len(wanted))]
		w.blocked = func(name string) bool { return name == refused }
	}
	return w
}

func some(r *rand.Rand, size int) (addrs []netip.Addr) {
	for range 1 + r.IntN(2) {
		b := make([]byte, size)
		b[0], b[size-1], b[1] = 32, byte(r.IntN(256)), byte(r.IntN(256))
		ip, _ := netip.AddrFromSlice(b)
		addrs = append(addrs, ip)
	}
	return addrs
}

// open says whether a later question of a lookup looks like the first of
// another: the one case in which a question does not say enough.
func (w *world) open(name string, search []string, least int) bool {
	for _, suffix := range append(search[1:], "") {
		labels, ns := firstStep(name + suffix)
		if labels < least || !slices.Contains(w.namespaces, ns) {
			continue
		}
		if least == 1 { // by the client's address
			if ns == w.client {
				return true
			}
		} else if _, tld := w.results[ns+". A"]; !tld {
			return true
		}
	}
	return false
}

// In any world a client's lookup ends as without autopath, and takes no more
// queries.
func TestOutcomesAreTheSame(t *testing.T) {
	wanted := []string{
		"db.", "www.com.", "a.b.", "www.com.b.", "www.com.dev.", "x.dev.", "w.x.dev.", "a.b.c.d.e.com.", "api.shop.", "w.api.shop.", "shop.svc.", "com.dev.shop.", "b.dev.b.",
	}
	tlds := []string{"com", "dev"}
	search := []string{"shop.svc." + clusterZone, "svc." + clusterZone, clusterZone, "corp.com.", "com."}
	var compared, open, shorter, differing int
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := randomWorld(r, wanted, search, tlds)
		for how, a := range map[string]*AutoPath{
			"@query": {how: byQuestion, more: names(t, search[3:])}, "@kubernetes": {how: byClient, more: names(t, search[3:])}, "file": {search: names(t, search)},
		} {
			least := 1
			if a.how == byQuestion {
				least = 2
			}
			off, on := serve(t, w, nil), serve(t, w, a)
			for _, c := range clients() {
				for _, x := range wanted {
					for _, types := range [][]wire.Type{{wire.TypeA, wire.TypeAAAA}, {wire.TypeA}, {wire.TypeAAAA}} {
						off.queries, on.queries = 0, 0
						want := c.lookup(off, x, search, types)
						got := c.lookup(on, x, search, types)
						if w.open(x, search, least) {
							open++
							if got != want {
								differing++
							}
							continue
						}
						compared++
						if got != want || on.queries > off.queries {
							t.Fatalf("seed %d: %s, %s looks for %s (%v)\ngot  %s with %d queries\nwant %s with %d", seed, how, c.name, x, types, got, on.queries, want, off.queries)
						}
						if on.queries < off.queries {
							shorter++
						}
					}
				}
			}
		}
	}
	t.Logf("%d lookups compared, %d of them shorter; of %d that a question does not tell, %d ended otherwise", compared, shorter, open, differing)
	if compared < open || shorter < compared/20 {
		t.Error("the worlds show too little")
	}
}

func names(t testing.TB, texts []string) (all []wire.Name) {
	for _, text := range texts {
		n, err := wire.ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// How many queries one lookup takes, as the documentation says.
func TestQueriesOfALookup(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.80")
	w := &world{results: map[string]result{"www.com. A": {addrs: []netip.Addr{ip}}, "www.com. AAAA": {}, "com. A": {}}, namespaces: []string{"shop"}, client: "shop"}
	search := []string{"shop.svc." + clusterZone, "svc." + clusterZone, clusterZone}
	both := []wire.Type{wire.TypeA, wire.TypeAAAA}
	for how, want := range map[string]int{"": 8, byQuestion: 2, byClient: 2} {
		var a *AutoPath
		if how != "" {
			a = &AutoPath{how: how}
		}
		s := serve(t, w, a)
		if got := clients()[0].lookup(s, "www.com.", search, both); got != "[192.0.2.80]" || s.queries != want {
			t.Errorf("%s: %s with %d queries, want %d", how, got, s.queries, want)
		}
		var text strings.Builder
		if err := s.metrics.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if counted := strings.Contains(text.String(), `coredns_autopath_success_total{server="dns://:53"} 2`) &&
			strings.Contains(text.String(), `seamark_autopath_saved_queries_total{server="dns://:53"} 6`); counted != (a != nil) {
			t.Errorf("%s: %s", how, text.String())
		}
	}
}

// The alias keeps the client's spelling and lasts no longer than the denial.
func TestReply(t *testing.T) {
	w := &world{results: map[string]result{"www.com. A": {addrs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}, "www.com. AAAA": {}, "com. A": {}}, namespaces: []string{"shop"}}
	s := serve(t, w, &AutoPath{how: byQuestion})
	m := s.ask("www.com.shop.svc.cluster.local.", wire.TypeA)
	want := "www.com.shop.svc.cluster.local.\t30\tIN\tCNAME\twww.com. www.com.\t60\tIN\tA\t192.0.2.80"
	if len(m.Answer) != 2 || m.Answer[0].String()+" "+m.Answer[1].String() != want || !m.Authoritative || m.Rcode != 0 {
		t.Error(m)
	}
	m = s.ask("www.com.shop.svc.cluster.local.", wire.TypeAAAA)
	if len(m.Answer) != 1 || len(m.Ns) != 1 || m.Rcode != 0 {
		t.Error(m)
	}
}

// What stands above sees every name of the path: one that a client may not ask
// for is not told under another.
func TestEveryNamePassesAll(t *testing.T) {
	w := &world{results: map[string]result{"www.com. A": {addrs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}, "www.com. AAAA": {}, "com. A": {}}, namespaces: []string{"shop"}, client: "shop"}
	for _, blocked := range []string{"www.com.", "www.com.svc.cluster.local.", "www.com.cluster.local."} {
		w.blocked = func(name string) bool { return name == blocked }
		for _, a := range []*AutoPath{{how: byQuestion}, {how: byClient}} {
			if m := serve(t, w, a).ask("www.com.shop.svc.cluster.local.", wire.TypeA); m.Rcode != mdns.RcodeNameError || len(m.Answer) > 0 {
				t.Errorf("%s %s: %v", a.how, blocked, m)
			}
		}
	}
}

// What is no first question of a search path passes inline, and costs nothing.
func TestPasses(t *testing.T) {
	w := &world{namespaces: []string{"shop"}, client: "other"}
	for _, c := range []struct {
		how, name string
		t         wire.Type
	}{
		{byQuestion, "www.com.", wire.TypeA},
		{byQuestion, "api.shop.svc.cluster.local.", wire.TypeA},
		{byQuestion, "www.com.nobody.svc.cluster.local.", wire.TypeA},
		{byQuestion, "www.com.shop.svc.cluster.local.", wire.TypeSRV},
		{byClient, "www.com.shop.svc.cluster.local.", wire.TypeA},
		{"", "www.com.", wire.TypeA},
		{"", "corp.com.", wire.TypeA},
	} {
		a := &AutoPath{how: c.how}
		if c.how == "" {
			a.search = names(t, []string{"corp.com."})
		}
		s := serve(t, w, a)
		n, _ := wire.ParseName(c.name)
		q := dns.NewQuery(s.sent)
		q.Reset(wire.AppendRequest(q.Buffer(1500)[:0], 1, wire.FlagRD, []byte(n), c.t), dns.UDP, time.Now())
		if s.port.Serve(q, make([]byte, 4096)) != dns.Answered {
			t.Errorf("%s %s %s: it waits", c.how, c.name, c.t)
		}
	}
}
