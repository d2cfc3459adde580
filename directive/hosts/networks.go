package hosts

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
)

// networks has the IPv4 networks of the machine's interfaces by the interfaces'
// addresses. They are read at first, and in the background when a query finds that
// they may have changed. A nil *networks has none.
type networks struct {
	*follow.Task
	read    func() ([]netip.Prefix, error) // returns the interfaces' addresses and prefix lengths
	log     *slog.Logger
	current atomic.Pointer[reading]
	stale   follow.Signal
}

// A reading holds the networks of one moment.
type reading struct {
	networks map[netip.Addr]netip.Prefix
	at       time.Time
}

const (
	// networksAge is the age at which they are read again.
	networksAge = 30 * time.Second
	// networksInterval is the shortest interval at which they are read, if queries
	// are sent to an address that no interface has.
	networksInterval = time.Second
)

// watchNetworks returns networks that follow the result of read until Stop.
func watchNetworks(read func() ([]netip.Prefix, error), log *slog.Logger) *networks {
	n := &networks{read: read, log: log, stale: follow.NewSignal()}
	n.refresh()
	n.Task = follow.Go(n.run)
	return n
}

func (n *networks) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.stale:
			n.refresh()
		}
		if !clock.Sleep(ctx, networksInterval) {
			return
		}
	}
}

// refresh reads the networks. It keeps the previous ones if that fails.
func (n *networks) refresh() {
	r := &reading{networks: map[netip.Addr]netip.Prefix{}, at: time.Now()}
	addrs, err := n.read()
	if err != nil {
		n.log.Warn("hosts: Failed to read the network interfaces", "error", err)
		if old := n.current.Load(); old != nil {
			r.networks = old.networks
		}
	}
	for _, p := range addrs {
		if p.Addr().Is4() {
			r.networks[p.Addr()] = p.Masked()
		}
	}
	n.current.Store(r)
}

// local returns the network of the address that q was sent to. some reports whether
// any of these addresses, of four bytes each, is in it.
func (n *networks) local(q *dns.Query, v4 []byte) (network netip.Prefix, some bool) {
	if n == nil || !q.Local.Addr().Is4() {
		return network, false
	}
	r := n.current.Load()
	network, ok := r.networks[q.Local.Addr()]
	if !ok || q.Now().Sub(r.at) > networksAge {
		n.stale.Send()
	}
	if !ok {
		return network, false
	}
	if many(v4) {
		return network, len(within(v4, network)) > 0
	}
	for ; len(v4) > 0 && !some; v4 = v4[4:] {
		some = network.Contains(netip.AddrFrom4([4]byte(v4)))
	}
	return network, some
}
