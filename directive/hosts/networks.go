package hosts

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
)

// networks is the IPv4 networks that the machine is in, by its own addresses in
// them. They are read when it begins, and when a query finds that they may have
// changed: it does not wait for that. A nil one knows none.
type networks struct {
	read  func() ([]netip.Prefix, error) // the machine's addresses with their networks' lengths
	log   *slog.Logger
	known atomic.Pointer[reading]
	stale chan struct{} // has room for one
	stop  context.CancelFunc
	tasks sync.WaitGroup
}

// A reading is what networks were once.
type reading struct {
	of map[netip.Addr]netip.Prefix
	at time.Time
}

const (
	// networksAge is how old they may be: a prefix may change, and addresses move.
	networksAge = 30 * time.Second
	// networksRest is how seldom they are read when many ask an address that is
	// none of the machine's.
	networksRest = time.Second
)

// watchNetworks reads them by read, now and then, until Stop.
func watchNetworks(read func() ([]netip.Prefix, error), log *slog.Logger) *networks {
	ctx, cancel := context.WithCancel(context.Background())
	n := &networks{read: read, log: log, stale: make(chan struct{}, 1), stop: cancel}
	n.look()
	n.tasks.Go(func() { n.run(ctx) })
	return n
}

// Stop ends the reading.
func (n *networks) Stop() {
	n.stop()
	n.tasks.Wait()
}

func (n *networks) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.stale:
			n.look()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(networksRest):
		}
	}
}

// look reads the networks. Those of before stay if that fails.
func (n *networks) look() {
	r := &reading{of: map[netip.Addr]netip.Prefix{}, at: time.Now()}
	addrs, err := n.read()
	if err != nil {
		n.log.Warn("hosts: localise: " + err.Error())
		if old := n.known.Load(); old != nil {
			r.of = old.of
		}
	}
	for _, p := range addrs {
		if p.Addr().Is4() {
			r.of[p.Addr()] = p.Masked()
		}
	}
	n.known.Store(r)
}

// near gives the network of the address that was asked; some says whether any of
// these addresses, of four bytes each, is in it.
func (n *networks) near(q *dns.Query, v4 []byte) (near netip.Prefix, some bool) {
	if n == nil || !q.Local.Addr().Is4() {
		return near, false
	}
	r := n.known.Load()
	near, ok := r.of[q.Local.Addr()]
	if !ok || q.Now().Sub(r.at) > networksAge {
		select {
		case n.stale <- struct{}{}:
		default: // somebody was quicker
		}
	}
	for ; ok && len(v4) > 0 && !some; v4 = v4[4:] {
		some = near.Contains(netip.AddrFrom4([4]byte(v4)))
	}
	return near, some
}
