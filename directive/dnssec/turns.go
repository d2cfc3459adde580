package dnssec

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
)

// maxWaiting is the number of signatures that may wait for one client. Most of the
// places for waiting queries are free for other clients then.
const maxWaiting = 128

var errWaiting = errors.New("too many signatures are waiting for the client")

// turns bounds the number of signatures that are made at the same time, and lets
// clients take turns when more are needed. All server blocks share one.
type turns struct {
	mu      sync.Mutex
	free    int            // signatures that may begin at once; zero if some wait
	clients []*clientTurns // those with waiting signatures, in the order of their turns
	byAddr  map[netip.Addr]*clientTurns
}

// clientTurns are the waiting signatures of one client.
type clientTurns struct {
	addr    netip.Addr
	waiting []chan struct{} // closed when the turn has come
}

// newTurns returns turns that leave half of the processors to other work.
func newTurns() *turns {
	return &turns{free: max(1, runtime.GOMAXPROCS(0)/2), byAddr: map[netip.Addr]*clientTurns{}}
}

// Stop implements config.Stopper.
func (*turns) Stop() {}

// wait blocks until a signature for the client may be made. If it returns nil, the
// caller must call done.
func (t *turns) wait(ctx context.Context, client netip.Addr) error {
	if client.Is6() {
		client = netip.PrefixFrom(client.WithZone(""), 64).Masked().Addr()
	}

	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}

	c := t.byAddr[client]
	if c == nil {
		c = &clientTurns{addr: client}
		t.byAddr[client] = c
		t.clients = append(t.clients, c)
	}
	if len(c.waiting) >= maxWaiting {
		t.mu.Unlock()
		return errWaiting
	}

	turn := make(chan struct{})
	c.waiting = append(c.waiting, turn)
	t.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}

	t.mu.Lock()
	i := slices.Index(c.waiting, turn)
	if i >= 0 {
		if c.waiting = slices.Delete(c.waiting, i, i+1); len(c.waiting) == 0 {
			delete(t.byAddr, c.addr)
			t.clients = slices.DeleteFunc(t.clients, func(other *clientTurns) bool { return other == c })
		}
	}
	t.mu.Unlock()

	if i < 0 {
		t.done() // the turn has come meanwhile
	}
	return ctx.Err()
}

// done ends a turn.
func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 0 {
		t.free++
		return
	}

	c := t.clients[0]
	t.clients = slices.Delete(t.clients, 0, 1)
	close(c.waiting[0])
	if c.waiting = slices.Delete(c.waiting, 0, 1); len(c.waiting) > 0 {
		t.clients = append(t.clients, c)
	} else {
		delete(t.byAddr, c.addr)
	}
}
