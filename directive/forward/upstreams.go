package forward

import (
	"context"
	"crypto/tls"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
)

// triedBefore is how many upstreams a query is sent to before the upstreams of the option
// fallback.
const triedBefore = 2

// maxUpstreams is the maximum number of upstreams of a forward, as in CoreDNS.
const maxUpstreams = 15

// An upstreamSet holds the upstreams of a forward, with their sockets, latencies
// and health. It outlives a reload that does not change its options. Its
// goroutines are started by spawn and have ended when Stop returns.
type upstreamSet struct {
	options  upstreamOptions
	log      *slog.Logger
	registry *metrics.Registry
	dialer   dialFunc // nil uses the operating system
	resolver *net.Resolver
	sessions tls.ClientSessionCache
	memory   *memory.Budget // may be nil
	health   *health.Board  // may be nil
	// minSilence is the minimum time in which a packet over QUIC has to be acknowledged: the upstream
	// has restarted if nothing is received in two such times.
	minSilence time.Duration

	coalesced *metrics.Counter
	allDown   *metrics.Counter
	skipped   *metrics.Counter // by unanswered

	ctx     context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup

	current         atomic.Pointer[upstreamList]
	roundRobinCount atomic.Uint32

	failed follow.Signal // an upstream has failed

	unanswered unansweredNames
	timers     clock.Timers // of exchanges
	exchangeMu sync.Mutex
	exchanges  map[uint64]*exchange // the first one for each name and type, by their hash
	seed       maphash.Seed
}

// An upstreamList holds the current upstreams, in the order of the Corefile and
// of the files that it names. It is immutable.
type upstreamList struct {
	all     []*upstream
	changed chan struct{} // closed when there is a newer list
}

// newUpstreamSet returns a running set of the upstreams of o. It waits for the
// first lookup of host names, at most resolveTimeout.
func newUpstreamSet(
	ctx context.Context, o upstreamOptions, dialer dialFunc, log *slog.Logger, r *metrics.Registry,
) *upstreamSet {
	s := &upstreamSet{
		options:  o,
		log:      log,
		registry: r,
		dialer:   dialer,
		sessions: tls.NewLRUClientSessionCache(0),

		minSilence: minSilence,
		coalesced:  r.Counter("seamark_forward_coalesced_total", "Queries that waited for the reply to an equal query."),
		allDown:    r.Counter("coredns_forward_healthcheck_broken_total", "Queries for which every upstream was down."),
		skipped: r.Counter("seamark_forward_unanswered_total",
			"Queries for a name and type that no upstream had answered a moment before, which were not sent."),
		failed:    follow.NewSignal(),
		exchanges: map[uint64]*exchange{},
		seed:      maphash.MakeSeed(),
	}

	s.unanswered.limit = o.unanswered
	s.resolver = &net.Resolver{PreferGo: true}
	if len(o.resolvers) > 0 {
		s.resolver = &net.Resolver{PreferGo: true, Dial: s.dialResolver}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.current.Store(&upstreamList{changed: make(chan struct{})})

	u := newUpdater(s)
	lookup, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	u.update(lookup)
	s.spawn(u.run)
	return s
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dial connects to an upstream or resolver.
func (s *upstreamSet) dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	if s.dialer != nil {
		return s.dialer(ctx, network, to.String())
	}
	return s.options.dialer(network, to.Addr()).DialContext(ctx, network, to.String())
}

// dialResolver connects to a server of the option resolver.
func (s *upstreamSet) dialResolver(ctx context.Context, network, _ string) (net.Conn, error) {
	to := s.options.resolvers[rand.IntN(len(s.options.resolvers))]
	return s.dial(ctx, network, to)
}

// enter makes Stop wait until running.Done is called. It returns false if Stop has
// been called.
func (s *upstreamSet) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running.Add(1)
	}
	return !s.stopped
}

// spawn runs f in a goroutine for which Stop waits. It returns false if Stop has
// been called.
func (s *upstreamSet) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running.Go(f)
	}
	return !s.stopped
}

