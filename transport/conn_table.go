package transport

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/descriptors"
	"github.com/seamark/seamark/sys/memory"
)

// A ConnTable has the connections of one or more LimitedListeners. At the limit a new
// connection replaces one of the client that has most, if that has more than the new one's
// client will have.
type ConnTable struct {
	o      ConnLimits
	counts counters
	share  *descriptors.Share
	memory connMemory

	mu      sync.Mutex
	open    int
	clients map[netip.Addr][]*limitedConn // by ClientKey, the oldest connection first
	turns   map[netip.Addr]turns          // of clients
	refused map[netip.Addr]time.Time      // clients that may not connect before that time
}

// ConnLimits are the limits of a ConnTable.
type ConnLimits struct {
	Most      func() int // connections in all; nil or 0 is no limit
	PerClient int        // 0 is no limit; for Replace only
	// Replace lets every new connection in: at a limit it replaces the one that has been idle
	// longest, or, if none has been for a second, the one without data for the longest time. That
	// is one of its own client if the client has PerClient, else of the client that has most, else
	// of all.
	Replace     bool
	Buffer      int                 // the kernel's, in bytes, for each direction; 0 is that of the listener
	Descriptors *descriptors.Budget // may be nil
	Memory      *memory.Budget      // may be nil
	Metrics     *metrics.Registry   // may be nil
}

// maxRefused bounds the clients that may not connect.
const maxRefused = 1000

// NewConnTable returns a table without connections. The caller must call Stop.
func NewConnTable(o ConnLimits) *ConnTable {
	if o.Metrics == nil {
		o.Metrics = new(metrics.Registry)
	}
	t := &ConnTable{
		o: o, counts: newCounters(o.Metrics), memory: connMemory{o.Memory, memory.HTTPS, httpsSize},
		clients: map[netip.Addr][]*limitedConn{}, turns: map[netip.Addr]turns{}, refused: map[netip.Addr]time.Time{},
	}
	t.share = o.Descriptors.Join(t.evict)
	return t
}

// Stop ends the use of the table. Its connections may be closed later.
func (t *ConnTable) Stop() { t.share.Leave() }

// Count returns the number of connections.
func (t *ConnTable) Count() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.open)
}

func (t *ConnTable) refuse(client netip.Addr, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.refused) >= maxRefused {
		clear(t.refused)
	}
	t.refused[client] = until
}

// refuses reports whether a client may not connect.
func (t *ConnTable) refuses(client netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.refused[client]
	if ok && time.Now().After(until) {
		delete(t.refused, client)
		return false
	}
	return ok
}

// add adds c, and closes the connection that c replaces at a limit. It returns false if c is
// over a limit.
func (t *ConnTable) add(c *limitedConn) bool {
	if t.refuses(c.client) {
		t.counts.overClient.Add(1)
		return false
	}
	if !t.share.Acquire() {
		t.counts.overTotal.Add(1)
		return false
	}

	replaced, ok := t.admit(c)
	if replaced != nil {
		replaced.abort()
	}
	if !ok {
		t.share.Release()
	}
	return ok
}

// admit adds c unless that is over a limit. It removes and returns the connection that c replaces.
func (t *ConnTable) admit(c *limitedConn) (replaced *limitedConn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch own := t.clients[c.client]; {
	case t.o.PerClient > 0 && len(own) >= t.o.PerClient:
		replaced = idlest(own, true)
		t.counts.overClient.Add(1)
	case t.isFull() || !t.memory.reserve(t.open):
		if replaced = t.displaced(c.client); replaced == nil {
			t.counts.overTotal.Add(1)
			return nil, false
		}
		t.counts.overClient.Add(1)
	}
	if replaced != nil {
		t.remove(replaced)
		t.memory.force()
	}

	t.open++
	if c.turns = t.turns[c.client]; c.turns == nil {
		c.turns = newTurns()
		t.turns[c.client] = c.turns
	}
	t.clients[c.client] = append(t.clients[c.client], c)
	return replaced, true
}

func (t *ConnTable) isFull() bool {
	if t.o.Most == nil {
		return false
	}
	most := t.o.Most()
	return most > 0 && t.open >= most
}

// displaced returns the connection that one of a client may replace, or nil.
func (t *ConnTable) displaced(by netip.Addr) *limitedConn {
	if t.o.Replace {
		if most := t.largest(len(t.clients[by]) + 1); most != nil {
			return idlest(most, true)
		}
		return t.idlest(true)
	}

	// Connections of unknown clients are not replaced, and replace none.
	if !by.IsValid() {
		return nil
	}
	if most := t.largest(len(t.clients[by]) + 1); most != nil {
		return most[len(most)-1]
	}
	return nil
}

// largest returns the connections of the client that has most, if it has more than a number.
func (t *ConnTable) largest(than int) (most []*limitedConn) {
	for client, conns := range t.clients {
		if len(conns) > max(than, len(most)) && (client.IsValid() || t.o.Replace) {
			most = conns
		}
	}
	return most
}

// idlest returns the connection of all that has been idle longest, or nil: see the function.
func (t *ConnTable) idlest(busy bool) (found *limitedConn) {
	for _, conns := range t.clients {
		if c := idlest(conns, busy); c != nil && (found == nil || c.isIdler(found)) {
			found = c
		}
	}
	return found
}

// idlest returns the connection that has been idle longest, or nil. Those with requests only count
// if busy is set.
func idlest(conns []*limitedConn, busy bool) (found *limitedConn) {
	for _, c := range conns {
		if (busy || !c.busy.Load()) && (found == nil || c.isIdler(found)) {
			found = c
		}
	}
	return found
}

// freshConn is how long a connection without requests counts as one that is about to send some,
// and as valuable as those with requests.
const freshConn = time.Second

// isIdler reports whether c is to be closed rather than other.
func (c *limitedConn) isIdler(other *limitedConn) bool {
	if idle := c.isIdle(); idle != other.isIdle() {
		return idle
	}
	return c.active.Load() < other.active.Load()
}

func (c *limitedConn) isIdle() bool {
	return !c.busy.Load() && clock.Now()-time.Duration(c.active.Load()) > freshConn
}

// evict closes the connection that has been idle longest, for one of another listener. It
// reports whether there is one.
func (t *ConnTable) evict() bool {
	t.mu.Lock()
	c := t.idlest(t.o.Replace)
	if c != nil {
		t.counts.evicted.Add(1)
		t.remove(c)
	}
	t.mu.Unlock()

	if c != nil {
		c.abort()
	}
	return c != nil
}

func (t *ConnTable) removeClosed(c *limitedConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(c)
}

// remove removes a connection, unless that has happened.
func (t *ConnTable) remove(c *limitedConn) {
	conns := t.clients[c.client]
	i := slices.Index(conns, c)
	if i < 0 {
		return
	}
	t.open--
	t.share.Release()
	t.memory.release()
	if conns = slices.Delete(conns, i, i+1); len(conns) == 0 {
		delete(t.clients, c.client)
		delete(t.turns, c.client)
	} else {
		t.clients[c.client] = conns
	}
}
