package cache

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An answerKind is the kind of an answer.
type answerKind uint8

const (
	success  answerKind = iota // records of the queried type
	denial                     // NXDOMAIN or NODATA (RFC 2308)
	failure                    // SERVFAIL
	numKinds = iota
)

// queue returns the index of the queue that holds entries of the kind: failures and
// denials share one.
func (k answerKind) queue() int { return min(int(k), 1) }

// A kindSet is a set of kinds.
type kindSet uint8

func (s kindSet) has(k answerKind) bool { return s>>k&1 == 1 }

// An entry is a stored answer: all that follows the question section. Its
// answer is immutable once it is in the table.
//
// Most memory of a full cache are entries. So an entry has 112 bytes, a size of Go's
// allocator, and its key is not a value of the type key.
type entry struct {
	next  atomic.Pointer[entry] // in the same bucket
	scope *scope
	first *byte  // of the data
	hash  uint64 // of the key

	// Position in its list; guarded by the store's lock.
	newer, older *entry

	// Times by the clock of Store.clock.
	expires            time.Duration
	lastHit            atomic.Int64
	retryAfter         atomic.Int64 // the time before which the entry is not refreshed
	life, staleSeconds uint32       // seconds from when it was stored, and those for which it may be used after expires

	uses   atomic.Uint32 // hits since the queue last considered the entry, at most maxUses
	streak atomic.Uint32 // hits without a gap; see prefetchDue

	dataLen             uint32
	nameLen, optionsLen uint8  // in the data
	extendedLen         uint16 // in the data
	t                   wire.Type
	class               wire.Class
	step                uint16
	count               [3]uint16 // of records, by section
	rcode               wire.RCode
	flags               entryFlags
	main                bool // it is in the main list of its queue, or belongs there; guarded by the store's lock
}

// entryFlags are the queryFlags of an entry's key, header bits of its answer, and from kindShift on its kind.
type entryFlags uint8

const (
	flagAA entryFlags = entryFlags(keyFlags+1) << iota
	flagRA
	flagAD
)

const kindShift = 6

// makeEntry returns an entry with copies of the arguments.
func makeEntry(s *scope, k *key, kind answerKind, records, extended []byte) *entry {
	if len(extended) > math.MaxUint16 {
		extended = nil // explanations, which an answer is complete without
	}
	data := slices.Concat(k.name, k.options, records, extended)
	return &entry{
		scope: s, hash: k.hash, first: unsafe.SliceData(data), dataLen: uint32(len(data)),
		nameLen: uint8(len(k.name)), optionsLen: uint8(len(k.options)), extendedLen: uint16(len(extended)),
		t: k.t, class: k.class, flags: entryFlags(k.flags) | entryFlags(kind)<<kindShift, step: uint16(k.step),
	}
}

// setTimes sets when the entry was stored, how long it may be used then, and how long after that. Both are kept in
// whole seconds, rounded up: answers have TTLs, and failures no records.
func (e *entry) setTimes(stored, life, staleFor time.Duration) {
	e.expires, e.life, e.staleSeconds = stored+life, wholeSeconds(life), wholeSeconds(staleFor)
}

func wholeSeconds(d time.Duration) uint32 {
	seconds := max(d, 0) / time.Second
	if d > seconds*time.Second {
		seconds++
	}
	return uint32(min(seconds, math.MaxUint32))
}

func (e *entry) stored() time.Duration { return e.expires - time.Duration(e.life)*time.Second }

func (e *entry) staleFor() time.Duration { return time.Duration(e.staleSeconds) * time.Second }

// newEntry returns a copy of q's answer, of a kind. It ignores reply options before the
// offset from.
func newEntry(s *scope, k *key, q *dns.Query, from int, kind answerKind) *entry {
	var extended []byte
	options := q.ReplyOptions()
	for code, data := range wire.Options(options[min(from, len(options)):]) {
		if code == wire.OptionEDE {
			extended = wire.AppendOption(extended, code, data)
		}
	}

	e := makeEntry(s, k, kind, q.Answer.Records(), extended)
	e.setAnswer(q.Answer.Count, q.RCode, q.AA, q.RA, q.AD)
	return e
}

