package transport

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// contendedWait is the median time that goroutines wait for a processor at which TCP
// clients begin to take turns. A processor answers hundreds of queries in that time.
const contendedWait = time.Millisecond

// turns is a semaphore of a client: the channel has an element for each connection that
// has its turn.
//
// Busy connections have goroutines, among which the scheduler divides the processors. So
// while goroutines have to wait, a client with many busy connections would get more
// answers than others, and one whose connections always have queries to read would keep
// the processor for its 10 ms. Then each client answers on as many connections as there
// are processors at most, and each of them lets all other goroutines run before it
// answers the queries of one read.
type turns chan struct{}

func newTurns() turns { return make(turns, runtime.GOMAXPROCS(0)) }

// A contention determines whether TCP clients take turns.
type contention struct {
	high   atomic.Bool
	waited atomic.Bool // a connection has waited for its turn since the last update

	latencies [1]metrics.Sample // guarded by conns.mu
	before    []uint64          // counts of latencies at the last update
}

// update is called at intervals, with the number of clients. Connections that wait for
// their turn do not wait for a processor, so clients take turns until no connection has
// to wait for either.
func (c *contention) update(clients int) {
	long, waited := c.medianWait() >= contendedWait, c.waited.Swap(false)
	c.high.Store(long || waited && clients > 1)
}

// medianWait returns how long goroutines have waited for a processor since the last call.
func (c *contention) medianWait() time.Duration {
	c.latencies[0].Name = "/sched/latencies:seconds"
	metrics.Read(c.latencies[:])
	if c.latencies[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}

	h := c.latencies[0].Value.Float64Histogram()
	if c.before == nil {
		c.before = make([]uint64, len(h.Counts))
	}

	var total, sum uint64
	for i, n := range h.Counts {
		total += n - c.before[i]
	}
	median := 0.0
	for i, n := range h.Counts {
		if sum += n - c.before[i]; sum <= total/2 && !math.IsInf(h.Buckets[i+1], 0) {
			median = h.Buckets[i+1]
		}
	}
	copy(c.before, h.Counts)
	return time.Duration(median * float64(time.Second))
}

// takeTurn blocks until the connection may answer the queries that it has read. The
// caller calls endTurn if it returns true.
func (c *conn) takeTurn() bool {
	switch {
	case c.onLoop:
		return false
	case !c.l.conns.contention.high.Load():
		if !c.readAll { // it may not block for long
			runtime.Gosched()
		}
		return false
	}

	select {
	case c.turns <- struct{}{}:
	default:
		c.l.conns.contention.waited.Store(true)
		c.turns <- struct{}{}
	}
	runtime.Gosched()
	c.now = time.Now() // the timeouts exclude the time of waiting
	return true
}

func (c *conn) endTurn() { <-c.turns }
