package slots

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
)

func idle(t *testing.T, p *Pool, free int) {
	t.Helper()
	if p.free != free || len(p.clients) != 0 || len(p.turns) != 0 {
		t.Errorf("at the end: got %d free slots, clients %v and turns %v, want %d and none", p.free, p.clients, p.turns, free)
	}
}

// Clients take turns, however many slots one of them needs.
func TestAcquireTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1)
		holder := netip.MustParseAddr("192.0.2.9")
		if err := p.Acquire(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 20)
		for _, client := range strings.Fields("192.0.2.1 192.0.2.1 192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2 ::ffff:192.0.2.2") {
			go func() {
				addr := netip.MustParseAddr(client)
				if err := p.Acquire(t.Context(), addr); err != nil {
					t.Errorf("%s: got %v, want a slot", client, err)
				}
				order <- client
				p.Release(addr)
			}()
			synctest.Wait()
		}
		p.Release(holder)
		synctest.Wait()
		close(order)
		var got []string
		for client := range order {
			got = append(got, client)
		}
		const want = "192.0.2.1 192.0.2.2 2001:db8::1 192.0.2.1 ::ffff:192.0.2.2 2001:db8::2 192.0.2.1"
		if strings.Join(got, " ") != want {
			t.Errorf("got turns of %s, want %s", got, want)
		}
		idle(t, p, 1)
	})
}

// A client that waits for too many slots gets an error, and others a turn.
func TestAcquireWaitingBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2*maxWaiting)
		flood, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		if !p.TryAcquire(flood) {
			t.Fatal("the first slot is not given")
		}
		for range maxWaiting + 10 {
			go func() { errs <- p.Acquire(ctx, flood) }()
		}
		synctest.Wait()
		if n := len(errs); n != 10 {
			t.Errorf("of %d requests %d did not wait, want 10", maxWaiting+10, n)
		}
		for range 10 {
			if err := <-errs; !errors.Is(err, ErrWaiting) {
				t.Errorf("got %v, want %v", err, ErrWaiting)
			}
		}
		served := make(chan error, 1)
		go func() { served <- p.Acquire(ctx, other) }()
		synctest.Wait()
		p.Release(flood)
		synctest.Wait()
		first := len(served) + len(errs)
		p.Release([]netip.Addr{flood, other}[len(served)])
		synctest.Wait()
		if first != 1 || len(served) != 1 {
			t.Errorf("got %d slots after one was released, and %d of the other client after two; want 1 and 1", first, len(served))
		}
		cancel()
		synctest.Wait()
		for a, c := range p.clients {
			for range c.held {
				p.Release(a)
			}
		}
		idle(t, p, 1)
	})
}

// A client that holds its share keeps no others from the free slots, also when it waits for more.
func TestAcquireShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(4, 2)
		ctx, cancel := context.WithCancel(t.Context())
		slow, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		got := make(chan error, 90)
		for range 90 {
			go func() { got <- p.Acquire(ctx, slow) }()
		}
		synctest.Wait()
		if len(got) != 2 {
			t.Errorf("got %d slots of one client, want 2", len(got))
		}
		if p.TryAcquire(slow) {
			t.Error("a client above its share gets a slot at once")
		}
		first, second := p.TryAcquire(other), p.TryAcquire(other)
		if !first || !second || p.TryAcquire(netip.MustParseAddr("192.0.2.3")) {
			t.Error("want two slots for the other client and none for a third")
		}
		p.Release(other)
		synctest.Wait()
		if len(got) != 2 || p.free != 1 {
			t.Errorf("after another client's: got %d slots of the first client and %d free, want 2 and 1", len(got), p.free)
		}
		p.Release(slow)
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("after one of its own: got %d slots in all, want 3", len(got))
		}
		cancel()
		synctest.Wait()
		p.Release(slow)
		p.Release(slow)
		p.Release(other)
		idle(t, p, 4)
	})
}

// One client leaves half of what is counted, and two leave a third.
func TestCounterShares(t *testing.T) {
	var c Counter
	add := func(client string, limit int64) (n int) {
		for c.TryAdd(netip.MustParseAddr(client), limit) {
			n++
		}
		return n
	}
	for _, step := range []struct {
		client string
		limit  int64
		want   int
	}{
		{"192.0.2.1", 12, 6}, {"192.0.2.1", 12, 0}, {"2001:db8::1", 12, 3}, {"2001:db8::2", 12, 0},
		{"192.0.2.2", 12, 2}, {"192.0.2.3", 12, 1}, {"192.0.2.4", 12, 0}, {"192.0.2.4", 14, 1}, {"192.0.2.5", 5, 0},
	} {
		if got := add(step.client, step.limit); got != step.want {
			t.Errorf("%s with a limit of %d: got %d, want %d", step.client, step.limit, got, step.want)
		}
	}
	for client, n := range map[string]int{"192.0.2.1": 6, "2001:db8::2": 3, "192.0.2.2": 2, "192.0.2.3": 1, "192.0.2.4": 1} {
		for range n {
			c.Done(netip.MustParseAddr(client))
		}
	}
	if c.Used() != 0 || len(c.clients) != 0 {
		t.Errorf("at the end: got %d of %d clients, want none", c.used, len(c.clients))
	}
}
