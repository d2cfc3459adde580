package index

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/race"
)

// After events and lists, complete and interrupted, an index equals a new one of the same
// objects: all entries, the serials, and both reverse indexes.
func TestChangedIndexEqualsNewIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for seed := range race.Fewer(uint64(400)) {
		c := newObjectChurn(seed)
		ix := New(c.set, churnKinds(), discardLog())
		for step := range 40 {
			c.step(ix)
			if c.IntN(3) > 0 {
				continue
			}
			fresh := c.newIndex()
			ix.applyReverse() // changes that wait during a first list
			for i, want := range indexState(fresh) {
				if got := indexState(ix)[i]; !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: got\n%v\nwant\n%v", seed, step, got, want)
				}
			}
		}
	}
}

func churnKinds() []cluster.Kind {
	return []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Imports, cluster.ImportSlices}
}

// indexState returns the whole state of an index that readers see.
func indexState(ix *Index) [4][]string {
	var entries []string
	for _, imported := range []bool{false, true} {
		for key, e := range ix.table(imported).All() {
			entries = append(entries, fmt.Sprintf("%v %q %v, exposed %v, outside %v", imported, key, e, e.Key.Namespace.exposed.Load(), e.k8sExternal))
		}
	}
	slices.Sort(entries)
	entries = append(entries, fmt.Sprint(ix.serial.Load(), ix.importSerial.Load(), ix.namespaces.Len(), len(ix.sliceOwners[cluster.Slices]), len(ix.sliceOwners[cluster.ImportSlices])))
	texts := func(a *ReverseIndex) (all []string) {
		for _, p := range referenceLines(a) {
			all = append(all, fmt.Sprint(p))
		}
		return all
	}
	return [4][]string{entries, texts(&ix.reverse), texts(&ix.claims), texts(&ix.externalReverse)}
}

// An objectChurn is a cluster and its random changes.
type objectChurn struct {
	*rand.Rand
	set  Settings
	pool int // the number of addresses
	have [cluster.Kinds]map[cluster.Key]cluster.Object
}

// newObjectChurn returns a cluster without objects.
func newObjectChurn(seed uint64) *objectChurn {
	r := rand.New(rand.NewPCG(seed, 5))
	c := &objectChurn{Rand: r, pool: []int{6, 60, 4000}[r.IntN(3)], set: Settings{TTL: 5, IgnoreEmpty: r.IntN(3) == 0}}
	if r.IntN(2) == 0 {
		c.set.External = ExternalSettings{Enabled: true, Headless: r.IntN(2) == 0, TTL: 7}
	}
	for k := range c.have {
		c.have[k] = map[cluster.Key]cluster.Object{}
	}
	return c
}

// step applies one random change to one kind.
func (c *objectChurn) step(ix *Index) {
	k := churnKinds()[c.IntN(len(churnKinds()))]
	switch c.IntN(8) {
	case 0, 1:
		c.list(ix, k)
	case 2, 3:
		for key := range c.have[k] {
			ix.Delete(k, key)
			delete(c.have[k], key)
			break
		}
	default:
		ix.Put(k, c.changeObjects(k, 1+c.IntN(3))...)
	}
}

// changeObjects creates or changes n objects, some of them possibly twice.
func (c *objectChurn) changeObjects(k cluster.Kind, n int) (batch []cluster.Object) {
	for range n {
		o := c.object(k)
		c.have[k][o.Key()] = o
		batch = append(batch, o)
	}
	return batch
}

// list delivers a list in groups, which lacks half of the objects. Some lists
// break off before their end.
func (c *objectChurn) list(ix *Index, k cluster.Kind) {
	keep := map[cluster.Key]bool{}
	for range 1 + c.IntN(3) {
		batch := c.changeObjects(k, c.IntN(4))
		for _, o := range batch {
			keep[o.Key()] = true
		}
		ix.Put(k, batch...)
	}
	if c.IntN(3) == 0 {
		return
	}
	for key := range c.have[k] {
		if !keep[key] && c.IntN(2) == 0 {
			delete(c.have[k], key)
		} else {
			keep[key] = true
		}
	}
	ix.Listed(k, func(key cluster.Key) bool { return keep[key] })
}

