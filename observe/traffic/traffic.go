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
// recorded, queries are queued. There is no goroutine and no timer. Recording reuses memory:
// the rest of a server allocates nothing for most queries, and garbage of those recorded would
// fill its heap up to the next collection.
package traffic

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
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
	Denied     // names that policy denies, or would deny without audit
	numLists
)

// ListNames are the names of the lists.
var ListNames = [numLists]string{"names", "clients", "namespaces", "nxdomain", "servfail", "slow", "waste", "denied"}

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
	// Denied is the group of the directive policy that denies the query, or would without audit.
	Denied string `json:"denied,omitempty"`
	// Search is the name that the client searches for, if this search cannot succeed.
	Search string  `json:"search,omitempty"`
	Weight float64 `json:"weight"` // the number of queries that the event stands for
	// Kernel is set if the kernel of a node has repeated the reply. Only the lists of clients count the event.
	Kernel bool `json:"kernel,omitempty"`
}

// A record is a query that was recorded.
type record struct {
	event           Event  // without Namespace, Name and Search
	name, namespace []byte // the name in wire form
	search          int    // see Recorder.Record
}

// Redacted is a label in wire form that stands for labels which are not shown.
const Redacted = "\x0a(redacted)"

// appendText appends the text of a name in wire form.
func appendText(buf, name []byte) []byte {
	if rest, found := bytes.CutPrefix(name, []byte(Redacted)); found {
		buf, name = append(buf, Redacted[1:]+"."...), rest
		if len(name) <= 1 {
			return buf
		}
	}
	return wire.AppendText(buf, name)
}

// set makes r a record of a query, in r's memory.
func (r *record) set(e *Event, name, namespace []byte, search int) {
	*r = record{*e, append(r.name[:0], name...), append(r.namespace[:0], namespace...), search}
}

// whole returns the event with the names.
func (r *record) whole() Event {
	e := r.event
	e.Namespace, e.Name = string(r.namespace), string(appendText(nil, r.name))
	if r.search > 0 {
		e.Search = string(appendText(nil, r.name[:r.search]))
	}
	return e
}

// A Recorder records queries. It is safe for concurrent use.
type Recorder struct {
	threshold  atomic.Uint64 // a random 32-bit number below it selects the query
	lost       atomic.Uint64 // weight of the queries that were selected while the queue was full
	lostKernel atomic.Uint64 // likewise, of RecordKernel
	watchers   atomic.Int32  // of recent events
	kernel     atomic.Uint64 // replies that CountKernel has counted, and that are not in the history yet
	queue      chan *record  // recorded while another goroutine held mu
	seed       maphash.Seed
	distinct   atomic.Pointer[distinct] // of the present window

	mu             sync.Mutex
	second         int    // since the start, of the last event
	recorded       int    // in that second
	next           uint64 // sequence number
	ring           []record
	windows        [2][numLists]top // this one and the one before
	parents        [2][numLists]top // of the names of these lists
	distinctBefore *distinct        // of the window before
	began          time.Time        // of the first window
	history        history
	text           []byte // of the client that is being recorded
	memory         recordMemory
}

const (
	// ringSize is the number of recent events that are kept.
	ringSize = 2048
	// leastRing is the number that is kept however little memory there is.
	leastRing = 128
)

// queueSize is the number of events that wait until the recorder is free.
const queueSize = 256

