package forward

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
)

// mostUpstreams is how many one forward may have, as in CoreDNS.
const mostUpstreams = 15

// Upstreams is the servers of one forward, with their sockets, latencies and
// health. They outlive a reload that changes nothing about them. Everything
// that runs for them runs in spawn, and has ended when Stop returns.
type upstreams struct {
	options  options
	log      *slog.Logger
	registry *metrics.Registry
	resolver *net.Resolver
	sessions tls.ClientSessionCache

	coalesced *metrics.Counter
	broken    *metrics.Counter

	ctx     context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup

	roster atomic.Pointer[roster]
	robin  atomic.Uint32

	flight  sync.Mutex
	flights map[string]*exchange
}

// A roster is the upstreams at one time, in the order of the Corefile and of
// the files it names. It does not change.
type roster struct {
	all     []*upstream
	changed chan struct{} // closed when there is another roster
}

// newUpstreams begins to follow the places of o. It waits until names of hosts
// have been looked up once, but not long, and not for ever.
func newUpstreams(ctx context.Context, o options, log *slog.Logger, r *metrics.Registry) *upstreams {
	s := &upstreams{
		options:   o,
		log:       log,
		registry:  r,
		sessions:  tls.NewLRUClientSessionCache(0),
		coalesced: r.Counter("seamark_forward_coalesced_total", "Questions that waited for the answer to an equal one that was under way."),
		broken:    r.Counter("coredns_forward_healthcheck_broken_total", "Questions for which every upstream was down."),
		flights:   map[string]*exchange{},
	}
	s.resolver = &net.Resolver{PreferGo: true}
	if len(o.resolvers) > 0 {
		s.resolver = &net.Resolver{PreferGo: true, Dial: s.dialResolver}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.roster.Store(&roster{changed: make(chan struct{})})
	f := newFollower(s)
	first, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	f.look(first)
	s.spawn(f.run)
	return s
}

// dialResolver connects to one of those that `resolver` names.
func (s *upstreams) dialResolver(ctx context.Context, network, _ string) (net.Conn, error) {
	to := s.options.resolvers[rand.IntN(len(s.options.resolvers))]
	return s.options.dialer(network, to.Addr()).DialContext(ctx, network, to.String())
}

// spawn runs f until it returns, and Stop waits for it. It says false if Stop
// has been called.
func (s *upstreams) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Go(f)
	return true
}

// Stop ends everything and waits for it.
func (s *upstreams) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
	for _, u := range s.roster.Load().all {
		u.retire() // HTTP keeps its connections
	}
}

// become makes targets the upstreams. Those that were there before go on with
// what they have.
func (s *upstreams) become(targets []target) {
	old := s.roster.Load()
	next := &roster{changed: make(chan struct{})}
	for _, t := range targets {
		i := slices.IndexFunc(old.all, func(u *upstream) bool { return u.target == t })
		if i >= 0 {
			next.all = append(next.all, old.all[i])
		} else {
			next.all = append(next.all, &upstream{target: t, set: s, counted: newSeries(s.registry, t)})
		}
	}
	s.roster.Store(next)
	close(old.changed)
	for _, u := range old.all {
		if !slices.Contains(next.all, u) {
			u.retire()
		}
	}
}

// order says whom to ask, best first. Without a healthy upstream the error says
// why; with errUnhealthy there is one to try all the same, unless that has been
// forbidden.
func (s *upstreams) order(excluded *exclusion) ([]*upstream, error) {
	all := s.roster.Load().all
	if len(all) == 0 {
		return nil, errNone
	}
	usable := make([]*upstream, 0, len(all))
	for _, u := range all {
		if !excluded.has(u.String()) {
			usable = append(usable, u)
		}
	}
	if len(usable) == 0 {
		return nil, errLooped
	}
	s.arrange(usable)
	healthy := make([]*upstream, 0, len(usable))
	var slow []*upstream
	now := time.Now()
	for _, u := range usable {
		switch {
		case u.down():
		case u.suspect(now):
			slow = append(slow, u)
		default:
			healthy = append(healthy, u)
		}
	}
	healthy = append(healthy, slow...)
	if len(healthy) > 0 {
		return healthy, nil
	}
	if s.options.failfast {
		return nil, errUnhealthy
	}
	i := rand.IntN(len(usable))
	return usable[i : i+1], errUnhealthy
}

// arrange puts us into the order of the policy.
func (s *upstreams) arrange(us []*upstream) {
	switch s.options.policy {
	case sequential:
	case roundRobin:
		n := int(s.robin.Add(1)-1) % len(us)
		slices.Reverse(us[:n])
		slices.Reverse(us[n:])
		slices.Reverse(us)
	default:
		rand.Shuffle(len(us), func(i, j int) { us[i], us[j] = us[j], us[i] })
	}
}

// tlsFor is the configuration of connections to one upstream.
func (s *upstreams) tlsFor(t target) *tls.Config {
	c := s.options.tls.Clone()
	c.ClientSessionCache = s.sessions
	switch {
	case s.options.serverName != "":
		c.ServerName = s.options.serverName
	case t.scheme == overHTTPS: // the URL says it
	case t.server != "":
		c.ServerName = t.server
	default:
		c.ServerName = t.addr.Addr().WithZone("").String()
	}
	return c
}

// places gives the targets of each place as they are now.
func (s *upstreams) targets(found [][]netip.Addr) (targets []target) {
	for i, p := range s.options.to {
		switch {
		case p.scheme == overHTTPS:
			targets = append(targets, target{scheme: p.scheme, url: p.url})
		case p.addr.IsValid():
			targets = append(targets, p.at(p.addr.Addr()))
		default:
			for _, addr := range found[i] {
				targets = append(targets, p.at(addr))
			}
		}
	}
	var once []target
	for _, t := range targets {
		if !slices.Contains(once, t) && len(once) < mostUpstreams {
			once = append(once, t)
		}
	}
	return once
}
