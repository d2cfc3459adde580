package transport

import (
	"iter"
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
// connection replaces another one as places.go says.
type ConnTable struct {
	o      ConnLimits
	counts counters
	share  *descriptors.Share
	memory connMemory

	mu       sync.Mutex
	open     int
	openings openings
	clients  map[netip.Addr][]*limitedConn // by ClientKey, the oldest connection first
	turns    map[netip.Addr]turns          // of clients
	refused  map[netip.Addr]time.Time      // clients that may not connect before that time
}

// ConnLimits are the limits of a ConnTable.
type ConnLimits struct {
	Most      func() int // connections in all; nil or 0 is no limit
	PerClient int        // 0 is no limit; for Replace only
	// Replace lets every new connection in: at a limit it replaces the one that has been idle
	// longest, or, if none has been for a second, the one without data for the longest time of those
	// with or without requests, whichever are more. That is one of its own client if the client has
	// PerClient, else of the client that has most, else of those that have opened many lately, else of all.
	Replace     bool
	Buffer      int                 // the kernel's, in bytes, for each direction; 0 is that of the listener
	Descriptors *descriptors.Budget // may be nil
	Memory      *memory.Budget      // may be nil
	Metrics     *metrics.Registry   // may be nil
}

// freeProbes is how many connections a client may open within openingsPeriod, where a new one always gets
// in, before it loses one first: probes and scrapers open one for each request.
const freeProbes = 200

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
	// A connection that is refused, or replaces one of this table, costs no other listener one.
	replaced, ok := t.makeRoom(c.client)
	if replaced != nil {
		replaced.abort()
	}
	if !ok {
		return false
	}
	acquired := t.share.Acquire()

	t.mu.Lock()
	defer t.mu.Unlock()
	if !acquired {
		t.counts.overTotal.Add(1)
		t.open--
		t.memory.release()
		return false
	}
	c.opened = clock.Now()
	t.join(c)
	return true
}

// makeRoom counts one more connection of a client unless that is over a limit. It removes and
// returns the connection that it replaces.
func (t *ConnTable) makeRoom(client netip.Addr) (replaced *limitedConn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var choice choice
	switch own := t.clients[client]; {
	case t.o.PerClient > 0 && len(own) >= t.o.PerClient:
		replaced = idlest(slices.Values(own))
		t.counts.overClient.Add(1)
	case t.isFull() || !t.memory.reserve(t.open):
		t.counts.overTotal.Add(1)
		choice = t.openings.choose(client, len(own))
		if replaced = t.displaced(&choice, own); replaced == nil {
			return nil, false
		}
	}
	t.openings.add(client, choice)
	if replaced != nil {
		t.remove(replaced)
		t.memory.force()
	}
	t.open++
	return replaced, true
}

// join adds c to the connections of its client.
func (t *ConnTable) join(c *limitedConn) {
	if c.turns = t.turns[c.client]; c.turns == nil {
		c.turns = newTurns()
		t.turns[c.client] = c.turns
	}
	t.clients[c.client] = append(t.clients[c.client], c)
}

// leave removes c from those of its client, and reports whether it was one.
func (t *ConnTable) leave(c *limitedConn) bool {
	conns := t.clients[c.client]
	i := slices.Index(conns, c)
	if i < 0 {
		return false
	}
	if conns = slices.Delete(conns, i, i+1); len(conns) == 0 {
		delete(t.clients, c.client)
		delete(t.turns, c.client)
	} else {
		t.clients[c.client] = conns
	}
	return true
}

// identify counts c for its client, which was not known before. It returns false if c has been
// replaced meanwhile, or the client may not connect.
func (t *ConnTable) identify(c *limitedConn, client netip.Addr) bool {
	if t.refuses(client) {
		t.counts.overClient.Add(1)
		return false
	}
	c.endTurn() // that of the unknown client

	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leave(c) {
		return false
	}
	c.client = client
	t.openings.add(client, choice{})
	t.join(c)
	return true
}

func (t *ConnTable) isFull() bool {
	if t.o.Most == nil {
		return false
	}
	most := t.o.Most()
	return most > 0 && t.open >= most
}

// displaced returns the connection that one of a client with some may replace, or nil.
func (t *ConnTable) displaced(choice *choice, own []*limitedConn) *limitedConn {
	if !t.o.Replace {
		choice.newest = true // the requests of another one may not have ended, as those of a receiver of dnstap
		return t.yielding(choice)
	}
	if most := t.largest(len(own) + 1); most != nil {
		return idlest(slices.Values(most))
	}
	return t.idlest()
}

// yielding returns the connection that yields in a choice, or nil.
func (t *ConnTable) yielding(choice *choice) (found *limitedConn) {
	now := clock.Now()
	for client, conns := range t.clients {
		p := placed{client: client, conns: len(conns), opened: t.openings.count(client)}
		for _, c := range slices.Backward(conns) { // the newest first
			p.busy, p.asked = c.busy.Load(), c.asked.Load()
			p.idle, p.held = now-time.Duration(c.active.Load()), now-c.opened
			if choice.prefers(p) {
				found = c
			}
		}
	}
	return found
}

// largest returns the connections of the client that has most, if it has more than a number.
func (t *ConnTable) largest(than int) (most []*limitedConn) {
	for _, conns := range t.clients {
		if len(conns) > max(than, len(most)) {
			most = conns
		}
	}
	return most
}

// idlest returns the connection to close of those that have opened most lately, if these are many, else
// of all clients: see the function.
func (t *ConnTable) idlest() *limitedConn {
	most := 0
	for client := range t.clients {
		most = max(most, t.openings.count(client)-freeProbes)
	}
	return idlest(func(yield func(*limitedConn) bool) {
		for client, conns := range t.clients {
			if most > 0 && t.openings.count(client)-freeProbes < most {
				continue
			}
			for _, c := range conns {
				if !yield(c) {
					return
				}
			}
		}
	})
}

// idlest returns the connection to close, or nil if there is none: the one that has been idle longest,
// if that is longer than freshConn. Of others it is one without requests, unless more have some: then
// probes, which are about to send one, are not among the many that do not read their replies.
func idlest(conns iter.Seq[*limitedConn]) *limitedConn {
	var oldest [2]*limitedConn // without requests, and with
	var n [2]int
	for c := range conns {
		kind := 0
		if c.busy.Load() {
			kind = 1
		}
		n[kind]++
		if o := oldest[kind]; o == nil || c.active.Load() < o.active.Load() {
			oldest[kind] = c
		}
	}

	idle := oldest[0]
	switch {
	case oldest[1] == nil:
		return idle
	case idle == nil:
		return oldest[1]
	case n[0] < n[1] && clock.Now()-time.Duration(idle.active.Load()) <= freshConn:
		return oldest[1]
	}
	return idle
}

// evict closes a connection for one of another listener. It reports whether there is one.
func (t *ConnTable) evict() bool {
	t.mu.Lock()
	var c *limitedConn
	if t.o.Replace {
		c = t.idlest()
	} else {
		c = t.yielding(&choice{others: true})
	}
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
	if t.leave(c) {
		t.open--
		t.share.Release()
		t.memory.release()
	}
}
