package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
)

const (
	// maxUnverified is the largest number of handshakes at the same time without a
	// proof that the clients receive at their addresses.
	maxUnverified = 32
	// evictionReserve is how far the number of connections may approach the limit before
	// every client has to prove it: only such a client may replace the connection of another
	// one.
	evictionReserve = 32
)

var errTooManyConnections = errors.New("too many connections")

// Sessions bounds the connections of a protocol over UDP, whose library accepts them. The
// limits are MaxConns of the options or of SetMaxConns, and MaxConnsPerClient. Its methods
// are safe for concurrent use.
type Sessions struct {
	o      Options
	counts counters
	start  time.Time
	memory connMemory

	mu       sync.Mutex
	most     int // limit of open
	open     int // including handshakes
	ready    map[*Session]struct{}
	clients  map[netip.Addr]int
	openings openings
	attempts openings                    // handshakes of clients whose addresses are proven, refused ones included
	pending  map[*handshakeSlot]struct{} // handshakes that are not complete
	shares   slots.Counter               // of pending
	closed   bool                        // no handshakes are accepted
}

// A Session is a connection whose handshake is complete.
type Session struct {
	close   func()
	client  netip.Addr
	slot    *handshakeSlot
	start   time.Time
	opened  time.Duration // since start
	queries atomic.Int64  // being answered
	asked   atomic.Bool   // the client has sent a query
	active  atomic.Int64  // time of the last query or reply, since start
	unacked int64         // bytes of Grow; guarded by the lock of the Sessions
	removed bool          // guarded by it, too
}

// NewSessions returns Sessions for a listener with these messages.
func NewSessions(m *Messages) *Sessions {
	return &Sessions{
		o: m.o, counts: m.counts, most: m.o.MaxConns, start: time.Now(), memory: connMemory{m.o.Memory, memory.QUIC, sessionSize},
		ready: map[*Session]struct{}{}, clients: map[netip.Addr]int{}, pending: map[*handshakeSlot]struct{}{},
	}
}

// SetMaxConns sets the limit of future connections.
func (s *Sessions) SetMaxConns(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = n
}

// NeedsVerification reports whether a client whose address may be forged has to show that
// it receives packets before the server keeps state for it.
func (s *Sessions) NeedsVerification() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.needsVerification()
}

func (s *Sessions) needsVerification() bool {
	most := s.limit()
	return s.open-len(s.ready) >= min(maxUnverified, most/4) || s.open >= most-min(evictionReserve, most/4)
}

// limit returns the number of connections that the configuration and the memory permit. The handshakes of one
// client must not fill that memory either.
func (s *Sessions) limit() int { return min(s.most, s.memory.room()) }

// Count returns the number of connections, including handshakes.
func (s *Sessions) Count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.open)
}

// Begin counts a connection before its handshake, until ctx ends, and returns the context for it. The
// handshake waits for its turn within a time. Begin returns an error if the connection is over a limit.
// At the limit of all connections it closes the one that replaceable returns. Once clients have to be
// verified, half of the connections may be incomplete, since the library closes no such connection, and
// of these a client has at most as many as are free.
func (s *Sessions) Begin(ctx context.Context, peer net.Addr, within time.Duration) (context.Context, error) {
	client := ClientKey(AddrPort(peer).Addr())
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return nil, net.ErrClosed
	}
	shared := s.needsVerification() // the address of the first ones may be forged
	if s.clients[client] >= s.o.MaxConnsPerClient || shared && !s.admitHandshake(client) {
		s.counts.overClient.Add(1)
		return nil, errTooManyConnections
	}
	var choice choice
	if s.open >= s.most || !s.memory.reserve(s.open) {
		choice = s.openings.choose(client, s.clients[client])
		evicted := s.replaceable(&choice)
		if evicted == nil {
			if shared {
				s.shares.Done(client)
			}
			s.counts.overTotal.Add(1)
			return nil, errTooManyConnections
		}
		s.counts.evicted.Add(1)
		delete(s.ready, evicted)
		s.forget(evicted.slot)
		evicted.close()
		s.memory.force() // that of the other one is released when it has ended
	}

	s.open++
	s.clients[client]++
	s.openings.add(client, choice)
	slot := &handshakeSlot{client: client, shared: shared, deadline: time.Now().Add(within)}
	s.pending[slot] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endPending(slot)
		s.forget(slot)
		s.open--
		s.memory.release()
	})
	return handshakeContext{ctx, slot}, nil
}

