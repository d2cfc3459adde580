// Package traffic samples the queries of a server for people: the most frequent names and
// clients, failed names, slow queries, searches that cannot succeed, recent events, the last
// hour, and the numbers of different names and clients. The directive admin records queries
// and serves the lists.
//
// Each query is recorded while there are at most Budget of them a second. Above that a random
// share of the queries is recorded, and each counts for several: counts are estimates then. So
// the cost does not grow with the rate of queries. A query that is not recorded costs a random
// number, and two hashes for the numbers of different names and clients.
//
// The goroutine that answers a query records it. It never waits: while a request reads what is
// recorded, events are queued. There is no goroutine and no timer.
package traffic

import (
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Budget is the number of queries a second that are recorded.
const Budget = 1000

// The lists of the most frequent keys.
const (
	Names = iota
	Clients
	Namespaces // of the clients, if they are known
	NXDomain   // names that do not exist
	ServFail   // names whose answer is SERVFAIL
	Slow       // names whose answers took at least SlowFrom, by the time they took in all
	Waste      // clients whose searches cannot succeed
	numLists
)

// ListNames are the names of the lists.
var ListNames = [numLists]string{"names", "clients", "namespaces", "nxdomain", "servfail", "slow", "waste"}

// WasteRemedy is the part of a workload's manifest that ends most of the searches in Waste.
// With 1 in place of 2, names such as web.shop would be looked up as whole names first.
const WasteRemedy = `spec:
  template:
    spec:
      dnsConfig:
        options:
        - name: ndots
          value: "2"
`

// SlowFrom is the duration from which on an answer is slow.
const SlowFrom = 100 * time.Millisecond

// window is how long the counts of a list last: lists show this one and the one before.
const window = 5 * time.Minute

// An Event is a recorded query.
type Event struct {
	Sequence  uint64        `json:"sequence"`
	Time      time.Time     `json:"time"`
	Client    netip.Addr    `json:"client"`
	Namespace string        `json:"namespace,omitempty"` // of the client, if it is known
	Name      string        `json:"name"`
	Type      string        `json:"type"`
	Protocol  string        `json:"protocol"`
	RCode     string        `json:"rcode"` // "" if no reply was sent
	Duration  time.Duration `json:"duration"`
	Size      int           `json:"size"`
	Source    string        `json:"source"` // the directive that answered
	Zone      string        `json:"zone"`
	Search    string        `json:"search,omitempty"` // the name that the client searches for, if this search cannot succeed
	Weight    float64       `json:"weight"`           // the number of queries that the event stands for
}

// A Recorder records queries. It is safe for concurrent use.
type Recorder struct {
	threshold atomic.Uint64 // a random 32-bit number below it selects the query
	lost      atomic.Uint64 // weight of the queries that were selected while the queue was full
	queue     chan Event    // recorded while another goroutine held mu
	seed      maphash.Seed
	distinct  atomic.Pointer[distinct] // of the present window

	mu             sync.Mutex
	second         int    // since the start, of the last event
	recorded       int    // in that second
	next           uint64 // sequence number
	ring           []Event
	windows        [2][numLists]top // this one and the one before
	distinctBefore *distinct        // of the window before
	began          time.Time        // of the first window
	history        history
}

// ringSize is the number of recent events that are kept.
const ringSize = 2048

// queueSize is the number of events that wait until the recorder is free.
const queueSize = 256

// NewRecorder returns a recorder that records every query, until there are too many.
func NewRecorder() *Recorder {
	r := &Recorder{queue: make(chan Event, queueSize), seed: maphash.MakeSeed(), history: history{start: time.Now()}, distinctBefore: new(distinct)}
	r.threshold.Store(1 << 32)
	r.distinct.Store(new(distinct))
	return r
}

// Selects reports whether the caller should record the present query.
func (r *Recorder) Selects() bool {
	t := r.threshold.Load()
	return t == 1<<32 || uint64(rand.Uint32()) < t
}

// Sampled returns the share of queries that are recorded now.
func (r *Recorder) Sampled() float64 { return float64(r.threshold.Load()) / (1 << 32) }

// Record records a query that Selects has selected. It does not wait: if too many are recorded
// while a request reads, the query is only counted, and the next event stands for it. Record
// sets Sequence and Weight.
func (r *Recorder) Record(e Event) {
	weight := 1 << 32 / r.threshold.Load() // a power of two
	e.Weight = float64(weight)
	if r.mu.TryLock() {
		r.drain()
		r.take(&e)
		r.mu.Unlock()
		return
	}
	select {
	case r.queue <- e:
	default:
		r.lost.Add(weight)
	}
}

// Stop implements config.Stopper. There is nothing to stop.
func (*Recorder) Stop() {}

// drain takes the events that are in the queue. r is locked.
func (r *Recorder) drain() {
	for range len(r.queue) {
		e := <-r.queue // only the holder of the lock receives
		r.take(&e)
	}
}

// take adds an event, and those that were lost before it. r is locked.
func (r *Recorder) take(e *Event) {
	lost := uint64(0)
	if r.lost.Load() > 0 {
		lost = r.lost.Swap(0)
	}
	r.adapt(e.Time, lost > 0)
	e.Weight += float64(lost)
	r.add(e)
}

// adapt sets the threshold for the next queries.
func (r *Recorder) adapt(now time.Time, full bool) {
	t := r.threshold.Load()
	if s := int(now.Sub(r.history.start) / time.Second); s != r.second {
		if elapsed := s - r.second; r.recorded < Budget/2 || elapsed > 1 { // fewer than half of the budget: record more
			r.threshold.Store(min(1<<32, t*2))
		}
		r.second, r.recorded = s, 0
	}
	if r.recorded++; r.recorded%Budget == 0 || full {
		r.threshold.Store(max(1, t/2))
	}
}

func (r *Recorder) add(e *Event) {
	e.Sequence = r.next
	r.next++
	if len(r.ring) < ringSize {
		r.ring = append(r.ring, *e)
	} else {
		r.ring[e.Sequence%ringSize] = *e
	}
	r.turn(e.Time)
	w := &r.windows[0]
	w[Names].add(e.Name, "", "", e.Weight)
	client := e.Client.String()
	w[Clients].add(client, e.Namespace, e.Name, e.Weight)
	if e.Namespace != "" {
		w[Namespaces].add(e.Namespace, "", e.Name, e.Weight)
	}
	switch e.RCode {
	case "NXDOMAIN":
		w[NXDomain].add(e.Name, "", client, e.Weight)
	case "SERVFAIL":
		w[ServFail].add(e.Name, "", client, e.Weight)
	}
	if e.Duration >= SlowFrom {
		w[Slow].add(e.Name, "", e.Source, e.Weight*e.Duration.Seconds())
	}
	if e.Search != "" {
		w[Waste].add(client, e.Namespace, e.Name, e.Weight)
	}
	r.history.add(e)
}

// turn begins a new window if the present one has lasted long enough.
func (r *Recorder) turn(now time.Time) {
	switch age := now.Sub(r.began); {
	case r.began.IsZero():
		r.began = now
	case age >= 2*window:
		r.windows, r.began, r.distinctBefore = [2][numLists]top{}, now, new(distinct)
		r.distinct.Store(new(distinct))
	case age >= window:
		r.windows[1], r.windows[0], r.began = r.windows[0], [numLists]top{}, r.began.Add(window)
		r.distinctBefore = r.distinct.Swap(new(distinct))
	}
}

// A Top is a list of the most frequent keys.
type Top struct {
	By      string        `json:"by"`
	Window  time.Duration `json:"window"`  // the time that the counts cover
	Sampled float64       `json:"sampled"` // the share of queries that are recorded now
	Entries []Entry       `json:"entries"`
}

// Top returns the n most frequent keys of a list in the last five to ten minutes.
func (r *Recorder) Top(by, n int, now time.Time) Top {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	r.turn(now)
	t := Top{By: ListNames[by], Sampled: r.Sampled(), Entries: list(n, &r.windows[0][by], &r.windows[1][by])}
	if !r.began.IsZero() {
		t.Window = now.Sub(r.began)
		if r.windows[1][Names].total > 0 {
			t.Window += window
		}
	}
	return t
}

// Since returns the events from a sequence number on, as far as they are kept, at most n, and
// the next sequence number. With math.MaxUint64 it returns the next sequence number only.
func (r *Recorder) Since(sequence uint64, n int) (events []Event, next uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	first := r.next - uint64(len(r.ring))
	sequence = max(sequence, first)
	for sequence < r.next && len(events) < n {
		events = append(events, r.ring[sequence%ringSize])
		sequence++
	}
	return events, min(sequence, r.next)
}
