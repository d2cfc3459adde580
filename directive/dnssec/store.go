package dnssec

import (
	"container/list"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Signatures are valid from three hours ago, for clients whose clocks are slow.
	validBefore = 3 * time.Hour
	validFor    = 8 * 24 * time.Hour
	// renewBefore is the time before their expiration when they are made again.
	renewBefore = 2 * 24 * time.Hour

	// bytesPerEntry times the capacity is the largest size of a store: signatures of two
	// keys of 2048 bits.
	bytesPerEntry = 700
	// entryOverhead is the memory of an entry besides its signatures.
	entryOverhead = 128
)

// signatures has the signatures of one RRset: the RDATA of its RRSIG records.
type signatures struct {
	key   uint64
	rdata []string
	made  time.Time
	used  atomic.Bool // since the last time that room was needed
}

// current reports whether s can be used at a time.
func (s *signatures) current(now time.Time) bool {
	age := now.Round(0).Sub(s.made)
	return -validBefore < age && age < validFor-renewBefore
}

func (s *signatures) size() int {
	n := entryOverhead
	for _, rdata := range s.rdata {
		n += len(rdata)
	}
	return n
}

// A store keeps signatures by a hash of their RRset. Denials have a part of their own,
// so that queries for random names do not displace the signatures of records. A reload
// keeps the store if zones, keys and capacity are the same.
type store struct {
	seed  maphash.Seed
	parts [2]part // of records, and of denials
}

// A part is a queue. Signatures that were used since they were added last are added
// again in place of being evicted.
type part struct {
	mu       sync.RWMutex
	byKey    map[uint64]*list.Element
	queue    list.List // of *signatures
	bytes    int
	capacity int
}

func newStore(capacity int) *store {
	s := &store{seed: maphash.MakeSeed()}
	for i := range s.parts {
		s.parts[i] = part{byKey: map[uint64]*list.Element{}, capacity: max(1, (capacity+i)/2)}
	}
	return s
}

// Stop implements config.Stopper.
func (*store) Stop() {}

// entries returns the number of signatures.
func (s *store) entries() (n int) {
	for i := range s.parts {
		p := &s.parts[i]
		p.mu.RLock()
		n += p.queue.Len()
		p.mu.RUnlock()
	}
	return n
}

// get returns the signatures of an RRset, or nil.
func (p *part) get(key uint64, now time.Time) *signatures {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.byKey[key]
	if e == nil {
		return nil
	}
	s := e.Value.(*signatures)
	if !s.current(now) {
		return nil
	}
	if !s.used.Load() {
		s.used.Store(true)
	}
	return s
}

// put adds signatures, and evicts others if the store is full.
func (p *part) put(s *signatures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.byKey[s.key]; e != nil {
		p.remove(e)
	}
	for p.queue.Len() > 0 && (p.queue.Len() >= p.capacity || p.bytes+s.size() > p.capacity*bytesPerEntry) {
		if e := p.queue.Front(); e.Value.(*signatures).used.Swap(false) {
			p.queue.MoveToBack(e)
		} else {
			p.remove(e)
		}
	}
	p.byKey[s.key] = p.queue.PushBack(s)
	p.bytes += s.size()
}

func (p *part) remove(e *list.Element) {
	s := p.queue.Remove(e).(*signatures)
	delete(p.byKey, s.key)
	p.bytes -= s.size()
}