// newIndex returns a new index of the present objects.
func (c *objectChurn) newIndex() *Index {
	ix, kinds := New(c.set, churnKinds(), discardLog()), churnKinds()
	for _, i := range c.Perm(len(kinds)) {
		k := kinds[i]
		var all []cluster.Object
		for _, o := range c.have[k] {
			all = append(all, o)
		}
		ix.Put(k, all...)
		ix.Listed(k, func(key cluster.Key) bool { return c.have[k][key] != nil })
	}
	return ix
}

func (c *objectChurn) addr() netip.Addr {
	n := c.IntN(c.pool)
	if c.IntN(4) == 0 {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%x", n+1))
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
}

func (c *objectChurn) pick(of ...string) string { return of[c.IntN(len(of))] }

func (c *objectChurn) ports() []cluster.Port {
	return ports(c.pick("", "a 80/tcp", "a 81/tcp, b 82/udp", "b 82/udp, a 81/tcp"))
}

func (c *objectChurn) object(k cluster.Kind) cluster.Object {
	switch k {
	case cluster.Namespaces:
		return namespaceObject(c.pick("n0", "n1"))
	case cluster.Services, cluster.Imports:
		return c.service(k == cluster.Services)
	}
	return c.slice(k == cluster.ImportSlices)
}

func (c *objectChurn) service(own bool) *cluster.Service {
	s := &cluster.Service{Namespace: c.pick("n0", "n1"), Name: c.pick("a", "b", "a-b")}
	if own && c.IntN(8) == 0 {
		s.ExternalName = c.pick("x.y", "10.0.0.1")
		return s
	}
	s.Ports, s.PublishNotReady, s.Selector = c.ports(), c.IntN(3) == 0, c.IntN(2) == 0
	if s.Headless = c.IntN(2) == 0; !s.Headless {
		for range c.IntN(3) {
			s.ClusterIPs = append(s.ClusterIPs, c.addr())
		}
	}
	switch {
	case !own || !c.set.External.Enabled || c.IntN(2) == 0:
	case c.IntN(3) == 0:
		s.External = &cluster.External{Hosts: []string{"h.x"}}
	default:
		s.External = &cluster.External{IPs: []netip.Addr{c.addr()}}
	}
	return s
}

// slice makes a slice whose name may be that of another Service's, with endpoints
// that may share addresses and hostnames.
func (c *objectChurn) slice(imported bool) *cluster.Slice {
	s := &cluster.Slice{
		Namespace: c.pick("n0", "n1"), Name: c.pick("a-1", "a-2", "b-1", "a-b-1", "odd", "odd-2"), Service: c.pick("a", "b", "a-b"), Ports: c.ports()}
	if imported {
		s.Cluster = c.pick("east", "west", "e.w", "bad..id")
	}
	var buf []byte
	if !imported && c.IntN(4) == 0 {
		for range c.IntN(3) {
			buf = cluster.AppendName(buf, c.pick("x.y", "x.y", "z.y"), cluster.Endpoint{Ready: c.IntN(4) > 0, Hostname: c.pick("", "h0")})
		}
		s.Endpoints = cluster.Endpoints(buf)
		return s
	}
	for range c.IntN(5) + c.IntN(2)*c.IntN(30) {
		e := cluster.Endpoint{Addr: c.addr(), Ready: c.IntN(4) > 0, Target: c.IntN(2) == 0}
		if c.IntN(3) == 0 {
			e.Hostname = c.pick("h0", "h1", "10-0-0-1", fmt.Sprint("p", c.IntN(c.pool)))
		}
		if c.IntN(5) == 0 {
			e.Zone = "z"
		}
		buf = cluster.AppendEndpoint(buf, e)
	}
	s.Endpoints = cluster.Endpoints(buf)
	return s
}
