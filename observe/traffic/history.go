package traffic

import (
	"hash/maphash"
	"iter"
	"maps"
	"math/bits"
	"time"
)

// The history has a point for each interval of the last hour.
const (
	interval = 10 * time.Second
	points   = 360
)

// latencyBuckets is the number of classes of durations: class i has those below 2^i
// microseconds.
const latencyBuckets = 26

// A Point is what was recorded in one interval of ten seconds. Counts are estimates.
type Point struct {
	Time    time.Time          `json:"time"` // when the interval began
	Queries float64            `json:"queries"`
	RCodes  map[string]float64 `json:"rcodes,omitempty"`
	Sources map[string]float64 `json:"sources,omitempty"` // by the directive that answered, "" for none
	P50     time.Duration      `json:"p50"`               // upper bound of the class of the median
	P99     time.Duration      `json:"p99"`
	Waste   float64            `json:"waste,omitempty"` // searches that cannot succeed
	// Kernel is the number of replies that the kernel of a node repeated, which are not among Queries.
	Kernel float64 `json:"kernel,omitempty"`
}

type point struct {
	number    int // of the interval since the recorder's start, from 1 on
	queries   float64
	waste     float64
	kernel    float64
	rcodes    tally
	sources   tally
	latencies [latencyBuckets]float32
}

type history struct {
	start time.Time
	ring  []point
}

// number returns the number of the interval that t is in.
func (h *history) number(t time.Time) int { return 1 + int(max(0, t.Sub(h.start))/interval) }

// A tally counts queries by response code or directive.
type tally map[string]float64

// maxTally bounds the keys of a tally. It is larger than the number of directives.
const maxTally = 64

func (t tally) add(key string, n float64) {
	if _, known := t[key]; known || len(t) < maxTally {
		t[key] += n
	}
}

func (t tally) addAll(other tally) {
	for key, n := range other {
		t.add(key, n)
	}
}

// at returns the point of a time.
func (h *history) at(t time.Time) *point {
	if h.ring == nil {
		h.ring = make([]point, points)
	}

	number := h.number(t)
	p := &h.ring[number%points]
	if p.number != number {
		clear(p.rcodes)
		clear(p.sources)
		*p = point{number: number, rcodes: p.rcodes, sources: p.sources}
		if p.rcodes == nil {
			p.rcodes, p.sources = tally{}, tally{}
		}
	}
	return p
}

func (h *history) add(e *Event, waste bool) {
	p := h.at(e.Time)
	p.queries += e.Weight
	p.rcodes.add(e.RCode, e.Weight)
	p.sources.add(e.Source, e.Weight)
	if waste {
		p.waste += e.Weight
	}
	class := bits.Len64(uint64(max(0, e.Duration/time.Microsecond)))
	p.latencies[min(class, latencyBuckets-1)] += float32(e.Weight)
}

// A Kernel is about the replies that the kernel of a node repeats in a server's place.
type Kernel struct {
	Queries float64 `json:"queries_per_second"` // in the last minute, which are not among the server's
	Share   float64 `json:"share"`              // of these and the server's queries
	// Prevented are server blocks whose replies it does not repeat, at one of their addresses or more.
	Prevented []Prevention `json:"prevented,omitempty"`
}

// A Prevention is the reason why no reply of a server block is repeated.
type Prevention struct {
	Zones     string `json:"zones"`
	Directive string `json:"directive"` // that has to see each query
}

// CountKernel counts n replies that the kernel of a node has repeated, in the history, and by their name in wire
// form, unless it is empty, and their response code in the lists of names. It does not wait: while a request
// reads, the lists miss them.
func (r *Recorder) CountKernel(name []byte, rcode string, n uint64) {
	r.kernel.Add(n)
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	now := time.Now()
	r.addKernel(now)
	if len(name) == 0 {
		return
	}

	r.turn(now)
	hash := maphash.Bytes(r.seed, name)
	r.windows[0][Names].add(hash, name, nil, nil, float64(n))
	switch rcode {
	case "NXDOMAIN":
		r.windows[0][NXDomain].add(hash, name, nil, nil, float64(n))
	case "SERVFAIL":
		r.windows[0][ServFail].add(hash, name, nil, nil, float64(n))
	}
}

// RecordKernel adds a query whose reply the kernel of a node has repeated to the recent events and to the lists of
// clients, as Record does with others: CountKernel counts the names. The event has its Weight. If it is lost because a
// request reads for long, the next one stands for it, too.
func (r *Recorder) RecordKernel(e *Event, name, namespace []byte, search int) {
	e.Kernel = true
	if !r.put(e, name, namespace, search) {
		r.lostKernel.Add(uint64(e.Weight))
	}
}

// addKernel adds what CountKernel has counted. r is locked.
func (r *Recorder) addKernel(now time.Time) {
	if n := r.kernel.Swap(0); n > 0 {
		r.history.at(now).kernel += float64(n)
	}
}

// quantile returns the upper bound of the class that contains it.
func (p *point) quantile(q float64) time.Duration {
	var total, sum float64
	for _, n := range p.latencies {
		total += float64(n)
	}
	for i, n := range p.latencies {
		if sum += float64(n); sum >= q*total && total > 0 {
			return time.Microsecond << i
		}
	}
	return 0
}

// History returns the points of the last hour, the oldest first. Intervals without
// queries have none.
func (r *Recorder) History(now time.Time) []Point {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	r.addKernel(now)
	last := r.history.number(now)
	list := []Point{}
	for p := range r.history.from(last-points+1, last) {
		list = append(list, p.shown(r.history.began(p.number).UTC().Round(0)))
	}
	return list
}

// from returns the points from the interval first to last that have queries.
func (h *history) from(first, last int) iter.Seq[*point] {
	return func(yield func(*point) bool) {
		for number := max(1, first); number <= last && h.ring != nil; number++ {
			if p := &h.ring[number%points]; p.number == number && !yield(p) {
				return
			}
		}
	}
}

// began returns when an interval began.
func (h *history) began(number int) time.Time { return h.start.Add(time.Duration(number-1) * interval) }

// shown returns a copy of a point that began at a time.
func (p *point) shown(began time.Time) Point {
	return Point{
		Time:    began,
		Queries: p.queries,
		RCodes:  maps.Clone(p.rcodes),
		Sources: maps.Clone(p.sources),
		Waste:   p.waste,
		Kernel:  p.kernel,
		P50:     p.quantile(0.5),
		P99:     p.quantile(0.99),
	}
}

// Last returns what was recorded in the last time d, as one point, and how much of that time
// has passed since the start: up to one interval less than d.
func (r *Recorder) Last(d time.Duration, now time.Time) (Point, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain()
	r.addKernel(now)

	sum := point{rcodes: tally{}, sources: tally{}}
	last := r.history.number(now)
	first := max(1, last-int(d/interval)+1)
	for p := range r.history.from(first, last) {
		sum.queries += p.queries
		sum.waste += p.waste
		sum.kernel += p.kernel
		sum.rcodes.addAll(p.rcodes)
		sum.sources.addAll(p.sources)
		for i, n := range p.latencies {
			sum.latencies[i] += n
		}
	}
	from := r.history.began(first)
	return sum.shown(from), now.Sub(from)
}