// setAnswer sets what the answer has besides its records.
func (e *entry) setAnswer(count [3]uint16, rcode wire.RCode, aa, ra, ad bool) {
	e.count, e.rcode = count, rcode
	if aa {
		e.flags |= flagAA
	}
	if ra {
		e.flags |= flagRA
	}
	if ad {
		e.flags |= flagAD
	}
}

func (e *entry) kind() answerKind { return answerKind(e.flags >> kindShift) }

// data returns the name and options of the key, records, and extended DNS errors as options (RFC 8914).
func (e *entry) data() []byte { return unsafe.Slice(e.first, e.dataLen) }

func (e *entry) name() []byte { return e.data()[:e.nameLen] }

func (e *entry) options() []byte { return e.data()[e.nameLen:][:e.optionsLen] }

func (e *entry) records() []byte {
	return e.data()[int(e.nameLen)+int(e.optionsLen) : int(e.dataLen)-int(e.extendedLen)]
}

func (e *entry) extended() []byte { return e.data()[int(e.dataLen)-int(e.extendedLen):] }

// queryFlags returns those of the key.
func (e *entry) queryFlags() queryFlags { return queryFlags(e.flags) & keyFlags }

// key returns the key, which refers to the entry's memory.
func (e *entry) key() *key {
	return &key{
		name: e.name(), options: e.options(), t: e.t, class: e.class,
		flags: e.queryFlags(), step: uint32(e.step), hash: e.hash,
	}
}

// has reports whether the entry's key is equal to k.
func (e *entry) has(k *key) bool {
	return e.hash == k.hash && e.t == k.t && e.class == k.class &&
		e.queryFlags() == k.flags && uint32(e.step) == k.step &&
		bytes.Equal(e.name(), k.name) && bytes.Equal(e.options(), k.options)
}

// size returns the memory that the entry uses, in bytes.
func (e *entry) size() int { return int(unsafe.Sizeof(entry{})) + int(e.dataLen) }

// fresh reports whether e is not nil and has not expired.
func (e *entry) fresh(now time.Duration) bool { return e != nil && now < e.expires }

// stale reports whether e is not nil and expired no longer ago than limit.
func (e *entry) stale(now, limit time.Duration) bool {
	return e != nil && now >= e.expires && now-e.expires < limit
}

// inheritUsage copies the usage statistics and the list of old, which e
// replaces. The caller holds the store's lock.
func (e *entry) inheritUsage(old *entry) {
	e.uses.Store(old.uses.Load())
	e.streak.Store(old.streak.Load())
	e.lastHit.Store(old.lastHit.Load())
	e.main = old.main
}

// write makes e the answer of q, with TTLs reduced by age seconds.
func (e *entry) write(q *dns.Query, age uint32) {
	q.Answer.Clear()
	from := q.Answer.RecordsOffset()
	q.Answer.Buf = append(q.Answer.Buf, e.records()...)
	q.Answer.Count = e.count
	if age > 0 {
		q.Answer.Age(from, age)
	}

	q.AA, q.RA, q.AD = e.flags&flagAA != 0, e.flags&flagRA != 0, e.flags&flagAD != 0
	q.RCode, q.TC, q.Err = e.rcode, false, nil
	q.Cacheable = true
	for rest := e.extended(); len(rest) >= 4; {
		n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		q.AddReplyOption(wire.OptionEDE, rest[4:n])
		rest = rest[n:]
	}
}

// A result is the answer of a pending query. If it failed or was truncated, it is not stored.
type result struct {
	*entry
	tc  bool
	err error
}

// write makes the result the answer of q.
func (r *result) write(q *dns.Query) {
	r.entry.write(q, 0)
	q.TC, q.Err, q.Cacheable = r.tc, r.err, r.err == nil
}
