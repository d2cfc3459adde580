// Package slots divides a bounded number of slots among clients: a client cannot hold all of
// them, and clients that wait for one take turns. A slot stands for a processor, a transfer, a
// request or anything else of which a server has only so many. Whoever serves several clients
// from one such supply uses a Pool. The package knows clients by their addresses only.
package slots

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
)

// maxWaiting is the default of Pool.MaxWaiting. Most of the places for waiting queries are free
// for other clients then.
const maxWaiting = 128

// ErrWaiting is the error of a client that waits for MaxWaiting slots.
var ErrWaiting = errors.New("the client waits for too many others of its own")

// Client returns the key under which a client is counted: an IPv4 address, or the /64 of an
// IPv6 address, within which a host may choose its address.
func Client(addr netip.Addr) netip.Addr {
	if addr = addr.Unmap(); !addr.Is6() {
		return addr
	}
	return netip.PrefixFrom(addr.WithZone(""), 64).Masked().Addr()
}

// A Pool has a number of slots. Its methods are safe for concurrent use.
type Pool struct {
	// MaxWaiting is the number of slots that one client may wait for at the same time.
	MaxWaiting int

	perClient int

	mu      sync.Mutex
	n, free int
	clients map[netip.Addr]*client
	turns   []*client // those that wait and hold less than perClient, in the order of their turns
}

// A client holds slots or waits for some.
type client struct {
	key     netip.Addr
	held    int
	waiting []chan struct{} // closed when the turn has come
}

// New returns a pool of n slots, of which a client may hold perClient.
func New(n, perClient int) *Pool {
	return &Pool{MaxWaiting: maxWaiting, perClient: perClient, n: n, free: n, clients: map[netip.Addr]*client{}}
}

// NewProcessors returns a pool with a slot for every other processor, for work that would keep
// queries waiting if it had all of them. Its slots are held for milliseconds, so that turns
// suffice and a client may hold all.
func NewProcessors() *Pool {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return New(n, n)
}

// TryAcquire reports whether the client at an address gets a slot at once. If so, the caller
// must call Release.
func (p *Pool) TryAcquire(addr netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(p.client(addr))
}

// Acquire blocks until the client at an address gets a slot, or ctx ends. If it returns nil,
// the caller must call Release.
func (p *Pool) Acquire(ctx context.Context, addr netip.Addr) error {
	return p.AcquireWithin(ctx, addr, p.MaxWaiting)
}

// AcquireWithin is Acquire with another number of slots that the client may wait for.
func (p *Pool) AcquireWithin(ctx context.Context, addr netip.Addr, maxWaiting int) error {
	p.mu.Lock()
	c := p.client(addr)
	if p.take(c) {
		p.mu.Unlock()
		return nil
	}
	if len(c.waiting) >= maxWaiting {
		p.mu.Unlock()
		return ErrWaiting
	}

	turn := make(chan struct{})
	c.waiting = append(c.waiting, turn)
	p.queue(c)
	p.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(c.waiting, turn); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		p.forget(c)
	} else {
		p.release(c) // the turn has come meanwhile
	}
	return ctx.Err()
}

// Release gives a slot of the client at an address to the client whose turn it is.
func (p *Pool) Release(addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(p.client(addr))
}

// Used returns how many slots are held.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n - p.free
}

// client returns the state of a client. The caller calls take, queue or forget.
func (p *Pool) client(addr netip.Addr) *client {
	key := Client(addr)
	c := p.clients[key]
	if c == nil {
		c = &client{key: key}
		p.clients[key] = c
	}
	return c
}

// take takes a slot for a client if it may have one. Clients that wait while there are free
// slots hold as many as they may.
func (p *Pool) take(c *client) bool {
	if p.free == 0 || c.held >= p.perClient {
		p.forget(c)
		return false
	}
	p.free--
	c.held++
	return true
}

// queue gives a waiting client a turn after the others, unless it has one.
func (p *Pool) queue(c *client) {
	p.clients[c.key] = c
	if len(c.waiting) > 0 && c.held < p.perClient && !slices.Contains(p.turns, c) {
		p.turns = append(p.turns, c)
	}
}

func (p *Pool) release(c *client) {
	p.free++
	c.held--
	p.queue(c)

	for p.free > 0 && len(p.turns) > 0 {
		next := p.turns[0]
		p.turns = slices.Delete(p.turns, 0, 1)
		p.free--
		next.held++
		close(next.waiting[0])
		next.waiting = slices.Delete(next.waiting, 0, 1)
		p.queue(next)
	}
	p.forget(c)
}

// forget removes a client that waits for no slot from the turns, and if it holds none its state.
func (p *Pool) forget(c *client) {
	if len(c.waiting) > 0 {
		return
	}
	if i := slices.Index(p.turns, c); i >= 0 {
		p.turns = slices.Delete(p.turns, i, i+1)
	}
	if c.held == 0 {
		delete(p.clients, c.key)
	}
}

// A Counter counts what clients have of a supply whose size may change. A client may have as much
// as is free: one client leaves half, two leave a third, and so on. Its methods are safe for
// concurrent use. The zero value is ready to use.
type Counter struct {
	mu      sync.Mutex
	used    int64
	clients map[netip.Addr]int64
}

// TryAdd counts one for the client at an address if it may have one more of limit. If it returns
// true, the caller must call Done.
func (c *Counter) TryAdd(addr netip.Addr, limit int64) bool {
	key := Client(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients[key] >= limit-c.used {
		return false
	}
	if c.clients == nil {
		c.clients = map[netip.Addr]int64{}
	}
	c.used++
	c.clients[key]++
	return true
}

// Done counts one less.
func (c *Counter) Done(addr netip.Addr) {
	key := Client(addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used--
	if c.clients[key]--; c.clients[key] == 0 {
		delete(c.clients, key)
	}
}

// Used returns the number for all clients.
func (c *Counter) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
