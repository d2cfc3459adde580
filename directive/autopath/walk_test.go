package autopath

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

const clusterZone = "cluster.local."

// A result is the answer for one name and type.
type result struct {
	code  wire.RCode
	addrs []netip.Addr
}

// A backend is the handler below autopath. It answers NXDOMAIN for names without a
// result.
type backend struct {
	results    map[string]result // by "name type"
	namespaces []string
	client     string // namespace of the client's pod
	park       func() bool
	blocked    func(name string) bool // names refused by the handler above autopath
	silent     string                 // a name that gets no answer
	asked      []string
}

func (w *backend) ServeDNS(q *dns.Query) dns.Verdict {
	if w.park != nil && w.park() || w.silent != "" {
		return dns.Wait
	}
	w.answer(q)
	return dns.Done
}

func (w *backend) Resolve(ctx context.Context, q *dns.Query) error {
	if wire.Name(q.Name()).String() == w.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	w.answer(q)
	return nil
}

func (w *backend) answer(q *dns.Query) {
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

// SearchPath splits a name as the kubernetes directive does in a cluster without
// Services.
func (w *backend) SearchPath(q *dns.Query, byAddress bool) (labels int, ok bool) {
	labels, ns := firstStep(wire.Name(q.Name()).String())
	if !slices.Contains(w.namespaces, ns) || byAddress && ns != w.client {
		return 0, false
	}
	return labels, labels > 0
}

func (w *backend) NeedClients() error { return nil }

// firstStep returns the namespace in whose search path the name is the first, and
// the number of labels before it.
func firstStep(name string) (labels int, ns string) {
	before, ok := strings.CutSuffix(name, ".svc."+clusterZone)
	if !ok {
		return 0, ""
	}
	parts := strings.Split(before, ".")
	return len(parts) - 1, parts[len(parts)-1]
}

// A guard is the handler above autopath. Like acl, it refuses names.
type guard struct{ w *backend }

func (g guard) ServeDNS(q *dns.Query) dns.Verdict {
	if g.w.blocked != nil && g.w.blocked(wire.Name(q.Name()).String()) {
		q.Fail(wire.Refused)
		return dns.Done
	}
	return dns.Next
}

// A server answers from a backend, with autopath or without.
type server struct {
	*chaintest.Server
	queries int
	metrics *metrics.Registry
}

func serve(t testing.TB, w *backend, a *AutoPath) *server {
	c, s := new(dns.Chain), &server{metrics: &metrics.Registry{}}
	c.Add("acl", guard{w})
	if a != nil {
		a.metrics, a.cluster, a.zones = s.metrics, w, config.Fallthrough{On: true}
		if a.source == "" {
			a.cluster = nil
		}
		c.Add("autopath", a)
	}
	c.Add("backend", w)
	s.Server = chaintest.NewServer(t, map[string]*dns.Chain{".": c.CopyFor("dns://:53", ".")})
	return s
}

func (s *server) exchange(name string, t wire.Type) *mdns.Msg {
	s.queries++
	return s.Ask(chaintest.Query(name, t.String()), dns.TCP)
}

// reply returns the response code and the addresses of the reply.
func (s *server) reply(name string, t wire.Type) result {
	m := s.exchange(name, t)
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

// A client follows a search path with ndots:5, as one stub resolver does.
type client struct {
	name string
	// step returns the addresses in the replies for one name, and reports whether
	// the search ends here.
	step func(replies []result) (addrs []netip.Addr, end bool)
	// after is true if a name with five dots or more is looked up in the search path
	// after the name without a suffix failed.
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
		// The search continues after a name without addresses and after an error.
		{"glibc", func(replies []result) ([]netip.Addr, bool) {
			all := addresses(replies)
			return all, len(all) > 0 || has(replies, wire.Refused)
		}, true},
		// The search ends at an error and at a name without addresses. NXDOMAIN for
		// one type is NXDOMAIN.
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

// lookup follows the search path and returns the addresses, or "failure".
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

// randomBackend returns a backend with random results for the names that lookups of
// wanted may query.
func randomBackend(r *rand.Rand, wanted, suffixes []string, tlds []string) *backend {
	w := &backend{results: map[string]result{}, namespaces: []string{"shop", "b", "dev"}, client: "shop"}
	w.park = func() bool { return r.IntN(3) == 0 }
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
				pair[0].addrs, pair[1].addrs = randomAddrs(r, 4), randomAddrs(r, 16)
			case kind < 8: // of one family
				i := r.IntN(2)
				pair[i].addrs = randomAddrs(r, []int{4, 16}[i])
			case kind < 9: // no addresses
			case kind < 10: // one type fails
				pair[r.IntN(2)].code = wire.ServFail
			case kind < 11: // both fail
				pair[0].code, pair[1].code = wire.ServFail, wire.ServFail
			default: // a broken zone: the name exists for one type alone
				i := r.IntN(2)
				pair[i].code, pair[1-i].addrs = wire.NXDomain, randomAddrs(r, []int{16, 4}[i])
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

func randomAddrs(r *rand.Rand, size int) (addrs []netip.Addr) {
	for range 1 + r.IntN(2) {
		b := make([]byte, size)
		b[0], b[size-1], b[1] = 32, byte(r.IntN(256)), byte(r.IntN(256))
		ip, _ := netip.AddrFromSlice(b)
		addrs = append(addrs, ip)
	}
	return addrs
}

// ambiguous reports whether a later query of a lookup looks like the first query of
// another lookup, so that the server cannot tell them apart.
func (w *backend) ambiguous(name string, search []string, minLabels int) bool {
	for _, suffix := range append(search[1:], "") {
		labels, ns := firstStep(name + suffix)
		if labels < minLabels || !slices.Contains(w.namespaces, ns) {
			continue
		}
		if minLabels == 1 { // by the client's address
			if ns == w.client {
				return true
			}
		} else if _, tld := w.results[ns+". A"]; !tld {
			return true
		}
	}
	return false
}

// A client's lookup has the same outcome with autopath as without, and takes no more
// queries.
func TestSameOutcome(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	wanted := []string{
		"db.", "www.com.", "a.b.", "www.com.b.", "www.com.dev.", "x.dev.", "w.x.dev.", "a.b.c.d.e.com.", "api.shop.", "w.api.shop.", "shop.svc.", "com.dev.shop.", "b.dev.b.",
	}
	tlds := []string{"com", "dev"}
	search := []string{"shop.svc." + clusterZone, "svc." + clusterZone, clusterZone, "corp.com.", "com."}
	var compared, ambiguous, shorter, differing int
	for seed := range race.Fewer(uint64(50)) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := randomBackend(r, wanted, search, tlds)
		for source, a := range map[string]*AutoPath{
			"@query": {source: byQuery, hostSearch: names(t, search[3:])}, "@kubernetes": {source: byClient, hostSearch: names(t, search[3:])}, "file": {search: names(t, search)},
		} {
			minLabels := 1
			if a.source == byQuery {
				minLabels = 2
			}
			off, on := serve(t, w, nil), serve(t, w, a)
			for _, c := range clients() {
				for _, x := range wanted {
					for _, types := range [][]wire.Type{{wire.TypeA, wire.TypeAAAA}, {wire.TypeA}, {wire.TypeAAAA}} {
						off.queries, on.queries = 0, 0
						want := c.lookup(off, x, search, types)
						got := c.lookup(on, x, search, types)
						if w.ambiguous(x, search, minLabels) {
							ambiguous++
							if got != want {
								differing++
							}
							continue
						}
						compared++
						if got != want || on.queries > off.queries {
							t.Fatalf("seed %d: %s, %s looks up %s (%v)\ngot  %s with %d queries\nwant %s with %d", seed, source, c.name, x, types, got, on.queries, want, off.queries)
						}
						if on.queries < off.queries {
							shorter++
						}
					}
				}
			}
		}
	}
	t.Logf("%d lookups compared, %d of them shorter; of %d ambiguous ones, %d had another outcome", compared, shorter, ambiguous, differing)
	if compared < ambiguous || shorter < compared/20 {
		t.Errorf("got %d lookups compared, %d ambiguous, %d shorter; want more compared than ambiguous and 1 in 20 shorter", compared, ambiguous, shorter)
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

// A lookup takes as many queries as the documentation states.
func TestLookupQueryCount(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.80")
	w := &backend{results: map[string]result{"www.com. A": {addrs: []netip.Addr{ip}}, "www.com. AAAA": {}, "com. A": {}}, namespaces: []string{"shop"}, client: "shop"}
	search := []string{"shop.svc." + clusterZone, "svc." + clusterZone, clusterZone}
	both := []wire.Type{wire.TypeA, wire.TypeAAAA}
	for source, want := range map[string]int{"": 8, byQuery: 2, byClient: 2} {
		var a *AutoPath
		if source != "" {
			a = &AutoPath{source: source}
		}
		s := serve(t, w, a)
		if got := clients()[0].lookup(s, "www.com.", search, both); got != "[192.0.2.80]" || s.queries != want {
			t.Errorf("%s: got %s with %d queries, want [192.0.2.80] with %d", source, got, s.queries, want)
		}
		var text strings.Builder
		if err := s.metrics.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if counted := strings.Contains(text.String(), `coredns_autopath_success_total{server="dns://:53"} 2`) &&
			strings.Contains(text.String(), `seamark_autopath_saved_queries_total{server="dns://:53"} 6`); counted != (a != nil) {
			t.Errorf("%q: got metrics\n%s\nwant 2 successes and 6 saved queries only with autopath", source, text.String())
		}
	}
}

// The CNAME record keeps the client's spelling, and its TTL is at most that of the
// negative answer.
func TestReplyCNAME(t *testing.T) {
	w := &backend{results: map[string]result{"www.com. A": {addrs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}, "www.com. AAAA": {}, "com. A": {}}, namespaces: []string{"shop"}}
	s := serve(t, w, &AutoPath{source: byQuery})
	m := s.exchange("www.com.shop.svc.cluster.local.", wire.TypeA)
	want := "www.com.shop.svc.cluster.local.\t30\tIN\tCNAME\twww.com. www.com.\t60\tIN\tA\t192.0.2.80"
	if len(m.Answer) != 2 || m.Answer[0].String()+" "+m.Answer[1].String() != want || !m.Authoritative || m.Rcode != 0 {
		t.Errorf("A: got\n%v\nwant NOERROR aa %s", m, want)
	}
	m = s.exchange("www.com.shop.svc.cluster.local.", wire.TypeAAAA)
	if len(m.Answer) != 1 || len(m.Ns) != 1 || m.Rcode != 0 {
		t.Errorf("AAAA: got\n%v\nwant NOERROR with one CNAME and one authority record", m)
	}
}

// Handlers above autopath see every name of the path: a refused name is not answered
// under another name.
func TestHandlersAboveSeeEveryName(t *testing.T) {
	w := &backend{results: map[string]result{"www.com. A": {addrs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}, "www.com. AAAA": {}, "com. A": {}}, namespaces: []string{"shop"}, client: "shop"}
	for _, blocked := range []string{"www.com.", "www.com.svc.cluster.local.", "www.com.cluster.local."} {
		w.blocked = func(name string) bool { return name == blocked }
		for _, a := range []*AutoPath{{source: byQuery}, {source: byClient}} {
			if m := serve(t, w, a).exchange("www.com.shop.svc.cluster.local.", wire.TypeA); m.Rcode != mdns.RcodeNameError || len(m.Answer) > 0 {
				t.Errorf("%s with %s refused: got\n%v\nwant NXDOMAIN", a.source, blocked, m)
			}
		}
	}
}

// Queries that are not the first of a search path are not parked.
func TestOtherQueriesNotParked(t *testing.T) {
	w := &backend{namespaces: []string{"shop"}, client: "other"}
	for _, c := range []struct {
		source, name string
		t            wire.Type
	}{
		{byQuery, "www.com.", wire.TypeA},
		{byQuery, "api.shop.svc.cluster.local.", wire.TypeA},
		{byQuery, "www.com.missing.svc.cluster.local.", wire.TypeA},
		{byQuery, "www.com.shop.svc.cluster.local.", wire.TypeSRV},
		{byClient, "www.com.shop.svc.cluster.local.", wire.TypeA},
		{"", "www.com.", wire.TypeA},
		{"", "corp.com.", wire.TypeA},
	} {
		a := &AutoPath{source: c.source}
		if c.source == "" {
			a.search = names(t, []string{"corp.com."})
		}
		s := serve(t, w, a)
		n, _ := wire.ParseName(c.name)
		packet := wire.AppendRequest(nil, 1, wire.FlagRD, []byte(n), c.t)
		if _, parked := s.Begin(packet, dns.UDP); parked != nil {
			t.Errorf("%s %s %s: query was parked", c.source, c.name, c.t)
		}
	}
}
