package transport

import (
	"cmp"
	"net/netip"
	"time"
)

// A listener has a number of places for connections, by its limit or its memory. When all are taken, a
// new connection of a client gets the place of another one, of the first kind of which there is one:
//
//  1. ofMost: without queries, of a client that has more than the new one's client, and two or more; the
//     client that has most loses one
//  2. own: without queries, of the new one's client
//  3. unused: without queries for freshConn, of a client that has no other; first one that has sent none
//  4. busyOfMost: with queries, of a client that has at least two more than the new one's client
//  5. long: with queries, and open for longer than longQuery, of a client that has no other
//  6. inUse: of a client that has no other, and has opened as many lately as the new one's client, or more;
//     one without queries also if the new one's client has opened no more than freeOpenings
//
// Kinds 3, 5 and 6 yield only to a client that has no connection. Of those of kind 3 and 6 first yields
// that of the client that has opened most lately, if that is more than the new one's client and
// freeOpenings; then of kinds 5 and 6 the oldest, and of the others the one without data for the longest
// time. If there is none, the new one is refused.
//
// So each client has one place before another one has two (1, 4). Where more clients than places want one,
// those that do not use it give it away (3), those that use it without end have it in turns (5), and a
// client that connects again and again takes none from a client that does not (6).
//
// A connection whose query waits yields to no client that connects as often before longQuery: the upstream may
// be slow, and each query that waits would be lost to an attacker who connects from another address. So
// while attackers at more addresses than places keep slow queries open, a new client may have to connect
// again for that time.
//
// RFC 7766 §6.2.3 allows a server to close connections, idle ones above all.

const (
	// freshConn is how long a connection without requests counts as one that is about to send some.
	freshConn = time.Second
	// longQuery is how long a query may wait in a handler: a connection that is older has had answers.
	longQuery = 10 * time.Second
	// freeOpenings is how often a client may connect within openingsPeriod before it counts as one that
	// connects again and again. Attackers have many addresses, each with as many.
	freeOpenings = 20
	// taken is for how many a connection counts that has got the place of another client's: one that has
	// found a free place does not yield to it at once.
	taken = 2
	// openingsPeriod is for how long a connection that a client has opened counts at least.
	openingsPeriod = 10 * time.Second
	// maxOpeners bounds the clients whose connections are counted in a period: it ends early with more.
	maxOpeners = 1024
)

// A placed is a connection that has a place, for a choice.
type placed struct {
	client netip.Addr
	conns  int           // of the client
	opened int           // by the client lately: see openings
	busy   bool          // has queries that are not answered
	asked  bool          // has sent a query
	idle   time.Duration // time since it was used
	held   time.Duration // time since it was opened
}

// openings counts the connections that clients have opened in this period and in the one before it, but
// for those that replaced one of a client with more. It counts only while there are not enough places.
type openings struct {
	scarce        time.Time // the last choice
	period        int
	began         time.Time
	now, previous map[netip.Addr]int
}

// count returns the number of connections that a client has opened lately.
func (o *openings) count(client netip.Addr) int {
	if len(o.now) == 0 && len(o.previous) == 0 {
		return 0
	}
	return o.now[client] + o.previous[client]
}

// add counts a connection that a client has opened, with the choice for it if there was one.
func (o *openings) add(client netip.Addr, c choice) {
	n := 1
	switch {
	case o.now == nil, c.found && (c.best.kind == ofMost || c.best.kind == busyOfMost):
		return
	case c.found:
		n = taken
	}
	now := time.Now()
	if now.Sub(o.scarce) > openingsPeriod {
		o.now, o.previous = nil, nil
		o.period++
		return
	}
	o.expire(now)
	o.now[client] += n
}

// attempt counts an attempt of a client to open a connection, whether or not there are enough places, and
// returns the number of them lately.
func (o *openings) attempt(client netip.Addr) int {
	o.expire(time.Now())
	o.now[client]++
	return o.count(client)
}

// expire begins another period if one is over.
func (o *openings) expire(now time.Time) {
	age := now.Sub(o.began)
	if o.now != nil && age < openingsPeriod && len(o.now) < maxOpeners {
		return
	}
	o.previous, o.now = o.now, map[netip.Addr]int{}
	if age >= 2*openingsPeriod {
		o.previous = nil
	}
	o.began = now
	o.period++
}

// choose begins a choice for a new connection of a client that has some.
func (o *openings) choose(client netip.Addr, conns int) choice {
	o.scarce = time.Now()
	o.expire(o.scarce)
	return choice{client: client, conns: conns, opened: o.count(client) + taken, free: freeOpenings}
}

// A choice finds the connection that gives its place to a new one.
type choice struct {
	client netip.Addr // of the new one
	conns  int        // of the client, without the new one
	opened int        // by the client lately, with the new one
	free   int        // see freeOpenings
	others bool       // the new one is of another listener: only connections without queries yield
	newest bool       // of those with queries of the client that has most the newest yields
	found  bool
	best   rank
}

// A rank orders the connections that may yield: the lowest one does.
type rank struct {
	kind   int
	conns  int           // of the client; the most yields first
	opened int           // by the client, if more than by the new one's; the most yields first
	asked  int           // 1 if it has sent a query: others yield first
	unused time.Duration // the longest yields first
	idle   time.Duration
}

// prefers reports whether a connection yields before all others that it was called for.
func (c *choice) prefers(p placed) bool {
	r := rank{kind: c.kind(p), unused: p.idle, idle: p.idle}
	if r.kind == none || c.found && r.kind > c.best.kind {
		return false
	}

	switch r.kind {
	case ofMost:
		r.conns = p.conns
	case unused:
		r.opened = max(p.opened, c.opened, c.free)
		if p.asked {
			r.asked = 1
		}
	case busyOfMost:
		if r.conns = p.conns; c.newest {
			r.unused, r.idle = -p.held, 0
		}
	case long, inUse:
		r.opened, r.unused = max(p.opened, c.opened, c.free), p.held
	}

	if c.found && r.compare(c.best) >= 0 {
		return false
	}
	c.best, c.found = r, true
	return true
}

// The kinds of connections that yield, in their order.
const (
	ofMost = iota
	own
	unused
	busyOfMost
	long
	inUse
	none
)

func (c *choice) kind(p placed) int {
	switch {
	case !p.busy && (c.others || p.conns > max(1, c.conns)):
		return ofMost
	case c.others:
		return none
	case !p.busy && p.client == c.client:
		return own
	case p.busy && p.conns > c.conns+1:
		return busyOfMost
	case p.conns > 1 || c.conns > 0:
		return none

	case !p.busy && p.idle >= freshConn:
		return unused
	case p.busy && p.held > longQuery:
		return long
	case p.opened >= c.opened, !p.busy && c.opened <= c.free:
		return inUse
	}
	return none
}

func (r rank) compare(o rank) int {
	return cmp.Or(
		cmp.Compare(r.kind, o.kind), cmp.Compare(o.conns, r.conns), cmp.Compare(o.opened, r.opened),
		cmp.Compare(r.asked, o.asked), cmp.Compare(o.unused, r.unused), cmp.Compare(o.idle, r.idle))
}
