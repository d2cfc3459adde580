package index

import (
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
)

// bucketSize is how many endpoints a bucket has on average.
const bucketSize = 32

// buckets are a hash table of the endpoints that are served. An endpoint is in the bucket of
// its address and, if it has one, in that of its hostname. The table of a changed entry shares
// the buckets without changes with the old one: an event replaces a few.
type buckets struct {
	shared []*[]Part // their number is a power of two; nil if there is no table
	seed   maphash.Seed
	size   int // number of endpoints
}

func newBuckets(e *Entry) buckets {
	b := buckets{seed: maphash.MakeSeed()}
	for i := range e.Parts {
		b.size += int(e.Parts[i].Served)
	}

	groups := make([]partGroups, bucketCount(b.size))
	b.shared = make([]*[]Part, len(groups))
	for ports, ep := range e.Served() {
		b.each(ep, func(i int) { groups[i].add(ports, *ep) })
	}
	for i := range groups {
		parts := groups[i].parts()
		b.shared[i] = &parts
	}
	return b
}

func bucketCount(endpoints int) int {
	n := 1
	for n*bucketSize < endpoints {
		n *= 2
	}
	return n
}

// find returns the bucket of the selected label.
func (b *buckets) find(sel *Selection) []Part {
	if sel.Addr.IsValid() {
		return *b.shared[b.ofAddr(sel.Addr)]
	}
	return *b.shared[b.bucket(maphash.Bytes(b.seed, sel.Label))]
}

func (b *buckets) ofAddr(ip netip.Addr) int {
	key := ip.As16()
	return b.bucket(maphash.Bytes(b.seed, key[:]))
}

func (b *buckets) bucket(hash uint64) int { return int(hash & uint64(len(b.shared)-1)) }

// each calls f with each bucket of an endpoint.
func (b *buckets) each(ep *cluster.Endpoint, f func(i int)) {
	byAddr := b.ofAddr(ep.Addr)
	f(byAddr)
	if ep.Hostname == "" {
		return
	}
	if byHostname := b.bucket(maphash.String(b.seed, ep.Hostname)); byHostname != byAddr {
		f(byHostname)
	}
}

// A bucketChange has the changes of an event in one bucket.
type bucketChange struct {
	removed []netip.Addr // unique in the entry
	added   []*endpointRef
}

// changed returns the buckets of e, which differs by diff from the entry of b. It returns false
// if there should be more buckets, or fewer.
func (b *buckets) changed(e *Entry, diff *endpointDiff) (next buckets, ok bool) {
	next = buckets{shared: slices.Clone(b.shared), seed: b.seed, size: b.size}
	changes := map[int]*bucketChange{}
	at := func(i int) *bucketChange {
		if changes[i] == nil {
			changes[i] = new(bucketChange)
		}
		return changes[i]
	}

	for i := range diff.removed {
		if ep := &diff.removed[i].ep; e.IsServed(ep) {
			b.each(ep, func(i int) {
				c := at(i)
				c.removed = append(c.removed, ep.Addr)
			})
			next.size--
		}
	}
	for i := range diff.added {
		if ref := &diff.added[i]; e.IsServed(&ref.ep) {
			b.each(&ref.ep, func(i int) {
				c := at(i)
				c.added = append(c.added, ref)
			})
			next.size++
		}
	}

	// A Service that grows and shrinks by a few endpoints keeps its buckets.
	if n := bucketCount(next.size); n > 2*len(b.shared) || 2*n < len(b.shared) {
		return buckets{}, false
	}
	for i, c := range changes {
		parts := c.apply(*b.shared[i])
		next.shared[i] = &parts
	}
	return next, true
}

// apply returns the bucket after the change.
func (c *bucketChange) apply(bucket []Part) []Part {
	groups := make(partGroups, 0, len(bucket)+len(c.added))
	for i := range bucket {
		p := &bucket[i]
		groups = append(groups, partGroup{ports: p.Ports, endpoints: make([]byte, 0, len(p.data)+32)})
		for ep := range p.Endpoints().All() {
			if !slices.Contains(c.removed, ep.Addr) {
				groups.add(p.Ports, ep)
			}
		}
	}
	for _, r := range c.added {
		groups.add(r.ports, r.ep)
	}
	return groups.parts()
}
