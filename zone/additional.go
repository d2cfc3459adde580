package zone

import (
	"slices"
	"sync/atomic"

	"github.com/seamark/seamark/wire"
)

// additionals caches additional sections of one version of a zone, so that the targets of an
// RRset are looked up once. It is filled in the order of the queries up to a limit, and nothing
// is evicted: once it is full, queries do not write to shared memory.
type additionals struct {
	room  atomic.Int64 // bytes that may be added
	slots atomic.Pointer[[]atomic.Pointer[additional]]
	size  int // of slots, a power of two
}

const (
	// minAdditionals is the bound in bytes for a small zone. A large one may use a part of its
	// own size, 1/additionalsPart.
	minAdditionals  = 4 << 10
	additionalsPart = 128
	// maxAdditional is the size of the largest additional section that is kept.
	maxAdditional = 8 << 10
	// additionalSize is the memory of an additional beside its records and owners, with its
	// share of the slots.
	additionalSize = 128
	// additionalProbes is the number of slots that an additional may be in.
	additionalProbes = 4
)

// An additionalKey is the RRset of an answer.
type additionalKey struct {
	node *node
	t    wire.Type
	do   bool
}

// An additional is the additional section for an RRset.
type additional struct {
	additionalKey
	records []byte // with names written out
	count   int
	owners  []span // names in records
}

type span struct{ start, end uint16 }

// newAdditionals returns the additionals of a zone with so many bytes.
func newAdditionals(memory int) *additionals {
	room := max(minAdditionals, memory/additionalsPart)
	s := &additionals{size: 8}
	for s.size*additionalSize*2 < room {
		s.size *= 2
	}
	s.room.Store(int64(room))
	return s
}

// slot returns one of the slots of a key.
func (k additionalKey) slot(slots []atomic.Pointer[additional], i uint32) *atomic.Pointer[additional] {
	h := k.node.hash + uint32(k.t)*31 + i
	if k.do {
		h += additionalProbes
	}
	return &slots[h&uint32(len(slots)-1)]
}

// get returns the additional section of a key, or nil.
func (s *additionals) get(k additionalKey) *additional {
	slots := s.slots.Load()
	if slots == nil {
		return nil
	}
	for i := range uint32(additionalProbes) {
		a := k.slot(*slots, i).Load()
		if a == nil {
			break
		}
		if a.additionalKey == k {
			return a
		}
	}
	return nil
}

// add keeps the additional section of a, which begins at an offset, if there is room for it.
// It must be complete, and must be the same for every question that does not end in one of its
// owners.
func (s *additionals) add(k additionalKey, a *wire.Answer, off int) {
	size := len(a.Buf) - off
	cost := int64(additionalSize + size + size/4) // owners are a quarter at most
	if size == 0 || size > maxAdditional || s.room.Load() < cost {
		return
	}

	slot := s.free(k)
	if slot == nil {
		return
	}

	var room [64]span
	owners := room[:0]
	var last []byte
	for at := off; at < len(a.Buf); {
		r, ok := wire.ReadRecord(a.Buf, at)
		if !ok || a.Buf[at]&0xC0 != 0 {
			return // the owner is a part of the question
		}
		if owner := a.Buf[at:r.Head]; string(owner) != string(last) {
			owners, last = append(owners, span{uint16(at - off), uint16(r.Head - off)}), owner
		}
		at = r.Next
	}

	// Another goroutine may have taken the room meanwhile.
	if s.room.Add(-cost) < 0 {
		s.room.Add(cost)
		return
	}
	count := int(a.Count[wire.Additional])
	slot.CompareAndSwap(nil, &additional{k, slices.Clone(a.Buf[off:]), count, slices.Clone(owners)})
}

// free returns a free slot for a key, or nil.
func (s *additionals) free(k additionalKey) *atomic.Pointer[additional] {
	slots := s.slots.Load()
	if slots == nil {
		made := make([]atomic.Pointer[additional], s.size)
		s.slots.CompareAndSwap(nil, &made)
		slots = s.slots.Load()
	}

	for i := range uint32(additionalProbes) {
		if slot := k.slot(*slots, i); slot.Load() == nil {
			return slot
		}
	}
	return nil
}

// put writes the additional section to a. It returns false if an owner is a part of the
// question, which then must be written as a pointer.
func (s *additional) put(a *wire.Answer) bool {
	question := a.Buf[wire.HeaderLen : a.RecordsOffset()-4]
	for _, o := range s.owners {
		owner := s.records[o.start:o.end]
		if off := len(question) - len(owner); off >= 0 && wire.SameName(question[off:], owner) {
			return false
		}
	}
	a.Append(wire.Additional, s.records, s.count)
	return true
}
