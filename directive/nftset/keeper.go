package nftset

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/seamark/seamark/zone"
)

// A Writer writes to the sets of nftables: a *nftables.Kernel, or the supervisor of a node.
type Writer interface {
	Inspect(nftables.Set) (nftables.Key, nftables.Problem)
	Add([]nftables.Element) []nftables.Result
	Changes() uint64
	Close()
}

const (
	// maxQueued and maxQueuedByClient bound the elements that wait to be written.
	maxQueued, maxQueuedByClient = 8192, 512
	// maxByClient is how many elements one client may have brought into sets, so that it cannot fill them
	// for others.
	maxByClient = 8192
	// maxKnown bounds the elements that are remembered, as the server's memory does: each takes about knownBytes.
	// The others are looked up in the kernel.
	maxKnown, knownBytes = 1 << 18, 200
	// checkInterval is the time between two looks at sets that cannot be written, or may have changed.
	checkInterval = time.Second
	// sweepInterval is the time between two searches for elements that have ended.
	sweepInterval = 10 * time.Second
)

// An element is an address in a set, for a client if the set has clients.
type element struct {
	set        *set
	client, ip netip.Addr
}

// appendKey appends the key of a known element. It begins with the number of its set.
func (e element) appendKey(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, e.set.number)
	ip := e.ip.As16()
	b = append(b, ip[:]...)
	if e.client.IsValid() {
		client := e.client.As16()
		b = append(b, client[:]...)
	}
	return b
}

// A demand is an element that has to be in its set for some time.
type demand struct {
	element
	need time.Duration
}

// An entry is what is known of an element. It is immutable.
type entry struct {
	until   time.Duration // by package clock
	changes uint64        // of the writer, before the element was written
	client  netip.Addr    // that it counts for
}

// A request is elements of one answer that wait to be written.
type request struct {
	client  netip.Addr
	demands []demand
	done    chan struct{}
}

// A keeper writes to sets, and remembers what is in them. A server has one.
type keeper struct {
	open func() (Writer, error)

	// Queries read these two without a lock. They are changed with mu held.
	writer atomic.Pointer[Writer] // nil until it is open
	known  zone.Table[entry]      // by element.appendKey

	noteMu sync.Mutex // of the problems of sets; locked before mu

	mu       sync.Mutex
	sets     []*set
	numbered uint64             // sets so far
	claim    *memory.Claim      // of known
	room     int                // for known; what memory has until the next search for elements that have ended
	byClient map[netip.Addr]int // elements that are known
	queue    []*request
	queued   map[netip.Addr]int // elements in the queue, by client
	length   int                // of the queue, in elements
	swept    time.Duration
	checked  uint64 // changes of the writer at the last look at the sets

	work chan struct{} // the queue is not empty, or a set is new
	stop chan struct{}
	done chan struct{}
}

