package tcx

import (
	"context"
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

const (
	// rest is how long an expired reply is not replaced: a program that has found it may
	// still read it.
	rest = 100 * time.Millisecond
	// halving is the number of counts after which earlier ones weigh half.
	halving   = 16
	oneSecond = time.Second
)

// Replies are the replies that the programs repeat. It is a server.Repeater for the process
// that answers the queries, and needs no capability, only the file of Capture.ReplyFile.
type Replies struct {
	memory      []byte
	replies     *[numReplies]reply
	generations *generation.Cells
	aliases     map[netip.AddrPort]struct{}

	mu     sync.Mutex // of what follows, and of writes into replies
	kept   [numReplies]kept
	often  frequency      // of queries by their hashes, whether the server or a program has answered them
	name   [maxQuery]byte // of the queries that are being counted
	closed bool
	total  atomic.Uint64
	task   *follow.Task
}

// kept is what the counts of a reply need. Its chain is nil if there is none.
type kept struct {
	dns.Repeated
	hash    uint64 // of the query; it stays when there is no reply any more
	counted uint64
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
	n := 0
	for range clock.Ticks(ctx, interval) {
		r.mu.Lock()
		for i := range r.kept {
			r.count(i)
		}
		if n++; n%halving == 0 {
			r.often.halve()
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
		k.counted = repeated
		r.total.Add(n)
		r.often.add(k.hash, n)
		counted := k.Repeated
		counted.Name = r.replies[i].appendName(r.name[:0])
		counted.Count(n)
	}
}

// Total returns the number of repeated replies.
func (r *Replies) Total() uint64 { return r.total.Load() }

// Generations returns the counters of the Stamps of replies. They must not be used after Close.
func (r *Replies) Generations() *generation.Cells { return r.generations }

// Keep makes the programs repeat q's reply, unless they repeat others that are queried more often in
// its place.
func (r *Replies) Keep(q *dns.Query) {
	if _, ok := r.aliases[q.Local]; !ok {
		return
	}
	k := kept{Repeated: q.Repeated()}
	now := uint64(monotonic())
	var w reply
	var ok bool
	if k.hash, ok = w.set(q, &k.Repeated, now); !ok {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !q.MayRepeat() || !r.generations.Current(w.stamp()) {
		return
	}
	r.often.add(k.hash, 1)
	place := r.placeFor(&w, k.hash, now)
	if place < 0 || !r.replies[place].claim(now) {
		return
	}
	r.count(place)
	r.kept[place] = k
	r.replies[place].write(&w, q.Packet(), q.Reply(), now+w.longest(&k.Repeated))
}

// Unsuitable returns why Keep does not make the programs repeat q's reply, or "".
func (r *Replies) Unsuitable(q *dns.Query) string {
	if _, ok := r.aliases[q.Local]; !ok {
		return "queries to this address do not pass the kernel's programs"
	}
	repeated := q.Repeated()
	if _, ok := new(reply).set(q, &repeated, 0); !ok {
		return "the query or the reply is too long, or its addresses cannot take turns"
	}
	return ""
}

// placeFor returns the place for a new reply, -1 if there is none. The programs may still read the old reply
// there for a while. That is the one with the least frequent query of the set, and the new query has to be more
// frequent: a name that is queried once does not displace one that is queried again.
func (r *Replies) placeFor(w *reply, hash, now uint64) int {
	place, least := -1, uint8(0)
	for i := firstOf(hash); i < firstOf(hash)+replyWays; i++ {
		old := &r.replies[i]
		until := old.until.Load()
		often := uint8(0)
		switch {
		case until == 0:
		case until == claimed:
			continue
		case old.hash == w.hash && old.equal(w):
			if until > now && r.generations.Current(old.stamp()) {
				return -1
			}
			if old.expire(now); until+uint64(rest) >= now {
				continue
			}
		default:
			r.count(i)
			often = r.often.of(r.kept[i].hash)
			often += min(1, ^often)
		}
		if place < 0 || often < least {
			place, least = i, often
		}
	}

	if place < 0 || least > r.often.of(hash) {
		return -1
	}
	r.replies[place].expire(now)
	return place
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
		r.kept[i] = kept{hash: r.kept[i].hash}
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