// NewRecorder returns a recorder that records every query, until there are too many. It keeps fewer
// events and keys if the claim cannot grow. A nil claim has no limit.
func NewRecorder(claim *memory.Claim) *Recorder {
	r := &Recorder{
		queue:          make(chan *record, queueSize),
		seed:           maphash.MakeSeed(),
		history:        history{start: time.Now()},
		distinctBefore: new(distinct),
		memory:         recordMemory{claim: claim},
	}
	for w := range r.windows {
		for by := range numLists {
			r.windows[w][by].memory, r.parents[w][by].memory = &r.memory, &r.memory
		}
	}
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
func (r *Recorder) Sampled(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relax(now)
	return r.sampled()
}

func (r *Recorder) sampled() float64 { return float64(r.threshold.Load()) / (1 << 32) }

// Record records a query that Selects has selected: its event without Sequence, Namespace,
// Name, Search and Weight; its name in wire form; the namespace of the client, if it is known;
// and the length of the labels of the name that the client searches for, if this search cannot
// succeed. It does not wait: if too many are recorded while a request reads, the query is only
// counted, and the next event stands for it. Nothing of the arguments is kept but the strings
// of e.
func (r *Recorder) Record(e *Event, name, namespace []byte, search int) {
	weight := 1 << 32 / r.threshold.Load() // a power of two
	e.Weight = float64(weight)
	if !r.put(e, name, namespace, search) {
		r.lost.Add(weight)
	}
}

// put takes or queues a query. It reports whether there was room.
func (r *Recorder) put(e *Event, name, namespace []byte, search int) bool {
	if r.mu.TryLock() {
		r.drain()
		r.take(e, name, namespace, search)
		r.mu.Unlock()
		return true
	}

	waiting := new(record)
	waiting.set(e, name, namespace, search)
	select {
	case r.queue <- waiting:
		return true
	default:
		return false
	}
}

// Stop implements config.Stopper. It ends the use of the memory, which is garbage soon.
func (r *Recorder) Stop() { r.memory.claim.Release() }

// drain takes the queries that are in the queue. r is locked.
func (r *Recorder) drain() {
	for range len(r.queue) {
		q := <-r.queue // only the holder of the lock receives
		r.take(&q.event, q.name, q.namespace, q.search)
	}
}

// take adds a query, with the weight of those lost before it. r is locked.
func (r *Recorder) take(e *Event, name, namespace []byte, search int) {
	if e.Kernel {
		e.Weight += float64(r.lostKernel.Swap(0))
		r.addEvent(e, name, namespace, search)
		r.turn(e.Time)
		r.addClient(e, name, namespace, search)
		return
	}
	lost := uint64(0)
	if r.lost.Load() > 0 {
		lost = r.lost.Swap(0)
	}
	r.adapt(e.Time, lost > 0)
	e.Weight += float64(lost)
	r.add(e, name, namespace, search)
}

// adapt sets the threshold for the next queries.
func (r *Recorder) adapt(now time.Time, full bool) {
	r.relax(now)
	if r.recorded++; r.recorded%Budget == 0 || full {
		r.threshold.Store(max(1, r.threshold.Load()/2))
	}
}

// relax doubles the share of queries that are recorded for each second until now in which fewer
// than half of the budget were. r is locked.
func (r *Recorder) relax(now time.Time) {
	second := int(now.Sub(r.history.start) / time.Second)
	elapsed := second - r.second
	if elapsed <= 0 {
		return
	}
	if r.recorded >= Budget/2 {
		elapsed--
	}
	r.threshold.Store(min(1<<32, r.threshold.Load()<<min(elapsed, 31)))
	r.second, r.recorded = second, 0
}

// addEvent adds a query to the recent events.
func (r *Recorder) addEvent(e *Event, name, namespace []byte, search int) {
	e.Sequence = r.next
	r.next++
	if r.ring == nil {
		r.ring = r.memory.newRing()
	}
	r.ring[e.Sequence%uint64(len(r.ring))].set(e, name, namespace, search)
}

func (r *Recorder) add(e *Event, name, namespace []byte, search int) {
	r.addEvent(e, name, namespace, search)
	r.turn(e.Time)
	client := r.addClient(e, name, namespace, search)
	add := func(list int, key, example []byte, n float64) {
		r.addTo(list, key, namespace, example, n)
		// Searches of pods are in Waste: their names differ as the names that pods look up do.
		if keyIsName[list] && (list != NXDomain || search == 0) {
			r.parents[0][list].addParents(r.seed, key, client, n, e.Weight, r.history.number(e.Time))
		}
	}

	add(Names, name, nil, e.Weight)
	switch e.RCode {
	case "NXDOMAIN":
		add(NXDomain, name, client, e.Weight)
	case "SERVFAIL":
		add(ServFail, name, client, e.Weight)
	}
	if e.Duration >= SlowFrom {
		r.text = append(r.text, e.Source...)
		add(Slow, name, r.text[len(client):], e.Weight*e.Duration.Seconds())
	}
	if e.Denied != "" {
		add(Denied, name, client, e.Weight)
	}
	r.history.add(e, search > 0)
}

// addClient adds a query to the lists of clients and their namespaces. It returns the text of the client.
func (r *Recorder) addClient(e *Event, name, namespace []byte, search int) (client []byte) {
	r.text = e.Client.AppendTo(r.text[:0])
	r.addTo(Clients, r.text, namespace, name, e.Weight)
	if len(namespace) > 0 {
		r.addTo(Namespaces, namespace, namespace, name, e.Weight)
	}
	if search > 0 {
		r.addTo(Waste, r.text, namespace, name, e.Weight)
	}
	return r.text
}

func (r *Recorder) addTo(list int, key, namespace, example []byte, n float64) {
	r.windows[0][list].add(maphash.Bytes(r.seed, key), key, namespace, example, n)
}

// The form of the keys and the examples of a list: names in wire form, or text.
var (
	keyIsName     = [numLists]bool{Names: true, NXDomain: true, ServFail: true, Slow: true, Denied: true}
	exampleIsName = [numLists]bool{Clients: true, Namespaces: true, Waste: true}
)

// entry returns what a list shows of a counter.
func entry(by int, c *counter) Entry {
	text := func(b []byte, isName bool) string {
		if isName && len(b) > 0 {
			b = appendText(nil, b)
		}
		return string(b)
	}
	e := Entry{
		Key:     text(c.key, keyIsName[by]),
		Count:   c.count,
		Excess:  c.excess,
		Example: text(c.example, exampleIsName[by]),
	}
	if by == Clients || by == Waste || by == Denied {
		e.Namespace = string(c.namespace)
	}
	return e
}

// turn begins a new window if the present one has lasted long enough.
func (r *Recorder) turn(now time.Time) {
	switch age := now.Sub(r.began); {
	case r.began.IsZero():
		r.began = now
	case age >= 2*window:
		r.clear(0)
		r.clear(1)
		r.began, r.distinctBefore = now, new(distinct)
		r.distinct.Store(new(distinct))
	case age >= window:
		r.windows[0], r.windows[1] = r.windows[1], r.windows[0]
		r.parents[0], r.parents[1] = r.parents[1], r.parents[0]
		r.clear(0)
		r.began = r.began.Add(window)
		r.distinctBefore = r.distinct.Swap(new(distinct))
	}
}

// clear removes all keys of a window.
func (r *Recorder) clear(window int) {
	for by := range numLists {
		r.windows[window][by].clear()
		r.parents[window][by].clear()
	}
}

// A Top is a list of the most frequent keys.
type Top struct {
	By      string        `json:"by"`
	Window  time.Duration `json:"window"`  // the time that the counts cover
	Sampled float64       `json:"sampled"` // the share of queries that are recorded now
	// Total is the sum of all counts, also of keys that are neither entries nor in groups.
	Total   float64 `json:"total"`
	Entries []Entry `json:"entries"`
	// Groups are of lists of names.
	Groups []Group `json:"groups,omitempty"`
}

// A Row is an entry or a group of a Top.
type Row struct {
	Entry *Entry
	Group *Group
}

func (r Row) count() float64 {
	if r.Group != nil {
		return r.Group.Count
	}
	return r.Entry.Count
}

// Rows returns the entries and groups, those with the highest count first.
func (t Top) Rows() []Row {
	rows := make([]Row, 0, len(t.Entries)+len(t.Groups))
	for i := range t.Entries {
		rows = append(rows, Row{Entry: &t.Entries[i]})
	}
	for i := range t.Groups {
		rows = append(rows, Row{Group: &t.Groups[i]})
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.count(), a.count()) })
	return rows
}

