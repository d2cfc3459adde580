package gateway

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
)

// plan sets up a directive with options, in a server block for example.test.
func plan(t testing.TB, options string) (*Handler, *config.Block) {
	t.Helper()
	text := "example.test:53 {\ngateway {\n" + options + "\n}\n}\n"
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "gateway", Setup: Setup})
	if err != nil {
		t.Fatal(err)
	}
	return config.Find[*Handler](b)[0], b
}

// A model answers by reading all objects for each name, by the rules of the Gateway API.
type model struct {
	*settings
	objects []cluster.Object
}

// matches reports whether a hostname of an object covers a name, and how specific it is: an exact one most,
// and a wildcard the more the longer it is.
func matches(hostname, name string, oneLabel bool) (specific int, ok bool) {
	suffix, wild := strings.CutPrefix(hostname, "*")
	switch {
	case !wild:
		return 1000, hostname == name
	case !strings.HasSuffix(name, suffix) || len(name) == len(suffix):
		return 0, false
	case oneLabel && strings.Contains(strings.TrimSuffix(name, suffix), "."):
		return 0, false
	}
	return len(suffix), true
}

// common returns the hostname that a listener and a route share, "" for none.
func common(listener, route string) string {
	l, lWild := strings.CutPrefix(listener, "*")
	r, rWild := strings.CutPrefix(route, "*")
	switch {
	case listener == "", listener == route:
		return route
	case route == "":
		return listener
	case lWild && rWild && strings.HasSuffix(r, l):
		return route
	case lWild && rWild && strings.HasSuffix(l, r):
		return listener
	case lWild && !rWild && strings.HasSuffix(route, l):
		return route
	case rWild && !lWild && strings.HasSuffix(listener, r):
		return listener
	}
	return ""
}

// A candidate is a hostname of an object for a name.
type candidate struct {
	specific      int
	created       int64
	namespace, id string
	kind          cluster.Kind
	addrs         []netip.Addr
}

