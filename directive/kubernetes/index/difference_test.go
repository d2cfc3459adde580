package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/race"
)

// String returns all fields of an entry.
func (e *Entry) String() string {
	if e == nil {
		return "nothing"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q %x exists %v spread %v\nknown %v headless %v alias %v publish %v selector %v reached %v ports %v\nA %x\nAAAA %x\n", e.Key.Labels, e.hash, e.exists, e.InParts,
		e.Known(), e.Headless, e.ExternalName, e.PublishNotReady, e.selector, e.External, e.PortList(), e.A(), e.AAAA())
	write := func(ps []Part) {
		for _, p := range ps {
			fmt.Fprintf(&b, "part %q of %q %v, %d count: %x A %x AAAA %x\n", p.Name(), p.Ports.Cluster, p.Ports.Ports, p.Served, p.Endpoints(), p.A(), p.AAAA())
		}
	}
	write(e.Parts)
	if e.Merged() != nil {
		fmt.Fprintf(&b, "mixed, shared %v, of\n", e.Merged().SharedAddrs)
		write(e.Merged().slices)
		if a := e.Alias(); a != nil {
			fmt.Fprintf(&b, "CNAME %x labels %v zones %v ports %v\n", a.Record, a.Labels, a.Zones, a.Ports.Ports)
		}
	}
	if e.k8sExternal != nil {
		fmt.Fprintf(&b, "outside %v", e.k8sExternal)
	}
	return b.String()
}

// rebuild builds the entry without an old one.
func (ix *Index) rebuild(k *ServiceKey, spec Spec, all []pendingPart) *Entry {
	all = slices.Clone(all)
	for i := range all {
		all[i].unchanged = nil
	}
	e, _ := ix.newEntry(&serviceChange{key: k}, &spec, all, nil)
	return e
}

// check reports an entry that differs from one built from the same objects, or an address
// that is missing in a reverse index or does not belong there.
func (ix *Index) check() error {
	for _, imported := range []bool{false, true} {
		for _, e := range ix.table(imported).All() {
			var all []pendingPart
			for _, p := range e.Slices() {
				all = append(all, pendingPart{p.Name(), p.Ports, p.Endpoints(), nil})
			}
			if want := ix.rebuild(e.Key, e.Spec, all); e.String() != want.String() {
				return fmt.Errorf("entry\n%v\nbuilt afresh\n%v", e, want)
			}
		}
	}
	want := map[addrRef]bool{}
	claimed := map[addrRef]bool{}
	beyond := map[addrRef]bool{}
	for _, e := range ix.services.All() {
		if !e.Key.Namespace.exposed.Load() {
			continue
		}
		for ip := range e.addresses(true, false) {
			want[addrRef{ip, e.Key}] = true
		}
		for ip := range e.addresses(false, true) {
			claimed[addrRef{ip, e.Key}] = true
		}
		for ip := range e.externalAddresses() {
			beyond[addrRef{ip, e.Key}] = true
		}
	}
	for what, c := range map[string]struct {
		want map[addrRef]bool
		got  []addrRef
	}{"reverse": {want, allRefs(&ix.reverse)}, "claims": {claimed, allRefs(&ix.claims)}, "outside": {beyond, allRefs(&ix.externalReverse)}} {
		sorted := slices.SortedFunc(maps.Keys(c.want), addrRef.compare)
		if !slices.Equal(c.got, sorted) {
			return fmt.Errorf("%s has %d pairs %v\nwant %d %v", what, len(c.got), c.got, len(sorted), sorted)
		}
	}
	return nil
}

// A serviceChurn is one Service with several slices, whose endpoints are added, changed,
// moved between slices and removed.
type serviceChurn struct {
	*rand.Rand
	ix      *Index
	service *cluster.Service
	slices  map[string]*cluster.Slice
	pool    int // of addresses
}

func (s *serviceChurn) chance(percent int) bool { return s.IntN(100) < percent }

func (s *serviceChurn) addr() netip.Addr {
	n := s.IntN(s.pool)
	return testAddr(n%5 == 0, 10<<24+n)
}

