package tcx

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/generation"
)

// Sizes of program/repeat.h.
const (
	maxQuery   = 96
	maxReply   = 424
	replySets  = 256
	replyWays  = 4
	numReplies = replySets * replyWays
	numCells   = 910 * unsafe.Sizeof(reply{}) / 8
)

const (
	// maxRepeat is how long a reply is repeated that depends on the time: TTLs are not reduced meanwhile.
	maxRepeat = dns.MaxRepeat
	// maxUnused is how long a reply stays for which there is another one, without being repeated.
	maxUnused = time.Second
	// rest is how long an expired reply is not replaced: a program that has found it may
	// still read it.
	rest = 100 * time.Millisecond
)

// reply is struct reply of program/repeat.h.
type reply struct {
	until, repeated      atomic.Uint64
	alias                [16]byte
	querySize, replySize uint16
	difference           uint32
	stamp                stamp
	query                [maxQuery]byte
	reply                [maxReply]byte
}

// stamp is a generation.Stamp as struct reply has it.
type stamp struct {
	cells [3]uint16
	_     uint16
	sum   uint64
}

// elements is the array of program/repeat.h.
type elements struct {
	replies [numReplies]reply
	cells   [numCells]atomic.Uint64
}

// Replies are the replies that the programs repeat. It is a server.Repeater for the process
// that answers the queries, and needs no capability, only the file of Capture.ReplyFile.
type Replies struct {
	memory      []byte
	replies     *[numReplies]reply
	generations *generation.Cells
	aliases     map[netip.AddrPort]struct{}

	mu     sync.Mutex // of what follows, and of writes into replies
	kept   [numReplies]kept
	closed bool
	total  atomic.Uint64
	task   *follow.Task
}

// kept is what the counts of a reply need. Its chain is nil if there is none.
type kept struct {
	dns.Repeated
	counted uint64
	used    uint64 // time at which it was stored, or found to have been repeated
}

// OpenReplies returns the Replies of a file of Capture.ReplyFile, which the caller may close,
// for queries to a port of the aliases.
func OpenReplies(f *os.File, aliases []netip.Addr, port uint16, times Times) (*Replies, error) {
	memory, err := mapped(int(f.Fd()), int(unsafe.Sizeof(elements{})))
	if err != nil {
		return nil, fmt.Errorf("mapping the replies for the capture: %w", err)
	}
	all := (*elements)(unsafe.Pointer(&memory[0]))
	r := &Replies{
		memory: memory, replies: &all.replies, generations: generation.New(all.cells[:]),
		aliases: map[netip.AddrPort]struct{}{},
	}
	for _, a := range aliases {
		r.aliases[netip.AddrPortFrom(a, port)] = struct{}{}
	}
	for i := range r.replies { // of an earlier process, which may have had another configuration
		r.replies[i].expire(uint64(monotonic()))
	}
	r.task = follow.Go(func(ctx context.Context) { r.run(ctx, times.orDefaults().Count) })
	return r, nil
}

// run counts repeated replies until Close.
func (r *Replies) run(ctx context.Context, interval time.Duration) {
	for range clock.Ticks(ctx, interval) {
		r.mu.Lock()
		for i := range r.kept {
			r.count(i)
		}
		r.mu.Unlock()
	}
}

// count adds what was repeated since the last call to the metrics.
func (r *Replies) count(i int) {
	k := &r.kept[i]
	if k.Chain == nil {
		return
	}
	repeated := r.replies[i].repeated.Load()
	if n := repeated - k.counted; n > 0 {
		k.counted, k.used = repeated, uint64(monotonic())
		r.total.Add(n)
		k.Count(n)
	}
}

// Total returns the number of repeated replies.
func (r *Replies) Total() uint64 { return r.total.Load() }

// Generations returns the counters of the Stamps of replies. They must not be used after Close.
func (r *Replies) Generations() *generation.Cells { return r.generations }

// Keep makes the programs repeat q's reply, unless all places for it are used.
func (r *Replies) Keep(q *dns.Query) {
	packet, message := q.Packet(), q.Reply()
	if _, ok := r.aliases[q.Local]; !ok || len(packet)-2 > maxQuery || len(message)-2 > maxReply {
		return
	}

	var w reply
	w.alias = words(q.Local.Addr())
	w.querySize, w.replySize = uint16(len(packet)-2), uint16(len(message)-2)
	copy(w.query[:], packet[2:])
	first := int(hashOf(&w)%replySets) * replyWays

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !q.MayRepeat() {
		return
	}

	k := kept{Repeated: q.Repeated()}
	s := k.Stamp()
	if !r.generations.Current(s) {
		return
	}
	w.stamp = stamp{cells: s.Cells, sum: s.Sum}

	now := uint64(monotonic())
	place, unused := -1, -1
	for i := first; i < first+replyWays; i++ {
		old := &r.replies[i]
		until := old.until.Load()
		switch {
		case until > now && old.alias == w.alias && old.querySize == w.querySize && old.query == w.query:
			if r.generations.Current(old.generations()) {
				return
			}
			old.expire(now)
		case until+uint64(rest) < now:
			place = i
		case until > now && r.isUnused(i, now):
			unused = i
		}
	}
	if place < 0 {
		if unused >= 0 {
			r.replies[unused].expire(now) // for the next reply, after the rest
		}
		return
	}

	// until is zero while the rest changes, and written last: then the programs find the reply.
	r.count(place)
	to := &r.replies[place]
	to.until.Store(0)
	to.repeated.Store(0)
	to.alias, to.querySize, to.replySize, to.query = w.alias, w.querySize, w.replySize, w.query
	to.stamp = w.stamp
	copy(to.reply[:], message[2:])
	to.difference = difference(packet[2:], message[2:])
	k.used = now
	r.kept[place] = k
	d := k.Duration()
	if s == (generation.Stamp{}) {
		d = min(d, maxRepeat)
	}
	to.until.Store(now + uint64(d))
}

// isUnused reports whether a reply has not been repeated lately. So names that are queried once do
// not take the places of those that are queried often.
func (r *Replies) isUnused(i int, now uint64) bool {
	r.count(i)
	return r.kept[i].used+uint64(maxUnused) < now
}

// Forget ends the repetition of all replies.
func (r *Replies) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
}

func (r *Replies) forget() {
	now := uint64(monotonic())
	for i := range r.kept {
		if r.kept[i].Chain == nil {
			continue
		}
		r.replies[i].expire(now)
		r.count(i)
		r.kept[i] = kept{}
	}
}

// Close forgets all replies and ends the use of the memory.
func (r *Replies) Close() {
	r.mu.Lock()
	r.closed = true
	r.forget()
	r.mu.Unlock()
	r.task.Stop()
	_ = unix.Munmap(r.memory)
}

// generations returns the Stamp of the reply.
func (r *reply) generations() generation.Stamp {
	return generation.Stamp{Cells: r.stamp.cells, Sum: r.stamp.sum}
}

// expire ends the repetition.
func (r *reply) expire(now uint64) {
	if r.until.Load() > now {
		r.until.Store(now)
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
	return hash >> 40
}

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
