package index

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"sort"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/ordered"
)

// An addrRef is a Service and an address that it has: a ClusterIP, or the address
// of one of its endpoints.
type addrRef struct {
	addr    netip.Addr
	service *ServiceKey
}

func (r addrRef) compare(o addrRef) int {
	if c := r.addr.Compare(o.addr); c != 0 {
		return c
	}
	return r.service.Compare(o.service)
}

// appendKey appends the key by which the reverse index is ordered.
func (r *addrRef) appendKey(buf []byte) []byte {
	return r.service.appendOrder(appendAddr(buf, r.addr))
}

// Compare orders Services by namespace and name.
func (k *ServiceKey) Compare(o *ServiceKey) int {
	return cmp.Or(cmp.Compare(k.NamespaceLabel(), o.NamespaceLabel()), cmp.Compare(k.Labels, o.Labels))
}

// appendOrder appends a key that orders Services like compare.
func (k *ServiceKey) appendOrder(buf []byte) []byte {
	namespace := k.NamespaceLabel()
	return append(append(buf, namespace...), k.Labels[:len(k.Labels)-len(namespace)]...)
}

// A ReverseIndex finds the Services that have an address. It has one writer;
// readers take no lock. Because it is ordered, it also finds whether a reverse
// name has other names below it.
type ReverseIndex struct {
	ipv4, ipv6 ordered.Index[addrLeaf, *addrLeaf]
}

// family returns the index of the addresses with this many bytes.
func (r *ReverseIndex) family(width int) *ordered.Index[addrLeaf, *addrLeaf] {
	if width == 4 {
		return &r.ipv4
	}
	return &r.ipv6
}

// An addrLeaf holds consecutive references of one address family: their addresses
// in one piece, and the Services that have them.
type addrLeaf struct {
	addrs    []byte
	services []*ServiceKey
}

// apply adds references and removes others. Readers see the additions before the
// removals, so a reverse name above both never disappears. Adding an existing
// reference and removing a missing one have no effect.
func (r *ReverseIndex) apply(add, remove []addrRef) {
	for i, refs := range [2][]addrRef{add, remove} {
		if len(refs) == 0 {
			continue
		}
		slices.SortFunc(refs, addrRef.compare)
		refs = slices.Compact(refs)

		// netip orders IPv4 before IPv6.
		n := sort.Search(len(refs), func(i int) bool { return refs[i].addr.Is6() })
		var scratch addrLeaf
		merge := func(l *addrLeaf, refs []addrRef) ([]*addrLeaf, bool) { return l.merge(refs, i == 0, &scratch) }
		ordered.Apply(&r.ipv4, refs[:n], appendRefKey, merge)
		ordered.Apply(&r.ipv6, refs[n:], appendRefKey, merge)
	}
}

func appendRefKey(buf []byte, r *addrRef) []byte { return r.appendKey(buf) }

// merge adds references, or removes them. A result that has to be split is built in scratch,
// whose memory is reused.
func (l *addrLeaf) merge(refs []addrRef, add bool, scratch *addrLeaf) (leaves []*addrLeaf, changed bool) {
	if l == nil {
		l = new(addrLeaf)
	}

	width := refs[0].addr.BitLen() / 8
	size := len(l.services) + len(refs)
	out := scratch
	if size <= ordered.MaxItems {
		out = &addrLeaf{make([]byte, 0, size*width), make([]*ServiceKey, 0, size)}
	} else {
		scratch.addrs = slices.Grow(scratch.addrs[:0], size*width)
		scratch.services = slices.Grow(scratch.services[:0], size)
	}

	// All are in the same order: what lies between two changes is copied in one piece.
	i := 0 // references of l that have been copied
	for _, r := range refs {
		var room [16]byte
		addr := appendAddr(room[:0], r.addr)
		j, found := l.find(r.service, addr)
		out.appendFrom(l, i, j)

		if i = j; found && !add {
			i++
		} else if !found && add {
			out.addrs, out.services = append(out.addrs, addr...), append(out.services, r.service)
		}
		changed = changed || found != add
	}
	out.appendFrom(l, i, len(l.services))

	if out != scratch && len(out.services) > 0 {
		return []*addrLeaf{out}, changed
	}
	return out.split(width), changed
}

// split returns leaves of a good size with copies of the references of l.
func (l *addrLeaf) split(width int) (leaves []*addrLeaf) {
	n := len(l.services)
	size := ordered.LeafItems(n)
	for i := 0; i < n; i += size {
		j := min(n, i+size)
		leaves = append(leaves, &addrLeaf{slices.Clone(l.addrs[i*width : j*width]), slices.Clone(l.services[i:j])})
	}
	return leaves
}

// Size implements ordered.Leaf.
func (l *addrLeaf) Size() (items, bytes int) { return len(l.services), len(l.addrs) }

