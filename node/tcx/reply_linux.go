package tcx

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
)

// Sizes of program/repeat.h.
const (
	maxQuery   = 96
	maxReply   = 424
	replySets  = 2048
	replyWays  = 4
	numReplies = replySets * replyWays
	numCells   = 852 * unsafe.Sizeof(reply{}) / 8
	maxTTLs    = 8
	maxTurns   = 8
	maxRecord  = 32

	samplesSize = 1 << 16
)

// reply is struct reply of program/repeat.h.
type reply struct {
	until, repeated  atomic.Uint64
	hash, difference uint32
	alias            [16]byte
	querySize        uint16
	replySize        uint16
	turns            turns
	cells            [3]uint16
	generations      uint64
	aged             uint64
	ttls             [maxTTLs]uint16
	reply            [maxReply]byte
	query            [maxQuery]byte
}

// turns are the records of a reply of which another one is the first each time.
type turns struct{ from, records, size uint16 }

// elements is the array of program/repeat.h.
type elements struct {
	replies [numReplies]reply
	cells   [numCells]atomic.Uint64
	sampling
}

// set makes w a reply's query and how it may be repeated from now on, without the reply itself. It
// returns the hash of the query, and false if the programs cannot repeat the reply.
func (w *reply) set(q *dns.Query, r *dns.Repeated, now uint64) (hash uint64, ok bool) {
	packet, message := q.Packet(), q.Reply()
	if len(packet)-2 > maxQuery || len(message)-2 > maxReply {
		return 0, false
	}
	w.alias = words(q.Local.Addr())
	w.querySize, w.replySize = uint16(len(packet)-2), uint16(len(message)-2)
	copy(w.query[:], packet[2:])
	hash = hashOf(w)
	w.hash = uint32(hash >> 32)

	s := r.Allowed.While
	w.cells, w.generations = s.Cells, s.Sum
	if r.Allowed.Tick != 0 {
		w.aged = now + uint64(r.Allowed.Tick-oneSecond)
	}
	return hash, w.setRecords(message, q.Answer.RecordsOffset(), q.Answer.Count[wire.Answers], r.Rotates)
}

// setRecords finds the TTLs that decrease, and the records that take turns, from an offset of the
// message on. It returns false if the programs cannot rotate these. If there are too many TTLs, none decreases.
func (w *reply) setRecords(message []byte, from int, answers uint16, rotates bool) bool {
	var run, first wire.Record // of one RRset
	ttls := 0
	for i := uint16(0); from < len(message); i++ {
		r, ok := wire.ReadRecord(message, from)
		if !ok {
			return false
		}
		from = r.Next
		if r.Type == wire.TypeOPT {
			continue
		}

		if w.aged != 0 {
			if ttls == maxTTLs { // repeated for a second at most
				w.aged, w.ttls = 0, [maxTTLs]uint16{}
			} else {
				w.ttls[ttls] = uint16(r.Head + 4 - 2)
				ttls++
			}
		}

		if !rotates || r.Type != wire.TypeA && r.Type != wire.TypeAAAA && r.Type != wire.TypeMX {
			run = wire.Record{}
			continue
		}
		if run.Type != r.Type || !wire.SameOwner(message, run, r) {
			run, first = r, r
			continue
		}
		if !w.turns.add(message, first, r, i < answers) {
			return false
		}
	}
	return true
}

// add adds a record to the RRset of which first is the first record. It returns false if the programs cannot rotate
// it: they do so with the addresses of one RRset of the answer section that have the same size.
func (t *turns) add(message []byte, first, r wire.Record, answer bool) bool {
	size := r.Next - r.Owner
	switch {
	case t.records == 0:
		*t = turns{from: uint16(first.Owner - 2), records: 1, size: uint16(first.Next - first.Owner)}
	case int(t.from) != first.Owner-2:
		return false // a second set
	}
	t.records++
	same := size == int(t.size) && r.TTL(message) == first.TTL(message)
	return answer && r.Type != wire.TypeMX && same && size <= maxRecord && size%2 == 0 && t.records <= maxTurns
}

