package cache

import (
	"encoding/binary"
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
type entry struct {
	key
	next  atomic.Pointer[entry] // in the same bucket
	scope *scope

	records    []byte
	count      [3]uint16 // of records, by section
	rcode      wire.RCode
	kind       answerKind
	aa, ra, ad bool
	extended   []byte // extended DNS errors, as options (RFC 8914)

	// Only in results of pending queries, never in the store.
	tc  bool
	err error

	// Times by the clock of Store.clock.
	stored, expires time.Duration
	staleFor        time.Duration // how long the entry may be used after expires

	// Position in the queue; guarded by the store's lock.
	newer, older *entry
	list         *list

	uses       atomic.Uint32 // hits since the queue last considered the entry, at most maxUses
	streak     atomic.Uint32 // hits without a gap; see prefetchDue
	lastHit    atomic.Int64
	retryAfter atomic.Int64 // the time before which the entry is not refreshed
}

// newEntry returns a copy of q's answer. It ignores reply options before the
// offset from.
func newEntry(s *scope, k *key, q *dns.Query, from int) *entry {
	e := &entry{
		scope: s, key: k.clone(), count: q.Answer.Count, rcode: q.RCode,
		aa: q.AA, ra: q.RA, ad: q.AD, tc: q.TC, err: q.Err,
	}
	if records := q.Answer.Records(); len(records) > 0 {
		e.records = slices.Clip(slices.Clone(records))
	}
	options := q.ReplyOptions()
	for code, data := range wire.Options(options[min(from, len(options)):]) {
		if code == wire.OptionEDE {
			e.extended = wire.AppendOption(e.extended, code, data)
		}
	}
	return e
}

// size returns the memory that the entry uses, in bytes.
func (e *entry) size() int {
	return int(unsafe.Sizeof(entry{})) + len(e.name) + len(e.options) + len(e.records) + len(e.extended)
}

// fresh reports whether e is not nil and has not expired.
func (e *entry) fresh(now time.Duration) bool { return e != nil && now < e.expires }

// stale reports whether e is not nil and expired no longer ago than limit.
func (e *entry) stale(now, limit time.Duration) bool {
	return e != nil && now >= e.expires && now-e.expires < limit
}

// inheritUsage copies the usage statistics and the list of old, which e
// replaces.
func (e *entry) inheritUsage(old *entry) {
	e.uses.Store(old.uses.Load())
	e.streak.Store(old.streak.Load())
	e.lastHit.Store(old.lastHit.Load())
	e.list = old.list
}

// write makes e the answer of q, with TTLs reduced by age seconds.
func (e *entry) write(q *dns.Query, age uint32) {
	q.Answer.Clear()
	from := q.Answer.RecordsOffset()
	q.Answer.Buf = append(q.Answer.Buf, e.records...)
	q.Answer.Count = e.count
	if age > 0 {
		q.Answer.Age(from, age)
	}
	q.RCode, q.AA, q.RA, q.AD, q.TC, q.Err = e.rcode, e.aa, e.ra, e.ad, e.tc, e.err
	q.Cacheable = e.err == nil
	for rest := e.extended; len(rest) >= 4; {
		n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		q.AddReplyOption(wire.OptionEDE, rest[4:n])
		rest = rest[n:]
	}
}
