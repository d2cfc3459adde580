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
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
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
// that answers the queries, and needs no capability, only the files of Capture.ReplyFiles.
type Replies struct {
	memory      []byte
	replies     *[numReplies]reply
	generations *generation.Cells
	sampling    *sampling
	samples     *sampler // of the goroutine run
	aliases     map[netip.AddrPort]struct{}
	port        uint16

	mu       sync.Mutex // of what follows, and of writes into replies
	kept     [numReplies]kept
	often    frequency      // of queries by their hashes, whether the server or a program has answered them
	name     [maxQuery]byte // of the queries that are being counted
	counting dns.Repeated
	closed   bool
	total    atomic.Uint64
	task     *follow.Task
}

// kept is what the counts of a reply need, as there are many. Its chain is nil if there is none.
type kept struct {
	chain                *dns.Chain
	hits                 *metrics.Counter
	hash                 uint64 // of the query; it stays when there is no reply any more
	counted              uint64
	step                 int16
	qtype                wire.Type
	rcode                wire.RCode
	querySize, replySize uint16
	ipv4, do             bool
}

// keptOf returns what the counts of r need.
func keptOf(r *dns.Repeated, hash uint64) kept {
	return kept{
		chain: r.Chain, hits: r.Allowed.Hits, hash: hash, step: int16(r.Step), qtype: r.Type, rcode: r.RCode,
		querySize: uint16(r.QuerySize), replySize: uint16(r.ReplySize), ipv4: r.IPv4, do: r.DO,
	}
}

// repeated is the reverse of keptOf.
func (k *kept) repeated() dns.Repeated {
	return dns.Repeated{
		Chain: k.chain, Allowed: dns.Repeat{Hits: k.hits}, Step: int(k.step), Type: k.qtype, RCode: k.rcode,
		QuerySize: int(k.querySize), ReplySize: int(k.replySize), IPv4: k.ipv4, DO: k.do,
	}
}

// OpenReplies returns the Replies of the files of Capture.ReplyFiles, which the caller may close,
// for queries to a port of the aliases.
func OpenReplies(files []*os.File, aliases []netip.Addr, port uint16, times Times) (*Replies, error) {
	if len(files) != replyFiles {
		return nil, fmt.Errorf("opening the replies for the capture: got %d files, want %d", len(files), replyFiles)
	}
	memory, err := mapped(int(files[0].Fd()), int(unsafe.Sizeof(elements{})))
	if err != nil {
		return nil, fmt.Errorf("mapping the replies for the capture: %w", err)
	}
	samples, err := openSampler(files[1])
	if err != nil {
		_ = unix.Munmap(memory)
		return nil, err
	}
	all := (*elements)(unsafe.Pointer(&memory[0]))
	r := &Replies{
		memory: memory, replies: &all.replies, generations: generation.New(all.cells[:]),
		sampling: &all.sampling, samples: samples,
		aliases: map[netip.AddrPort]struct{}{}, port: port,
	}
	r.sampling.share.Store(0)
	for _, a := range aliases {
		r.aliases[netip.AddrPortFrom(a, port)] = struct{}{}
	}
	for i := range r.replies { // of an earlier process, which may have had another configuration
		r.replies[i].expire(uint64(monotonic()))
	}
	r.task = follow.Go(func(ctx context.Context) { r.run(ctx, times.orDefaults().Count) })
	return r, nil
}

// run counts repeated replies, and passes on samples of them, until Close.
func (r *Replies) run(ctx context.Context, interval time.Duration) {
	counts := time.NewTimer(clock.UntilNext(interval))
	defer counts.Stop()
	defer r.stopSampling()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-counts.C:
			r.tick(n)
			n++
			counts.Reset(clock.UntilNext(interval))
		case <-r.samples.ticker.C:
			r.passSamples()
		}
	}
}

// tick counts what was repeated, for the nth time, and passes few samples. Many have a ticker of their own.
func (r *Replies) tick(n int) {
	before := r.Total()
	r.countAll(n%halving == 0)
	if r.samples.rate == dns.FewSamples {
		r.passSamples()
	}
	r.startSampling(r.Total() - before)
}

// countAll counts all repeated replies.
func (r *Replies) countAll(halve bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.kept {
		r.count(i)
	}
	if halve {
		r.often.halve()
	}
}

// count adds what was repeated since the last call to the metrics.
func (r *Replies) count(i int) {
	k := &r.kept[i]
	if k.chain == nil {
		return
	}
	repeated := r.replies[i].repeated.Load()
	if n := repeated - k.counted; n > 0 {
		k.counted = repeated
		r.total.Add(n)
		r.often.add(k.hash, n)
		r.counting = k.repeated()
		r.counting.Name = r.replies[i].appendName(r.name[:0])
		r.counting.Count(n)
		r.counting = dns.Repeated{}
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
	repeated, now := q.Repeated(), uint64(monotonic())
	var w reply
	hash, ok := w.set(q, &repeated, now)
	if !ok {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !q.MayRepeat() || !r.generations.Current(w.stamp()) {
		return
	}
	r.often.add(hash, 1)
	place := r.placeFor(&w, hash, now)
	if place < 0 || !r.replies[place].claim(now) {
		return
	}
	r.count(place)
	r.kept[place] = keptOf(&repeated, hash)
	r.replies[place].write(&w, q.Packet(), q.Reply(), now+w.longest(&repeated))
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
		if r.kept[i].chain == nil {
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
	r.samples.buffer.close()
}