// longest returns the time for which w is repeated. TTLs are at most a second too large.
func (w *reply) longest(r *dns.Repeated) uint64 {
	if r.Allowed.Tick != 0 && w.aged == 0 {
		return uint64(min(r.Allowed.For, oneSecond))
	}
	return uint64(r.Allowed.For)
}

// appendName appends the name of the query in lower case.
func (r *reply) appendName(buf []byte) []byte {
	const from = wire.HeaderLen - 2
	end, size := from, min(int(r.querySize), maxQuery)
	for end < size && r.query[end] > 0 {
		end += 1 + int(r.query[end])
	}
	if end >= size {
		return buf
	}
	return wire.AppendLower(buf, r.query[from:end+1])
}

// equal reports whether r has the same query as o.
func (r *reply) equal(o *reply) bool {
	return r.alias == o.alias && r.querySize == o.querySize && r.query == o.query
}

// claimed is the time in `until` of a reply that a process writes. No other process may take its place: one that
// was only stopped goes on to write. See abandonClaims.
const claimed = 1

// claim reports whether the caller may write into r: the programs do not read it, since it has expired
// a while ago, and no other process writes into it. The caller ends the claim with write.
func (r *reply) claim(now uint64) bool {
	until := r.until.Load()
	return until != claimed && (until == 0 || until+uint64(rest) < now) && r.until.CompareAndSwap(until, claimed)
}

// abandonClaims ends the claims of processes that have ended while they wrote into the file of the replies.
func abandonClaims(f *os.File) error {
	memory, err := mapped(int(f.Fd()), int(unsafe.Sizeof(elements{})))
	if err != nil {
		return err
	}

	replies := &(*elements)(unsafe.Pointer(&memory[0])).replies
	for i := range replies {
		replies[i].until.CompareAndSwap(claimed, 0)
	}
	return unix.Munmap(memory)
}

// write replaces r, which the caller has claimed, by w with a reply to a query.
func (r *reply) write(w *reply, packet, message []byte, until uint64) {
	r.repeated.Store(0)
	r.hash, r.alias, r.querySize, r.replySize, r.query = w.hash, w.alias, w.querySize, w.replySize, w.query
	r.turns, r.cells, r.generations, r.aged, r.ttls = w.turns, w.cells, w.generations, w.aged, w.ttls
	copy(r.reply[:], message[2:])
	r.difference = difference(packet[2:], message[2:])
	r.until.Store(until) // now the programs find it
}

// stamp returns the Stamp of the reply.
func (r *reply) stamp() generation.Stamp { return generation.Stamp{Cells: r.cells, Sum: r.generations} }

// expire ends the repetition.
func (r *reply) expire(now uint64) {
	if until := r.until.Load(); until > now {
		r.until.CompareAndSwap(until, now)
	}
}

// words returns an address as the programs compare it.
func words(a netip.Addr) (b [16]byte) {
	if a.Is6() {
		return a.As16()
	}
	four := a.As4()
	copy(b[:], four[:])
	return b
}

// hashOf is the hash of program/repeat.h of a reply's query.
func hashOf(r *reply) uint64 {
	hash := uint64(r.querySize)
	for i := 0; i < maxQuery; i += 8 {
		hash ^= hash >> 32
		hash = (hash ^ binary.NativeEndian.Uint64(r.query[i:])) * 0x9e3779b97f4a7c15
	}
	return hash
}

// firstOf returns the first place of the set for the hash of a query.
func firstOf(hash uint64) int { return int(hash>>40%replySets) * replyWays }

// difference returns the sum of reply less that of query (RFC 1071), for the kernel to add
// to a checksum.
func difference(query, reply []byte) uint32 {
	return nativeSum(reply) + uint32(^uint16(nativeSum(query)))
}

// nativeSum returns the sum of the words of b in the byte order of the machine, folded to
// 16 bits. A last odd byte is the first one of a word.
func nativeSum(b []byte) uint32 {
	var sum uint64
	for ; len(b) >= 4; b = b[4:] {
		sum += uint64(binary.NativeEndian.Uint32(b))
	}
	var last [4]byte
	copy(last[:], b)
	sum += uint64(binary.NativeEndian.Uint32(last[:]))
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint32(sum)
}