func newKeeper(open func() (Writer, error), claim *memory.Claim) *keeper {
	k := &keeper{
		open: open, claim: claim, room: maxKnown, byClient: map[netip.Addr]int{}, queued: map[netip.Addr]int{},
		work: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go k.run()
	return k
}

// Stop implements [config.Stopper].
func (k *keeper) Stop() {
	close(k.stop)
	<-k.done
	k.claim.Release()
	if w := k.writer.Load(); w != nil {
		(*w).Close()
	}
}

// add adds a set, and returns once it is known whether it can be written.
func (k *keeper) add(s *set) {
	k.mu.Lock()
	k.numbered++
	s.number = k.numbered
	k.sets = append(k.sets, s)
	k.mu.Unlock()
	k.look(s)
}

// remove forgets a set. Its elements end with their timeouts.
func (k *keeper) remove(s *set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sets = slices.DeleteFunc(k.sets, func(other *set) bool { return other == s })
	s.board.Clear(k, s.name)
	k.forgetAll(func(key string, _ *entry) bool { return binary.BigEndian.Uint64([]byte(key)) == s.number })
}

// lacks reports whether an element has to be written, so that it is there for some time.
func (k *keeper) lacks(e element, need, now time.Duration) bool {
	known, w := k.find(e), k.writer.Load()
	return known == nil || known.until-now < need || w == nil || known.changes != (*w).Changes()
}

// find returns what is known of an element; nil if it is unknown. It allocates nothing.
func (k *keeper) find(e element) *entry {
	var room [8 + 16 + 16]byte
	return k.known.Get(e.appendKey(room[:0]))
}

// write blocks until elements have been written, or cannot be. It reports false if ctx ends before: they are
// written later.
func (k *keeper) write(ctx context.Context, client netip.Addr, all []demand) bool {
	for len(all) > 0 {
		n := min(len(all), nftables.MaxElements)
		r := &request{client, all[:n:n], make(chan struct{})}
		all = all[n:]
		if !k.enqueue(r) {
			continue
		}
		select {
		case <-r.done:
		case <-k.stop:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// enqueue reports whether a request was taken. A client that has too many elements waits for none.
func (k *keeper) enqueue(r *request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(r.demands)
	if k.length+n > maxQueued || k.queued[r.client]+n > maxQueuedByClient {
		for _, d := range r.demands {
			d.set.refused.Add(1)
		}
		return false
	}

	k.queue = append(k.queue, r)
	k.length += n
	k.queued[r.client] += n
	k.signal()
	return true
}

func (k *keeper) signal() {
	select {
	case k.work <- struct{}{}:
	default:
	}
}

// dequeue returns the next requests, with as many elements as one transaction may have.
func (k *keeper) dequeue() (next []*request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	total := 0
	for len(k.queue) > 0 {
		r := k.queue[0]
		n := len(r.demands)
		if total += n; total > nftables.MaxElements {
			break
		}

		next, k.queue = append(next, r), k.queue[1:]
		k.length -= n
		if k.queued[r.client] -= n; k.queued[r.client] == 0 {
			delete(k.queued, r.client)
		}
	}
	return next
}

// run writes what is queued until Stop is called.
func (k *keeper) run() {
	defer close(k.done)
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-k.work:
		case <-ticker.C:
			k.check()
		}
		for next := k.dequeue(); len(next) > 0; next = k.dequeue() {
			k.serve(next)
		}
	}
}

// serve writes the elements of requests in one transaction.
func (k *keeper) serve(requests []*request) {
	elements, of, changes := k.prepare(requests)
	if len(elements) > 0 {
		begun := clock.Now()
		k.record(of, (*k.writer.Load()).Add(elements), begun, changes)
	}
	for _, r := range requests {
		close(r.done)
	}
}

// A wanted is an element of a transaction, and the client that it counts for.
type wanted struct {
	element
	client netip.Addr
}

// prepare returns the elements of requests that are not there already, each once.
func (k *keeper) prepare(requests []*request) (all []nftables.Element, of []wanted, changes uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writer.Load()
	if w == nil {
		return nil, nil, 0
	}

	changes = (*w).Changes()
	now := clock.Now()
	at := map[element]int{}
	for _, r := range requests {
		for _, d := range r.demands {
			if i, ok := at[d.element]; ok {
				all[i].Need = max(all[i].Need, d.need)
				all[i].Timeout = timeoutFor(all[i].Need)
				continue
			}
			if nftables.Key(d.set.key.Load()) == nftables.NoKey || !k.lacks(d.element, d.need, now) {
				continue
			}

			known := k.find(d.element)
			if known == nil && k.byClient[r.client] >= maxByClient {
				d.set.refused.Add(1)
				continue
			}
			at[d.element] = len(all)
			of = append(of, wanted{d.element, r.client})
			all = append(all, nftables.Element{
				Set: d.set.name, Client: d.client, IP: d.ip, Need: d.need, Timeout: timeoutFor(d.need),
				Renew: known != nil && known.until > now,
			})
		}
	}
	return all, of, changes
}

// record notes what has become of elements that were passed to the writer at a time.
func (k *keeper) record(of []wanted, results []nftables.Result, begun time.Duration, changes uint64) {
	worst := map[*set]nftables.Problem{}
	k.mu.Lock()
	for i, w := range of {
		r, key := results[i], string(w.element.appendKey(nil))
		worst[w.set] = max(worst[w.set], r.Problem)
		if r.Problem != nftables.None {
			w.set.failed.Add(1)
			k.forget(key)
			continue
		}
		w.set.added.Add(1)
		k.remember(key, &entry{begun + r.Left, changes, w.client})
	}
	k.mu.Unlock()

	for s, p := range worst {
		k.noteResult(s, p)
	}
}

// remember notes an element. k.mu is held.
func (k *keeper) remember(key string, x *entry) {
	k.forget(key)
	n := k.known.Len()
	if n < k.room && k.claim.Grow(int64(n+1)*knownBytes) != nil {
		k.room = n
	}
	if n >= k.room { // an eighth at once, since the search for them begins anew each time
		some := max(k.room/8, 1)
		k.forgetAll(func(string, *entry) bool {
			some--
			return some >= 0
		})
	}
	k.known.Set(key, x)
	k.byClient[x.client]++
}

// forget forgets an element, which may be unknown. k.mu is held.
func (k *keeper) forget(key string) {
	x := k.known.Get([]byte(key))
	if x == nil {
		return
	}
	k.known.Delete(key)
	if k.byClient[x.client]--; k.byClient[x.client] == 0 {
		delete(k.byClient, x.client)
	}
}

// forgetAll forgets the elements for which is returns true. k.mu is held.
func (k *keeper) forgetAll(is func(key string, x *entry) bool) {
	for key, x := range k.known.All() {
		if is(key, x) {
			k.forget(key)
		}
	}
}