// Stop ends all goroutines and exchanges of the set and waits for them.
func (s *upstreamSet) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.cancel()

	s.exchangeMu.Lock()
	var waiting []*exchange
	for _, x := range s.exchanges {
		for ; x != nil; x = x.nextSimilar {
			waiting = append(waiting, x)
		}
	}
	s.exchangeMu.Unlock()

	for _, x := range waiting {
		x.stop()
	}
	s.running.Wait()
	s.health.Forget(s)
	for _, u := range s.current.Load().all {
		u.retire() // closes the idle connections of package http
	}
}

// setUpstreams replaces the upstreams. An upstream with the same ID keeps its state.
func (s *upstreamSet) setUpstreams(ids []upstreamID) {
	old := s.current.Load()
	next := &upstreamList{changed: make(chan struct{})}
	for _, id := range ids {
		i := slices.IndexFunc(old.all, func(u *upstream) bool { return u.upstreamID == id })
		if i >= 0 {
			next.all = append(next.all, old.all[i])
		} else {
			next.all = append(next.all, newUpstream(s, id))
		}
	}
	s.current.Store(next)
	close(old.changed)

	for _, u := range old.all {
		if !slices.Contains(next.all, u) {
			u.retire()
		}
	}
}

// candidates returns the upstreams to query, best first. If all are down it returns
// errUnhealthy and, unless failfast_all_unhealthy_upstreams is set, one upstream to
// try.
func (s *upstreamSet) candidates(excluded []string) ([]*upstream, error) {
	all := s.current.Load().all
	if len(all) == 0 {
		return nil, errNoUpstream
	}

	usable := slices.DeleteFunc(slices.Clone(all), func(u *upstream) bool {
		return len(excluded) > 0 && slices.Contains(excluded, u.String())
	})
	if len(usable) == 0 {
		return nil, errLooped
	}
	s.applyPolicy(usable)

	healthy := make([]*upstream, 0, len(usable))
	var suspect, spare []*upstream
	now := time.Now()
	for _, u := range usable {
		switch {
		case u.down():
		case u.fallback:
			spare = append(spare, u)
		case u.suspect(now):
			suspect = append(suspect, u)
		default:
			healthy = append(healthy, u)
		}
	}

	healthy = append(slices.Insert(healthy, min(triedBefore, len(healthy)), spare...), suspect...)
	if len(healthy) > 0 {
		return healthy, nil
	}
	if s.options.failfast {
		return nil, errUnhealthy
	}
	i := rand.IntN(len(usable))
	return usable[i : i+1], errUnhealthy
}

// applyPolicy sorts us by the policy.
func (s *upstreamSet) applyPolicy(us []*upstream) {
	switch s.options.policy {
	case sequential:
	case roundRobin:
		n := int(s.roundRobinCount.Add(1)-1) % len(us)
		slices.Reverse(us[:n])
		slices.Reverse(us[n:])
		slices.Reverse(us)
	default:
		rand.Shuffle(len(us), func(i, j int) { us[i], us[j] = us[j], us[i] })
	}
}

// tlsConfig returns the configuration of connections to one upstream.
func (s *upstreamSet) tlsConfig(id upstreamID) *tls.Config {
	c := s.options.tls.Clone()
	c.ClientSessionCache = s.sessions
	switch {
	case s.options.serverName != "":
		c.ServerName = s.options.serverName
	case id.scheme == schemeHTTPS: // package http uses the URL's host
	case id.serverName != "":
		c.ServerName = id.serverName
	default:
		c.ServerName = id.addr.Addr().WithZone("").String()
	}
	return c
}

// upstreamIDs returns the upstreams of all destinations, without duplicates. resolved are the
// addresses of the destinations that are files or host names.
func (s *upstreamSet) upstreamIDs(resolved [][]netip.Addr) (unique []upstreamID) {
	var ids []upstreamID
	for i, d := range s.options.destinations {
		switch {
		case d.url != "":
			ids = append(ids, upstreamID{scheme: d.scheme, url: d.url, fallback: d.fallback})
		case d.addr.IsValid():
			ids = append(ids, d.upstreamAt(d.addr.Addr()))
		default:
			for _, addr := range resolved[i] {
				ids = append(ids, d.upstreamAt(addr))
			}
		}
	}

	for _, id := range ids {
		same := func(o upstreamID) bool { o.fallback = id.fallback; return o == id }
		if !slices.ContainsFunc(unique, same) && len(unique) < maxUpstreams {
			unique = append(unique, id)
		}
	}
	return unique
}
