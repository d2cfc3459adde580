package forward

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

const (
	// firstUnanswered is how long a name and type that no upstream answers is not asked for again
	// after its first failure (RFC 9520 §3.2); the option unanswered limits how far that doubles.
	firstUnanswered = time.Second
	// maxUnanswered bounds the names and types that are remembered, of which one client has a
	// sixteenth at most: random names neither displace those of others nor need more memory.
	maxUnanswered       = 4096
	maxUnansweredClient = maxUnanswered / 16
)

var errUnanswered = errors.New("no upstream has answered the name and type a moment ago")

// An unansweredNames remembers the names and types that no upstream answers, while upstreams
// answer others.
type unansweredNames struct {
	limit time.Duration // of the option; zero remembers nothing

	mu      sync.Mutex
	names   map[uint64]unanswered // by silenceKey
	clients map[netip.Addr]int    // the number of names by client
	swept   time.Duration         // of package clock
}

// An unanswered is one name and type.
type unanswered struct {
	until  time.Duration // of package clock
	wait   time.Duration
	client netip.Addr // that asked for it first, or the /64 of its IPv6 address
}

// isForgotten reports whether a further failure counts as the first: the name has been asked for
// again, or could have been, long ago.
func (n unanswered) isForgotten(now time.Duration) bool {
	return now > n.until+n.wait+2*exchangeTimeout
}

// usual is the variant of a query that stub resolvers send. Upstreams that do not answer it answer
// no other: what is remembered of it holds for all.
var usual = request{flags: wire.FlagRD}

// silenceKey returns the key for a name and type, whose hash that is, and a class and variant of
// the query: an upstream may drop queries with DO, CD or options alone, and one client with such
// queries must not silence the name for others.
func silenceKey(hash uint64, class wire.Class, r *request) uint64 {
	variant := uint64(class)<<32 | uint64(r.flags&(wire.FlagRD|wire.FlagCD))<<8
	if r.do {
		variant |= 1
	}
	if len(r.options) > 0 {
		variant |= 2
	}
	return hash ^ variant*0x9e3779b97f4a7c15 // the odd number spreads the bits
}

// silent reports whether a request is not sent at present.
func (u *unansweredNames) silent(hash uint64, r *request) bool {
	class := r.class()
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.names) > 0 && (u.has(silenceKey(hash, class, r)) || u.has(silenceKey(hash, class, &usual)))
}

// has reports whether what has the key is not asked for at present. The caller holds mu.
func (u *unansweredNames) has(key uint64) bool {
	n, ok := u.names[key]
	return ok && clock.Now() < n.until
}

// remove is called when an upstream has answered.
func (u *unansweredNames) remove(key uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delete(key)
}

func (u *unansweredNames) delete(key uint64) {
	n, ok := u.names[key]
	if !ok {
		return
	}
	delete(u.names, key)
	if u.clients[n.client]--; u.clients[n.client] == 0 {
		delete(u.clients, n.client)
	}
}

// add is called when no upstream has answered.
func (u *unansweredNames) add(key uint64, client netip.Addr) {
	if u.limit == 0 {
		return
	}
	client = slots.Client(client)
	now := clock.Now()
	u.mu.Lock()
	defer u.mu.Unlock()

	n, known := u.names[key]
	switch {
	case known && now < n.until: // similar queries that were sent at the same time are one failure
		return
	case known && n.isForgotten(now):
		n.wait = 0
	case !known && !u.hasRoom(client, now):
		return
	case !known:
		n.client = client
		u.clients[client]++
	}

	n.wait = min(max(firstUnanswered, 2*n.wait), u.limit)
	n.until = now + n.wait
	u.names[key] = n
}

// hasRoom reports whether another name of the client may be remembered. It deletes those that are
// forgotten, at most once a second, since it reads all.
func (u *unansweredNames) hasRoom(client netip.Addr, now time.Duration) bool {
	if u.names == nil {
		u.names, u.clients, u.swept = map[uint64]unanswered{}, map[netip.Addr]int{}, now
	}
	full := func() bool { return len(u.names) >= maxUnanswered || u.clients[client] >= maxUnansweredClient }
	if full() && now-u.swept >= time.Second {
		u.swept = now
		for key, n := range u.names {
			if n.isForgotten(now) {
				u.delete(key)
			}
		}
	}
	return !full()
}

// remember keeps the result of x in mind, if it has been sent: that one has answered, or that no
// upstream has though one answers others, or not with a usable reply. An upstream has answered
// others if it did so since x began; if it closes connections, which takes no time, shortly before.
func (x *exchange) remember() {
	names, key := &x.set.unanswered, silenceKey(x.hash, x.class(), &x.request)
	if x.reply != nil {
		names.remove(key)
		return
	}

	if _, ok := x.err.(*faultError); ok { // also over UDP alone
		names.add(key, x.client)
		return
	}
	since := x.began
	if x.used != nil && x.used.closed {
		since -= exchangeTimeout
	} else if !isTimeout(x.err) {
		return
	}
	for _, u := range x.candidates {
		if answered := time.Duration(u.lastReply.Load()); answered > 0 && answered >= since {
			names.add(key, x.client)
			return
		}
	}
}
