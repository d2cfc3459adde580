package forward

import (
	"container/list"
	"net/netip"
	"sync"

	"github.com/seamark/seamark/sys/slots"
)

// A limiter is the option max_concurrent. It divides the places of waiting queries among clients.
// One client alone may take all of them. When all are taken, a client below its share takes the
// place of the latest query of the client with most; the shares of all that wait are equal. So a
// client with many slow names does not keep the others from theirs.
type limiter struct {
	most int

	mu      sync.Mutex
	used    int
	clients map[netip.Addr]*waitingClient
	byCount []*list.List // of *waitingClient, by the number of their queries; the last is not empty
}

// A waitingClient is a client with at least one query that has a place.
type waitingClient struct {
	queries list.List     // of *waiter, the latest at the back
	place   *list.Element // in limiter.byCount
}

// A waiter is a query that has a place. It is the state of the query between AwaitDNS and
// Resolve.
type waiter struct {
	wake   func()
	client netip.Addr

	// Guarded by limiter.mu.
	place    *list.Element // nil: another query has taken it
	exchange *exchange     // nil until it has begun
}

// full reports whether a query of the client at an address gets no place.
func (l *limiter) full(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used >= l.most && !l.belowShare(slots.Client(addr))
}

// belowShare reports whether a client has less than its share. If all places are taken, another
// one has at least two more then.
func (l *limiter) belowShare(client netip.Addr) bool {
	waiting, own := len(l.clients), 0
	if c := l.clients[client]; c != nil {
		own = c.queries.Len()
	} else {
		waiting++
	}
	return own < l.most/waiting
}

// enter gives w a place. It returns false if there is none. A waiter that has lost its place is
// woken.
func (l *limiter) enter(w *waiter) bool {
	l.mu.Lock()
	if l.used < l.most {
		l.add(w)
		l.mu.Unlock()
		return true
	}
	if !l.belowShare(w.client) {
		l.mu.Unlock()
		return false
	}

	largest := l.byCount[len(l.byCount)-1].Front().Value.(*waitingClient)
	displaced := largest.queries.Back().Value.(*waiter)
	l.remove(displaced)
	l.add(w)
	x := displaced.exchange
	l.mu.Unlock()

	if x != nil {
		x.abandon()
	}
	displaced.wake()
	return true
}

// joined sets the exchange that w waits for.
func (l *limiter) joined(w *waiter, x *exchange) {
	l.mu.Lock()
	w.exchange = x
	displaced := w.place == nil
	l.mu.Unlock()

	if displaced {
		x.abandon()
	}
}

// leave gives the place of w back and returns its exchange. It returns nil if another query has
// taken the place before there was a reply.
func (l *limiter) leave(w *waiter) *exchange {
	l.mu.Lock()
	defer l.mu.Unlock()

	x := w.exchange
	if w.place != nil {
		l.remove(w)
	} else if x == nil || !x.isFinished() || x.err == errLimit {
		return nil
	}
	return x
}

func (l *limiter) add(w *waiter) {
	c := l.clients[w.client]
	if c == nil {
		if l.clients == nil {
			l.clients = map[netip.Addr]*waitingClient{}
		}
		c = &waitingClient{}
		l.clients[w.client] = c
	}

	w.place = c.queries.PushBack(w)
	l.used++
	l.count(c, c.queries.Len()-1)
}

func (l *limiter) remove(w *waiter) {
	c := l.clients[w.client]
	c.queries.Remove(w.place)
	w.place = nil
	l.used--
	l.count(c, c.queries.Len()+1)
	if c.queries.Len() == 0 {
		delete(l.clients, w.client)
	}
}

// count moves c from the clients with before queries to those with as many as it has now, which
// is one more or one less. So the client with most is found without a search.
func (l *limiter) count(c *waitingClient, before int) {
	if before > 0 {
		l.byCount[before].Remove(c.place)
	}
	if n := c.queries.Len(); n > 0 {
		for len(l.byCount) <= n {
			l.byCount = append(l.byCount, list.New())
		}
		c.place = l.byCount[n].PushBack(c)
	}

	for last := len(l.byCount) - 1; last >= 0 && l.byCount[last].Len() == 0; last-- {
		l.byCount = l.byCount[:last]
	}
}