func (s *serviceChurn) endpoint() cluster.Endpoint {
	ep := cluster.Endpoint{Addr: s.addr(), Ready: s.chance(80), Target: s.chance(60)}
	if s.chance(40) {
		ep.Hostname = fmt.Sprintf("db-%d", s.IntN(s.pool))
	}
	if s.chance(3) {
		ep.Hostname = "10-0-0-1"
	}
	if s.chance(20) {
		ep.Zone = "zone-a"
	}
	return ep
}

// withEndpoints returns the slice with other endpoints.
func withEndpoints(sl *cluster.Slice, eps []cluster.Endpoint) *cluster.Slice {
	var buf []byte
	for _, ep := range eps {
		buf = cluster.AppendEndpoint(buf, ep)
	}
	next := *sl
	next.Endpoints = cluster.Endpoints(buf)
	return &next
}

// change returns a random change of one slice; nil removes it.
func (s *serviceChurn) change(name string) *cluster.Slice {
	sl := s.slices[name]
	if sl == nil {
		return withEndpoints(&cluster.Slice{Namespace: "shop", Name: name, Service: "db", Ports: ports("sql 5432/tcp")}, []cluster.Endpoint{s.endpoint(), s.endpoint()})
	}
	eps := slices.Collect(sl.Endpoints.All())
	i := s.IntN(len(eps) + 1)
	if s.chance(4) {
		for range 40 {
			eps = append(eps, s.endpoint())
		}
	}
	switch s.IntN(8) {
	case 0:
		return nil
	case 1, 2:
		eps = slices.Insert(eps, i, s.endpoint())
	case 3:
		eps = slices.Delete(eps, i, min(i+1, len(eps)))
	case 4, 5:
		eps = slices.Delete(eps, i, min(i+1, len(eps)))
		eps = slices.Insert(eps, i, s.endpoint())
	case 6:
		for j := range eps {
			if s.chance(30) {
				eps[j].Ready = !eps[j].Ready
			}
		}
		s.Shuffle(len(eps), func(i, j int) { eps[i], eps[j] = eps[j], eps[i] })
	case 7:
		next := withEndpoints(sl, eps)
		next.Ports = slices.Clone(ports([]string{"sql 5432/tcp", "", "sql 5433/tcp, mon 90/tcp"}[s.IntN(3)]))
		return next
	}
	return withEndpoints(sl, eps)
}