// forget counts one connection less for a client. One that has given its place to another one does not
// count while it ends.
func (s *Sessions) forget(slot *handshakeSlot) {
	if slot == nil || slot.forgotten {
		return
	}
	slot.forgotten = true
	if s.clients[slot.client]--; s.clients[slot.client] == 0 {
		delete(s.clients, slot.client)
	}
}

// admitHandshake reports whether a client may have another incomplete handshake. A quarter of them is for
// clients that have not tried often lately: those of the others may all wait for a packet that never comes.
// If none is free, a client without one has the place of one that waits for its turn, of the client that
// has most.
func (s *Sessions) admitHandshake(client netip.Addr) bool {
	limit := int64(max(1, s.limit()/2))
	most := limit
	if s.attempts.attempt(client) > freeOpenings {
		most -= limit / 4
	}
	if s.shares.TryAdd(client, most) {
		return true
	}

	counts := map[netip.Addr]int{}
	for slot := range s.pending {
		if slot.shared {
			counts[slot.client]++
		}
	}
	var replaced *handshakeSlot
	for slot := range s.pending {
		if n := counts[slot.client]; counts[client] > 0 || !slot.shared || !slot.isWaiting() ||
			replaced != nil && (n < counts[replaced.client] ||
				n == counts[replaced.client] && slot.deadline.After(replaced.deadline)) {
			continue
		}
		replaced = slot
	}
	if replaced == nil {
		return false
	}
	replaced.end()
	s.endPending(replaced)
	s.counts.evicted.Add(1)
	return s.shares.TryAdd(client, limit)
}

func (s *Sessions) endPending(slot *handshakeSlot) {
	if _, ok := s.pending[slot]; ok {
		delete(s.pending, slot)
		if slot.shared {
			s.shares.Done(slot.client)
		}
	}
}

// Suspend ends the handshakes that wait for their turn, and refuses others until Resume: the
// library waits for all of them before it closes its listener.
func (s *Sessions) Suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for slot := range s.pending {
		slot.end()
	}
}

// Resume accepts connections again.
func (s *Sessions) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
}

// replaceable returns the session that yields, or nil: see places.go.
func (s *Sessions) replaceable(choice *choice) (found *Session) {
	now := time.Since(s.start)
	for c := range s.ready {
		if choice.prefers(placed{
			client: c.client, conns: s.clients[c.client], opened: s.openings.count(c.client),
			busy: c.queries.Load() > 0, asked: c.asked.Load(),
			idle: now - time.Duration(c.active.Load()), held: now - c.opened,
		}) {
			found = c
		}
	}
	return found
}

// Add adds a connection whose handshake is complete, with a context from Begin's. Its close must not
// block.
func (s *Sessions) Add(ctx context.Context, peer net.Addr, close func()) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, ok := ctx.Value(handshakeKey{}).(*handshakeSlot)
	if ok {
		s.endPending(slot)
	}
	c := &Session{
		close: close, client: ClientKey(AddrPort(peer).Addr()), slot: slot, start: s.start, opened: time.Since(s.start),
	}
	c.touch()
	s.ready[c] = struct{}{}
	return c
}

// Grow counts the memory of replies that a client may leave unacknowledged, up to a number of bytes. It returns
// false if there is no memory, or the connection has ended.
func (s *Sessions) Grow(c *Session, unacked int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := max(0, unacked-c.unacked)
	if c.removed || more > 0 && s.o.Memory.Reserve(memory.QUIC, more) != nil {
		return false
	}
	c.unacked += more
	return true
}

// Remove removes a connection that ends.
func (s *Sessions) Remove(c *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ready, c)
	s.o.Memory.Release(memory.QUIC, c.unacked)
	c.removed, c.unacked = true, 0
}

// StartQuery counts a query that is being answered.
func (c *Session) StartQuery() {
	c.queries.Add(1)
	c.asked.Store(true)
	c.touch()
}

// Inactive returns the time since the last query or reply.
func (c *Session) Inactive() time.Duration {
	return time.Since(c.start) - time.Duration(c.active.Load())
}

func (c *Session) touch() { c.active.Store(int64(time.Since(c.start))) }

// EndQuery is called once for each StartQuery.
func (c *Session) EndQuery() {
	c.touch()
	c.queries.Add(-1)
}

// CountSlowSender counts a query that was not complete in time.
func (s *Sessions) CountSlowSender() { s.counts.slowSender.Add(1) }

// CountSlowReader counts a reply that was not read in time.
func (s *Sessions) CountSlowReader() { s.counts.slowReader.Add(1) }