// AppendFirst implements ordered.Leaf.
func (l *addrLeaf) AppendFirst(buf []byte) []byte {
	return l.services[0].appendOrder(append(buf, l.addr(0)...))
}

// Join implements ordered.Leaf.
func (l *addrLeaf) Join(next *addrLeaf) *addrLeaf {
	return &addrLeaf{slices.Concat(l.addrs, next.addrs), slices.Concat(l.services, next.services)}
}

// addr returns the address of reference i.
func (l *addrLeaf) addr(i int) []byte {
	width := len(l.addrs) / len(l.services)
	return l.addrs[i*width:][:width]
}

// find returns how many references sort before the service's reference to addr, and
// reports whether this reference exists.
func (l *addrLeaf) find(service *ServiceKey, addr []byte) (int, bool) {
	i := search(l.addrs, addr)
	for ; i < len(l.services) && bytes.Equal(l.addr(i), addr); i++ {
		if order := l.services[i].Compare(service); order >= 0 {
			return i, order == 0
		}
	}
	return i, false
}

// appendFrom appends references i to j of o.
func (l *addrLeaf) appendFrom(o *addrLeaf, i, j int) {
	if i < j {
		width := len(o.addrs) / len(o.services)
		l.addrs = append(l.addrs, o.addrs[i*width:j*width]...)
		l.services = append(l.services, o.services[i:j]...)
	}
}

// search returns the number of addresses before low. All have low's size.
func search(addrs, low []byte) int {
	from, to := 0, len(addrs)/len(low)
	if len(low) == 4 { // nearly all are IPv4
		for key := binary.BigEndian.Uint32(low); from < to; {
			if i := (from + to) / 2; binary.BigEndian.Uint32(addrs[4*i:]) < key {
				from = i + 1
			} else {
				to = i
			}
		}
		return from
	}

	return sort.Search(to, func(i int) bool { return bytes.Compare(addrs[i*len(low):][:len(low)], low) >= 0 })
}

func appendAddr(buf []byte, ip netip.Addr) []byte {
	if ip.Is4() {
		b := ip.As4()
		return append(buf, b[:]...)
	}
	b := ip.As16()
	return append(buf, b[:]...)
}

// An AddrCursor moves over the references to the addresses in a prefix, in order. It is
// a value, so that a query allocates nothing.
type AddrCursor struct {
	leaves  ordered.Cursor[addrLeaf, *addrLeaf]
	next    int         // index of the next reference in the leaf
	Service *ServiceKey // of the reference at the cursor
	width   int         // bytes of an address
	high    [16]byte    // the last address, in the first width bytes
}

// Within returns a cursor over a prefix whose length is a multiple of four bits.
func (r *ReverseIndex) Within(p netip.Prefix) (c AddrCursor) {
	low := appendAddr(c.high[:0], p.Addr())
	c.width = len(low)
	c.leaves = r.family(c.width).Seek(low)
	if c.leaves.Leaf != nil {
		c.next = search(c.leaves.Leaf.addrs, low)
	}

	for bit := p.Bits(); bit < 8*c.width; bit += 4 {
		c.high[bit/8] |= 0xf0 >> (bit % 8)
	}
	return c
}

// Advance moves to the next reference and reports whether there is one.
func (c *AddrCursor) Advance() bool {
	for leaf := c.leaves.Leaf; leaf != nil; leaf = c.leaves.Leaf {
		if c.next < len(leaf.services) {
			c.Service = leaf.services[c.next]
			addr := leaf.addrs[c.next*c.width:][:c.width]
			c.next++
			return bytes.Compare(addr, c.high[:c.width]) <= 0
		}
		c.leaves.Next()
		c.next = 0
	}
	return false
}

// SkipNamespace moves over the references of the Service's namespace to the address;
// Advance then moves to the reference after them, and Service stays the same until then. x is the
// index of the cursor.
func (c *AddrCursor) SkipNamespace(x *ReverseIndex) {
	addr, namespace := c.leaves.Leaf.addr(c.next-1), c.Service.NamespaceLabel()
	if c.skip(addr, namespace); c.next < len(c.leaves.Leaf.services) {
		return
	}

	// The rest of the leaf was skipped. No label begins with the byte 0xff.
	var room [16 + wire.MaxLabel + 2]byte
	after := append(append(append(room[:0], addr...), namespace...), 0xff)
	c.leaves = x.family(c.width).Seek(after)
	if c.next = 0; c.leaves.Leaf != nil {
		c.skip(addr, namespace)
	}
}

