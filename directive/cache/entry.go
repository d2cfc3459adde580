package cache

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An entryKind is what an answer says.
type entryKind uint8

const (
	success entryKind = iota // there are records of the type
	denial                   // there are none: NXDOMAIN, or no data (RFC 2308)
	failure                  // SERVFAIL
	kinds
)

// queue is where the kind counts: failures are among the denials.
func (k entryKind) queue() int { return min(int(k), 1) }

// A kindSet is a set of kinds.
type kindSet uint8

func (s kindSet) has(k entryKind) bool { return s>>k&1 == 1 }

// A key is what tells two questions apart, but for their scope.
type key struct {
	name    []byte // in wire form, lower case
	options []byte // of EDNS, those that change what an upstream says
	t       wire.Type
	class   wire.Class
	flags   uint16 // flagRD, flagCD, flagDO
	way     uint64 // how the answer is got: see ways
	step    uint32 // and by whom
	hash    uint64
}

// maxOptions is how many bytes of options a key may have. A client subnet has
// at most 24.
const maxOptions = 64

// read makes k the key of q, but for hash and way; name and options lie in
// the room given. It says false if there are too many options.
func (k *key) read(q *dns.Query, flags uint16, name *[wire.MaxName]byte, room *[maxOptions]byte) bool {
	k.name, k.options = name[:copy(name[:], q.Name())], nil
	k.t, k.class, k.flags = q.Type, q.Class, flags
	if len(q.Options) > maxOptions {
		return false
	}
	if len(q.Options) > 0 {
		k.options = room[:copy(room[:], q.Options)]
	}
	return true
}

// place completes k: an answer that is got this way, by the one of this step.
func (k *key) place(st *Store, s *scope, way uint64, step uint32) {
	const odd = 0x9E3779B97F4A7C15
	k.way, k.step = way, step
	k.hash = maphash.Bytes(st.seed, k.name) ^ s.salt ^ way ^ uint64(step)
	k.hash += (uint64(k.t)<<32 | uint64(k.class)<<16 | uint64(k.flags)) * odd
	if len(k.options) > 0 {
		k.hash = bits.RotateLeft64(k.hash, 7) ^ maphash.Bytes(st.seed, k.options)
	}
	k.hash ^= k.hash >> 32
}

func (k *key) equal(o *key) bool {
	return k.t == o.t && k.class == o.class && k.flags == o.flags && k.way == o.way && k.step == o.step &&
		bytes.Equal(k.name, o.name) && bytes.Equal(k.options, o.options)
}

// clone gives k memory of its own.
func (k *key) clone() key {
	c := *k
	all := slices.Concat(k.name, k.options)
	c.name, c.options = all[:len(k.name):len(k.name)], all[len(k.name):]
	return c
}

// An entry is one answer: everything behind the question, in the answer's form.
type entry struct {
	next   atomic.Pointer[entry] // in its bucket
	scope  *scope
	flight *flight // the entry is no answer, but says that one is under way
	key
	body         []byte // the records
	extended     []byte // options of the reply: extended errors (RFC 8914)
	count        [3]uint16
	rcode        wire.RCode
	kind         entryKind
	aa, ra, ad   bool
	tc           bool          // never in a store; see flight
	err          error         // likewise
	stored, ends time.Duration // by Store.at

	// Of its queue, under the store's lock.
	before, behind *entry
	list           *list

	uses   atomic.Uint32 // hits since the queue has looked last, up to maxUses
	asked  atomic.Uint32 // hits without a gap; see prefetch
	last   atomic.Int64  // when it was asked last
	retry  atomic.Int64  // it is not asked for anew before
	forget time.Duration // how long after its end it may still be of use
}

// newEntry copies q's answer. Options of the reply before offset are not part
// of it.
func newEntry(s *scope, k *key, q *dns.Query, options int) *entry {
	e := &entry{
		scope: s, key: k.clone(), count: q.Answer.Count, rcode: q.RCode,
		aa: q.AA, ra: q.RA, ad: q.AD, tc: q.TC, err: q.Err,
	}
	if records := q.Answer.Records(); len(records) > 0 {
		e.body = slices.Clip(slices.Clone(records))
	}
	all := q.ReplyOptions()
	for rest := all[min(options, len(all)):]; len(rest) >= 4; {
		n := min(4+int(binary.BigEndian.Uint16(rest[2:])), len(rest))
		if binary.BigEndian.Uint16(rest) == wire.OptionEDE {
			e.extended = append(e.extended, rest[:n]...)
		}
		rest = rest[n:]
	}
	return e
}

// size is what the entry takes of memory.
func (e *entry) size() int {
	return int(unsafe.Sizeof(entry{})) + len(e.name) + len(e.options) + len(e.body) + len(e.extended)
}

// fresh says whether e, which may be nil, can be given out.
func (e *entry) fresh(now time.Duration) bool { return e != nil && now < e.ends }

// stale says whether e, which may be nil, ended no longer ago than within.
func (e *entry) stale(now, within time.Duration) bool {
	return e != nil && now >= e.ends && now < e.ends+within
}

// inherit lets e take over how often its name is asked.
func (e *entry) inherit(old *entry) {
	e.uses.Store(old.uses.Load())
	e.asked.Store(old.asked.Load())
	e.last.Store(old.last.Load())
	e.list = old.list
}

// write makes e the answer of q, its TTLs seconds less.
func (e *entry) write(q *dns.Query, seconds uint32) {
	q.Answer.Clear()
	from := q.Answer.RecordsOffset()
	q.Answer.Buf = append(q.Answer.Buf, e.body...)
	q.Answer.Count = e.count
	if seconds > 0 {
		q.Answer.Age(from, seconds)
	}
	q.RCode, q.AA, q.RA, q.TC, q.Err = e.rcode, e.aa, e.ra, e.tc, e.err
	q.AD = e.ad
	q.Cacheable = e.err == nil
	for rest := e.extended; len(rest) >= 4; {
		n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		q.AddReplyOption(wire.OptionEDE, rest[4:n])
		rest = rest[n:]
	}
}