// answer returns the addresses of a name, and whether it has an owner.
func (m *model) answer(name string) (addrs []netip.Addr, owned bool) {
	var all []candidate
	add := func(kind cluster.Kind, key cluster.Key, created int64, hostname string, oneLabel bool, addrs []netip.Addr) {
		zone := "example.test"
		if len(m.zoneOf(hostname)) > 0 {
			zone = m.zoneOf(hostname)
		}
		if !strings.HasSuffix("."+strings.TrimPrefix(hostname, "*."), ".example.test") || !m.allowed(zone, key.Namespace) {
			return
		}
		if specific, ok := matches(hostname, name, oneLabel); ok && (specific == 1000 || m.zoneOf(name) == zone || zone == "example.test" && m.zoneOf(name) == "") {
			all = append(all, candidate{specific, created, key.Namespace, key.Name, kind, addrs})
		}
	}

	for _, o := range m.objects {
		switch o := o.(type) {
		case *cluster.Gateway:
			for _, l := range o.Listeners {
				if o.Accepted && l.Host != "" {
					add(cluster.Gateways, o.Key(), o.Created, l.Host, false, m.addresses(o.Key(), o.Addresses))
				}
			}
		case *cluster.ListenerSet:
			if g := m.gatewayOf(o); g != nil {
				for _, l := range o.Listeners {
					if l.Host != "" {
						add(cluster.ListenerSets, o.Key(), o.Created, l.Host, false, m.addresses(g.Key(), g.Addresses))
					}
				}
			}
		case *cluster.Route:
			for _, p := range o.Parents {
				m.eachHost(o, p, func(hostname string, addrs []netip.Addr) { add(o.Kind, o.Key(), o.Created, hostname, false, addrs) })
			}
		case *cluster.Ingress:
			if addrs := m.addresses(cluster.Key{}, o.Addresses); len(addrs) > 0 {
				for _, h := range o.Hosts {
					add(cluster.Ingresses, o.Key(), o.Created, h, true, addrs)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, false
	}

	best := slices.MinFunc(all, func(a, b candidate) int {
		for _, d := range []int{b.specific - a.specific, int(a.created - b.created), strings.Compare(a.namespace, b.namespace),
			strings.Compare(a.id, b.id), int(a.kind) - int(b.kind)} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	for _, c := range all {
		if c.specific == best.specific && c.namespace == best.namespace && c.id == best.id && c.kind == best.kind {
			addrs = append(addrs, c.addrs...)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), true
}

// zoneOf returns the delegated zone of a namespace that a name is in, or "".
func (m *model) zoneOf(name string) string {
	for _, zone := range []string{"a.example.test", "b.example.test"} {
		if name == zone || strings.HasSuffix(name, "."+zone) {
			return zone
		}
	}
	return ""
}

func (m *model) allowed(zone, namespace string) bool {
	return zone == "example.test" || zone == namespace+".example.test"
}

// eachHost calls f with the hostnames that a Route has at the listeners of a parent.
func (m *model) eachHost(r *cluster.Route, p cluster.Parent, f func(hostname string, addrs []netip.Addr)) {
	for _, o := range m.objects {
		var g *cluster.Gateway
		var listeners []cluster.Listener
		switch o := o.(type) {
		case *cluster.Gateway:
			if !p.Set && o.Accepted {
				g, listeners = o, o.Listeners
			}
		case *cluster.ListenerSet:
			if p.Set {
				g, listeners = m.gatewayOf(o), o.Listeners
			}
		}
		if g == nil || o.Key() != p.Key {
			continue
		}
		for _, l := range listeners {
			if !m.allows(l.From, o.Key().Namespace, r.Namespace) || !l.Routes.Has(r.Kind) || p.Listener != "" && p.Listener != l.Name || p.Port != 0 && p.Port != l.Port {
				continue
			}
			hostnames := r.Hosts
			if len(hostnames) == 0 {
				hostnames = []string{""}
			}
			for _, h := range hostnames {
				if both := common(l.Host, h); both != "" {
					f(both, m.addresses(g.Key(), g.Addresses))
				}
			}
		}
	}
}

// gatewayOf returns the Gateway that has a ListenerSet, nil if none has.
func (m *model) gatewayOf(set *cluster.ListenerSet) *cluster.Gateway {
	for _, o := range m.objects {
		if g, ok := o.(*cluster.Gateway); ok && g.Key() == set.Gateway && g.Accepted && set.Accepted && m.allows(g.Sets, g.Namespace, set.Namespace) {
			return g
		}
	}
	return nil
}

func (m *model) allows(from cluster.From, own, other string) bool {
	return from.From == "All" || from.From == "Same" && other == own || from.From == "Selector" && m.isPublic(other)
}

func (m *model) isPublic(namespace string) bool {
	return slices.ContainsFunc(m.objects, func(o cluster.Object) bool {
		n, ok := o.(*cluster.Namespace)
		if !ok || n.Name != namespace {
			return false
		}
		value, _ := n.Labels.Get("public")
		return value == "yes"
	})
}

// addresses returns the addresses of a Gateway, or of a status.
func (m *model) addresses(gateway cluster.Key, status []string) (addrs []netip.Addr) {
	for _, o := range m.objects {
		if f, ok := o.(*cluster.Frontend); ok && f.Namespace == gateway.Namespace && f.Gateway == gateway.Name && f.Gateway != "" {
			return f.ClusterIPs
		}
	}
	for _, text := range status {
		for _, o := range m.objects {
			if f, ok := o.(*cluster.Frontend); ok && f.Balancer != nil && slices.Contains(f.Balancer.IPs, netip.MustParseAddr(text)) {
				addrs = append(addrs, f.ClusterIPs...)
			}
		}
	}
	if len(addrs) == 0 {
		for _, text := range status {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
	}
	return addrs
}

var (
	modelHosts = []string{"", "a.example.test", "*.a.example.test", "x.a.example.test", "*.x.a.example.test", "b.example.test",
		"*.b.example.test", "x.b.example.test", "*.example.test", "c.example.test", "*.c.example.test", "x.c.example.test",
		"example.test", "*.test", "example.org", "*.example.org"}
	modelNames = []string{"a.example.test", "x.a.example.test", "y.a.example.test", "y.x.a.example.test", "z.y.x.a.example.test",
		"b.example.test", "x.b.example.test", "y.x.b.example.test", "c.example.test", "x.c.example.test", "y.x.c.example.test",
		"d.example.test", "y.d.example.test", "example.test", "example.org", "x.example.org"}
)

// randomObject returns an object of a small world: at most one Service for each Gateway and load balancer.
func randomObject(r *rand.Rand) cluster.Object {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	hosts := func(most int) (some []string) {
		for range r.IntN(most + 1) {
			if h := pick(modelHosts[1:]...); !slices.Contains(some, h) {
				some = append(some, h)
			}
		}
		return some
	}
	from := func() cluster.From {
		return cluster.From{From: pick("All", "Same", "Selector", "None"), Selector: "public=yes"}
	}
	listeners := func() (some []cluster.Listener) {
		for i := range r.IntN(3) {
			some = append(some, cluster.Listener{
				Name: fmt.Sprint("l", i), Port: int32(80 + i), Host: pick(modelHosts...), From: from(),
				Routes: cluster.SetOf(cluster.HTTPRoutes + cluster.Kind(r.IntN(3))),
			})
		}
		return some
	}
	namespace, created := pick("a", "b", "c"), int64(r.IntN(4))
	switch r.IntN(9) {
	case 0:
		labels := map[string]string{}
		if r.IntN(2) == 0 {
			labels["public"] = "yes"
		}
		return &cluster.Namespace{Name: namespace, Labels: cluster.NewLabels(labels)}
	case 1:
		i := slices.Index([]string{"a", "b", "c"}, namespace)
		f := &cluster.Frontend{Service: cluster.Service{Namespace: namespace, Name: "lb"}, Balanced: true}
		f.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(10*i + 1 + r.IntN(2))})}
		f.Gateway = pick("", "one", "two")
		f.Balancer = &cluster.External{IPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}}
		return f
	case 2, 3:
		g := &cluster.Gateway{Namespace: namespace, Name: pick("one", "two"), Created: created, Accepted: r.IntN(8) > 0,
			Listeners: listeners(), Sets: from()}
		if r.IntN(3) > 0 {
			g.Addresses = []string{pick("192.0.2.0", "192.0.2.1", "192.0.2.2", "203.0.113.1", "2001:db8::1")}
		}
		return g
	case 4:
		in := &cluster.Ingress{Namespace: namespace, Name: pick("x", "y"), Created: created, Hosts: hosts(3)}
		if r.IntN(4) > 0 {
			in.Addresses = []string{pick("192.0.2.0", "192.0.2.1", "203.0.113.2")}
		}
		return in
	case 5:
		return &cluster.ListenerSet{Namespace: namespace, Name: pick("one", "two"), Created: created, Accepted: r.IntN(8) > 0,
			Gateway: cluster.Key{Namespace: pick("a", "b", "c"), Name: pick("one", "two")}, Listeners: listeners()}
	default:
		route := &cluster.Route{Kind: cluster.HTTPRoutes + cluster.Kind(r.IntN(3)), Namespace: namespace, Name: pick("x", "y"), Created: created, Hosts: hosts(3)}
		for range r.IntN(3) {
			route.Parents = append(route.Parents, cluster.Parent{
				Key: cluster.Key{Namespace: pick("a", "b", "c"), Name: pick("one", "two")}, Set: r.IntN(3) == 0, Listener: pick("", "", "l0", "l1"), Port: []int32{0, 0, 80, 81}[r.IntN(4)],
			})
		}
		return route
	}
}

func kindOf(o cluster.Object) cluster.Kind {
	switch o := o.(type) {
	case *cluster.Namespace:
		return cluster.Namespaces
	case *cluster.Frontend:
		return cluster.Services
	case *cluster.Gateway:
		return cluster.Gateways
	case *cluster.ListenerSet:
		return cluster.ListenerSets
	case *cluster.Route:
		return o.Kind
	}
	return cluster.Ingresses
}

// lookup returns the answer for a name, nil if it is no host.
func (x *source) lookup(t testing.TB, name string) *answer {
	t.Helper()
	q := dns.NewQuery(nil)
	q.Reset(chaintest.Pack(t, chaintest.Query(name, "A")), dns.UDP, time.Time{})
	if q.Parse(q.Packet()) != 0 {
		t.Fatalf("%s: not a query", name)
	}
	length := x.rules.ZoneOf(q.Name())
	if length == 0 {
		return nil
	}
	return x.table.find(q, length)
}

// After any changes in any order the answers are those of a model that reads all objects for each name.
func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	h, b := plan(t, "delegate a a.example.test\ndelegate b b.example.test\ndelegate * example.test")
	for seed := range uint64(race.Fewer(3000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := h.newSource(b)
		now := map[string]cluster.Object{}
		for _, kind := range h.api.Kinds() {
			x.Listed(kind, func(cluster.Key) bool { return true })
		}
		for range 1 + r.IntN(40) {
			o := randomObject(r)
			id := fmt.Sprint(kindOf(o), o.Key())
			if r.IntN(5) == 0 {
				x.Delete(kindOf(o), o.Key())
				delete(now, id)
			} else {
				x.Put(kindOf(o), o)
				now[id] = o
			}
			if r.IntN(4) == 0 {
				x.publishNow()
			}
		}
		x.publishNow()

		m := &model{settings: h.settings}
		for _, o := range now {
			m.objects = append(m.objects, o)
		}
		for _, name := range modelNames {
			want, owned := m.answer(name)
			var got []netip.Addr
			a := x.lookup(t, name)
			if a != nil {
				got = a.addrs()
				slices.SortFunc(got, netip.Addr.Compare)
			}
			if !slices.Equal(got, want) || owned != (a != nil) {
				t.Fatalf("seed %d: %s: got %v (%v), want %v (%v); objects:\n%s", seed, name, got, a, want, owned, objectsText(m.objects))
			}
		}
	}
}

func objectsText(all []cluster.Object) string {
	var texts []string
	for _, o := range all {
		texts = append(texts, fmt.Sprintf("%s %+v", kindOf(o), o))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}
