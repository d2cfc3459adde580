package forward

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
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
	names   map[uint64]unanswered // by the hash of name and type
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

// has reports whether the name and type are not asked for at present.
func (u *unansweredNames) has(hash uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, ok := u.names[hash]
	return ok && clock.Now() < n.until
}

// remove is called when an upstream has answered.
func (u *unansweredNames) remove(hash uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delete(hash)
}

func (u *unansweredNames) delete(hash uint64) {
	n, ok := u.names[hash]
	if !ok {
		return
	}
	delete(u.names, hash)
	if u.clients[n.client]--; u.clients[n.client] == 0 {
		delete(u.clients, n.client)
	}
}

// add is called when no upstream has answered.
func (u *unansweredNames) add(hash uint64, client netip.Addr) {
	if u.limit == 0 {
		return
	}
	if client.Is6() {
		client = netip.PrefixFrom(client.WithZone(""), 64).Masked().Addr()
	}
	now := clock.Now()
	u.mu.Lock()
	defer u.mu.Unlock()

	n, known := u.names[hash]
	switch {
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
	u.names[hash] = n
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
		for hash, n := range u.names {
			if n.isForgotten(now) {
				u.delete(hash)
			}
		}
	}
	return !full()
}

// remember keeps the result of x in mind, if it has been sent: that no upstream has answered it,
// though one has answered something else since x began, or that one has.
func (x *exchange) remember() {
	names := &x.set.unanswered
	if x.reply != nil {
		names.remove(x.hash)
		return
	}

	_, faulty := x.err.(*faultError)
	replied := faulty || isTimeout(x.err)
	for _, u := range x.candidates {
		if replied && time.Duration(u.lastReply.Load()) >= x.began {
			names.add(x.hash, x.client)
			return
		}
	}
}
