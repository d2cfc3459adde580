package shadow

import (
	"bytes"
	"container/list"
	"net/netip"
	"slices"
	"time"
)

// Limits of the IP packets that are put together of fragments.
const (
	maxAssemblies    = 1024
	maxAssemblyBytes = 16 << 20 // of all
	maxFragments     = 64       // of a packet
	maxPayload       = 1<<16 - 1
	// fragmentTimeout is a time of the capture: Linux waits as long.
	fragmentTimeout = 30 * time.Second
)

type assemblyKey struct {
	source, destination netip.Addr
	protocol            byte // of IPv4; IPv6 fragments are identified without
	id                  uint32
}

// An assembly is an IP packet of which fragments have been captured.
type assembly struct {
	key      assemblyKey
	begun    time.Time
	parts    []part // by offset, without overlaps
	bytes    int    // of the parts
	size     int    // of the payload; -1 until the last fragment is known
	protocol byte   // of the payload, from the first fragment
}

type part struct {
	offset int
	data   []byte
}

func (p *part) end() int { return p.offset + len(p.data) }

// fragments puts IP packets together. Packets whose fragments overlap are dropped (RFC 5722):
// the copies of a fragment are not such.
type fragments struct {
	byKey  map[assemblyKey]*list.Element
	order  *list.List // of *assembly, the oldest first
	bytes  int
	newest time.Time

	counts *Counts
}

func newFragments(counts *Counts) *fragments {
	return &fragments{byKey: map[assemblyKey]*list.Element{}, order: list.New(), counts: counts}
}

// add adds a fragment that was captured at a time. It returns true, and sets the payload and
// the protocol of p to those of the whole packet, if that is complete.
func (f *fragments) add(at time.Time, p *ipPacket) bool {
	if p.offset == 0 && !p.more {
		return true // an atomic fragment (RFC 6946)
	}
	if at.After(f.newest) {
		f.newest = at
	}
	for e := f.order.Front(); e != nil; e = f.order.Front() {
		if f.newest.Sub(e.Value.(*assembly).begun) <= fragmentTimeout {
			break
		}
		f.drop(e)
	}

	key := assemblyKey{p.source, p.destination, p.protocol, p.id}
	if p.source.Is6() {
		key.protocol = 0
	}
	e := f.byKey[key]
	if e == nil {
		e = f.order.PushBack(&assembly{key: key, begun: at, size: -1})
		f.byKey[key] = e
	}

	a := e.Value.(*assembly)
	added := a.add(p)
	f.bytes += added
	switch {
	case added < 0: // it does not fit
		f.counts.Skipped[SkippedFragment]++
		f.bytes -= added
		f.drop(e)
		return false
	case a.complete():
		p.payload, p.protocol = a.payload(), a.protocol
		f.remove(e)
		return true
	}

	for f.order.Len() > maxAssemblies || f.bytes > maxAssemblyBytes {
		f.drop(f.order.Front())
	}
	return false
}

// drop removes a packet that is not complete, and counts its fragments.
func (f *fragments) drop(e *list.Element) {
	f.counts.Skipped[SkippedFragment] += len(e.Value.(*assembly).parts)
	f.remove(e)
}

func (f *fragments) remove(e *list.Element) {
	a := f.order.Remove(e).(*assembly)
	f.bytes -= a.bytes
	delete(f.byKey, a.key)
}

// close drops the packets that are not complete.
func (f *fragments) close() {
	for e := f.order.Front(); e != nil; e = f.order.Front() {
		f.drop(e)
	}
}

// add adds a fragment, and returns its size: zero for a copy, -1 if it does not fit.
func (a *assembly) add(p *ipPacket) int {
	own := part{p.offset, p.payload}
	i, found := slices.BinarySearchFunc(a.parts, own.offset, func(other part, offset int) int {
		return other.offset - offset
	})
	switch {
	case found && bytes.Equal(a.parts[i].data, own.data):
		return 0
	case found, i > 0 && a.parts[i-1].end() > own.offset, i < len(a.parts) && own.end() > a.parts[i].offset:
		return -1 // an overlap
	case len(own.data) == 0, own.end() > maxPayload, p.more && len(own.data)%8 != 0:
		return -1
	case len(a.parts) == maxFragments:
		return -1
	case !p.more && (a.size >= 0 || i < len(a.parts)), p.more && a.size >= 0 && own.end() > a.size:
		return -1 // behind the last one
	}

	if !p.more {
		a.size = own.end()
	}
	if own.offset == 0 {
		a.protocol = p.protocol
	}

	own.data = bytes.Clone(own.data)
	a.parts = slices.Insert(a.parts, i, own)
	a.bytes += len(own.data)
	return len(own.data)
}

// complete reports whether no fragment is missing: they do not overlap.
func (a *assembly) complete() bool { return a.size >= 0 && a.bytes == a.size }

func (a *assembly) payload() []byte {
	payload := make([]byte, 0, a.size)
	for _, p := range a.parts {
		payload = append(payload, p.data...)
	}
	return payload
}