// An entry made from the old one and a difference equals one made from all slices, and every
// change for which that is possible is made so.
func TestEntryFromDifferenceEqualsNewEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	fromDifference, fromAll := 0, 0
	for seed := range race.Fewer(uint64(60)) {
		s := serviceChurn{Rand: rand.New(rand.NewPCG(seed, 1)), slices: map[string]*cluster.Slice{}, pool: []int{8, 40, 4000}[seed%3]}
		set := Settings{TTL: 5, IgnoreEmpty: s.chance(30)}
		if s.chance(40) {
			set.External = ExternalSettings{Enabled: true, Headless: s.chance(50), TTL: 7}
		}
		s.ix = New(set, watchedKinds(), discardLog())
		if seed%2 == 1 {
			s.ix.settings.TableFrom = 2
		}
		load(s.ix, namespaceObject("shop"))
		for step := range 80 {
			if step == 0 || s.chance(4) {
				s.service = clusterIP("shop", "db", "sql 5432/tcp")
				if s.service.Headless = s.chance(60); !s.service.Headless {
					s.service.ClusterIPs = []netip.Addr{s.addr()}
				}
				s.service.PublishNotReady = s.chance(30)
				if s.chance(30) {
					s.service.External = &cluster.External{IPs: []netip.Addr{s.addr()}}
				}
				s.ix.Put(cluster.Services, s.service)
			}
			if s.chance(5) { // The namespace is hidden and exposed again.
				s.ix.Delete(cluster.Namespaces, cluster.Key{Name: "shop"})
				if err := s.ix.check(); err != nil {
					t.Fatalf("seed %d, after hiding the namespace: %v", seed, err)
				}
				s.ix.Put(cluster.Namespaces, namespaceObject("shop"))
			}
			// One slice changes, or several at once as in a list.
			c := &serviceChange{key: &ServiceKey{Labels: "\x02db\x04shop", Namespace: s.ix.ensureNamespace("shop")}, old: s.ix.services.Get([]byte("\x02db\x04shop"))}
			c.key = c.old.Key
			for range 1 + s.IntN(3)/2 {
				name := fmt.Sprintf("db-%d", s.IntN(6))
				sl := s.change(name)
				c.slices = append(c.slices, sliceChange{name, sl})
				if s.slices[name] = sl; sl == nil {
					delete(s.slices, name)
				}
			}
			changes := slices.Clone(c.slices)
			all, partChanges := s.ix.mergeSlices(c)
			spec := c.spec(s.ix)
			want := s.ix.rebuild(c.key, spec, all)
			got, diff := s.ix.newEntry(c, &spec, all, partChanges)
			switch {
			case got.String() != want.String():
				t.Fatalf("seed %d, step %d: %v\nbecomes\n%v\nwant\n%v", seed, step, c.old, got, want)
			case diff != nil:
				fromDifference++
			case c.old.Merged() == nil && want.Merged() == nil && c.old.exists && want.exists:
				t.Fatalf("seed %d, step %d: made from all slices: %v\nto\n%v", seed, step, c.old, want)
			default:
				fromAll++
			}
			s.ix.releaseBuffers()
			for _, f := range changes {
				if f.slice != nil {
					s.ix.Put(cluster.Slices, f.slice)
				} else {
					s.ix.Delete(cluster.Slices, cluster.Key{Namespace: "shop", Name: f.name})
				}
				if err := s.ix.check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			if got := s.ix.services.Get([]byte("\x02db\x04shop")); got.String() != want.String() {
				t.Fatalf("seed %d, step %d: one by one:\n%v\nwant\n%v", seed, step, got, want)
			}
		}
	}
	if !race.Enabled && (fromDifference < 500 || fromAll < 500) {
		t.Errorf("got %d entries from a difference and %d from all slices, want at least 500 of each", fromDifference, fromAll)
	}
	t.Logf("%d from a difference, %d from all slices", fromDifference, fromAll)
}

// Endpoints that swap their ports or hostnames change the serial.
func TestSerialAfterSwappedEndpoints(t *testing.T) {
	seen := map[uint32][]string{}
	for _, eps := range [][]string{
		{"db-0=10.0.0.1", "db-1=10.0.0.2", "db-2=10.0.0.3"}, {"db-1=10.0.0.1", "db-0=10.0.0.2", "db-2=10.0.0.3"},
		{"db-0=10.0.0.1", "db-2=10.0.0.2", "db-1=10.0.0.3"}, {"db-2=10.0.0.1", "db-1=10.0.0.2", "db-0=10.0.0.3"},
		{"10.0.0.1@a", "10.0.0.2@b"}, {"10.0.0.1@b", "10.0.0.2@a"}, {"b=10.0.0.1", "10.0.0.2@a"},
	} {
		ix := load(newTestIndex(), namespaceObject("shop"), headless("shop", "db"), slice("shop", "db-1", "db", "sql 1/tcp", eps...))
		serial := ix.serial.Load()
		if other := seen[serial]; other != nil {
			t.Errorf("endpoints %v and %v: both have serial %d, want different ones", other, eps, serial)
		}
		seen[serial] = eps
		slices.Reverse(eps)
		again := load(newTestIndex(), namespaceObject("shop"), headless("shop", "db"), slice("shop", "db-a", "db", "sql 1/tcp", eps[:1]...), slice("shop", "other", "db", "sql 1/tcp", eps[1:]...))
		if got := again.serial.Load(); got != serial {
			t.Errorf("endpoints %v in other slices: got serial %d, want %d", eps, got, serial)
		}
	}
}

// A headless Service and one without an address have different serials.
func TestSerialHeadlessAndClusterIP(t *testing.T) {
	of := func(s *cluster.Service) uint32 {
		return load(newTestIndex(), namespaceObject("shop"), s, slice("shop", "db-1", "db", "sql 1/tcp", "10.0.0.1")).serial.Load()
	}
	if serial := of(headless("shop", "db")); serial == of(clusterIP("shop", "db", "")) {
		t.Errorf("headless Service and Service without an address: both have serial %d, want different ones", serial)
	}
}