// skip moves over the leaf's references up to and including a namespace's references
// to an address.
func (c *AddrCursor) skip(addr []byte, namespace string) {
	leaf := c.leaves.Leaf
	c.next += sort.Search(len(leaf.services)-c.next, func(i int) bool {
		order := bytes.Compare(leaf.addr(c.next+i), addr)
		return order > 0 || order == 0 && leaf.services[c.next+i].NamespaceLabel() > namespace
	})
}

// Addr returns the address of the reference at the cursor.
func (c *AddrCursor) Addr() netip.Addr {
	ip, _ := netip.AddrFromSlice(c.leaves.Leaf.addr(c.next - 1))
	return ip
}

// A RefCursor moves over the references of leaves of a reverse index, in order.
type RefCursor struct {
	leaves []*addrLeaf
	i      int // of the next reference in the first leaf
}

// Addr returns the address of the next reference; it is invalid at the end.
func (c *RefCursor) Addr() (ip netip.Addr) {
	for len(c.leaves) > 0 && c.i == len(c.leaves[0].services) {
		c.leaves, c.i = c.leaves[1:], 0
	}
	if len(c.leaves) > 0 {
		ip, _ = netip.AddrFromSlice(c.leaves[0].addr(c.i))
	}
	return ip
}

// AppendAt appends the Services that refer to an address, which must not be after the next
// reference.
func (c *RefCursor) AppendAt(ip netip.Addr, to []*ServiceKey) []*ServiceKey {
	for c.Addr() == ip {
		to = append(to, c.leaves[0].services[c.i])
		c.i++
	}
	return to
}

// NewRefCursor returns a cursor over the references to addresses of the prefix's family.
func (r *ReverseIndex) NewRefCursor(prefix netip.Prefix) *RefCursor {
	return &RefCursor{leaves: r.family(prefix.Addr().BitLen() / 8).Leaves()}
}

// A reverseChange has the references to add to a reverse index, and to remove from it.
type reverseChange struct{ add, remove []addrRef }

// applyChange applies a change and empties it.
func (r *ReverseIndex) applyChange(c *reverseChange) {
	r.apply(c.add, c.remove)
	c.add, c.remove = c.add[:0], c.remove[:0]
	if cap(c.add)+cap(c.remove) > 1<<8 {
		*c = reverseChange{}
	}
}

// deferrable reports whether the change can be applied later, together with
// others, while the first list arrives and no reverse name is answered yet. A
// small change would copy many leaves for few references. Removals cannot wait:
// the reference might be added again.
func (c *reverseChange) deferrable(pairs int) bool {
	return len(c.remove) == 0 && len(c.add) < max(1<<12, pairs/2)
}

// addDifference notes how the addresses that a Service has differ from those that it had.
func (c *reverseChange) addDifference(service *ServiceKey, had, has iter.Seq[netip.Addr]) {
	old := sortedAddrs(had)
	if len(old) == 0 { // as in most of a list
		for ip := range has {
			c.add = append(c.add, addrRef{ip, service})
		}
		return
	}

	now := sortedAddrs(has)
	c.add = appendOnlyIn(now, old, c.add, service)
	c.remove = appendOnlyIn(old, now, c.remove, service)
}

// sortedAddrs returns each address once.
func sortedAddrs(ips iter.Seq[netip.Addr]) []netip.Addr {
	return slices.Compact(slices.SortedFunc(ips, netip.Addr.Compare))
}

// appendOnlyIn appends references of the addresses that are in some and not in others. Both are
// sorted.
func appendOnlyIn(some, others []netip.Addr, to []addrRef, service *ServiceKey) []addrRef {
	for _, ip := range some {
		if _, found := slices.BinarySearchFunc(others, ip, netip.Addr.Compare); !found {
			to = append(to, addrRef{ip, service})
		}
	}
	return to
}

// addEndpoints notes how the addresses of endpoints, with or without a Target, differ.
func (c *reverseChange) addEndpoints(
	service *ServiceKey, diff *endpointDiff, spec *Spec, seen *set[netip.Addr], target bool,
) {
	c.add = spec.addOnlyIn(diff.added, diff.removed, c.add, service, seen, target)
	c.remove = spec.addOnlyIn(diff.removed, diff.added, c.remove, service, seen, target)
}

// addOnlyIn appends references of the addresses that are served in some and not in
// others.
func (s *Spec) addOnlyIn(
	some, others []endpointRef, to []addrRef, service *ServiceKey, seen *set[netip.Addr], target bool,
) []addrRef {
	seen.reset(len(others))
	for i := range others {
		if ep := &others[i].ep; ep.Target == target && s.IsServed(ep) {
			seen.add(ep.Addr)
		}
	}

	for i := range some {
		if ep := &some[i].ep; ep.Target == target && s.IsServed(ep) && !seen.has(ep.Addr) {
			to = append(to, addrRef{ep.Addr, service})
		}
	}
	return to
}