// Others returns the share of the keys that are neither entries nor in groups; 0 if it is less than
// a hundredth, since counts are estimates.
func (t Top) Others() float64 {
	rest := t.Total
	for _, e := range t.Entries {
		rest -= e.Count
	}
	for _, g := range t.Groups {
		rest -= g.Count
	}
	if share := rest / t.Total; share >= 0.01 {
		return share
	}
	return 0
}

// Top returns the n most frequent keys of a list in the last five to ten minutes.
func (r *Recorder) Top(by, n int, now time.Time) Top {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	r.relax(now)
	r.turn(now)

	t := Top{By: ListNames[by], Sampled: r.sampled()}
	t.Entries, t.Total = list(by, &r.windows[0][by], &r.windows[1][by])
	t.Groups = groups(t.Entries, t.Total, r.history.number(now), &r.parents[0][by], &r.parents[1][by])
	t.Entries = t.Entries[:min(n, len(t.Entries))]
	if !r.began.IsZero() {
		t.Window = now.Sub(r.began)
		if r.windows[1][Names].total > 0 {
			t.Window += window
		}
	}
	return t
}

// Watch makes Watched report true until end is called.
func (r *Recorder) Watch() (end func()) {
	r.watchers.Add(1)
	return func() { r.watchers.Add(-1) }
}

// Watched reports whether a client reads events as they come: only then are events of RecordKernel of use.
func (r *Recorder) Watched() bool { return r.watchers.Load() > 0 }

// Since returns the events from a sequence number on, as far as they are kept, at most n, and
// the next sequence number. With math.MaxUint64 it returns the next sequence number only.
func (r *Recorder) Since(sequence uint64, n int) (events []Event, next uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	sequence = max(sequence, r.next-min(r.next, uint64(len(r.ring))))
	for sequence < r.next && len(events) < n {
		events = append(events, r.ring[sequence%uint64(len(r.ring))].whole())
		sequence++
	}
	return events, min(sequence, r.next)
}
