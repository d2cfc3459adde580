package forward

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Template forwards queries as a Forward does, each to the Upstreams that its caller selects. All of
// them have the options of one directive. It is for package stubzones.
type Template struct {
	forward *Forward
	block   *config.Block

	mu    sync.Mutex
	named map[string]bool // upstreams that have metrics
}

// mostNamed is how many upstreams of a Template have metrics: series are kept for ever, and objects may
// name any number of upstreams one after the other.
const mostNamed = 1000

// Upstreams are servers that a Template opens, with their sockets, latencies and health.
type Upstreams struct{ set *upstreamSet }

// NewTemplate returns a Template with the options in the body of d, which are those of forward.
func NewTemplate(b *config.Block, d corefile.Directive) (*Template, error) {
	t := &Template{forward: newForward(), block: b, named: map[string]bool{}}
	word := func(text string) corefile.Token { return corefile.Token{Text: text, File: d.File, Line: d.Line} }
	d.Args = []corefile.Token{word("."), word("192.0.2.1")} // the parser wants an upstream
	err := t.forward.parse(b, d)
	t.forward.options.destinations = nil

	t.forward.stateKey = b.NewStateKey()
	t.forward.rejects = b.Metrics.Counter("coredns_forward_max_concurrent_rejects_total",
		"Queries refused because max_concurrent queries were waiting.")
	b.OnPlanned(func() error {
		t.forward.observers = config.Find[dns.ExchangeObserver](b)
		return nil
	})
	return t, err
}

// MaxUpstreams is the maximum number of upstreams of a zone.
const MaxUpstreams = maxUpstreams

// ParseAddress parses an upstream that is an IP address with an optional port, perhaps with dns:// or
// tls:// before it.
func ParseAddress(text string) (netip.Addr, error) {
	d, err := parseDestination(text, func(string) bool { return false })
	switch addr := d.addr.Addr(); {
	case err != nil:
		return addr, err
	case !addr.IsValid() || addr.Zone() != "" || d.scheme != schemeDNS && d.scheme != schemeTLS:
		return addr, fmt.Errorf("want an IP address, with or without port, or tls:// and an IP address, got %q", text)
	default:
		return addr, nil
	}
}

// Open opens upstreams that ParseAddress accepts. The caller stops them. It is safe for concurrent
// use.
func (t *Template) Open(to []string) *Upstreams {
	o := t.forward.options
	o.destinations = nil
	for _, text := range to {
		if d, err := parseDestination(text, func(string) bool { return false }); err == nil {
			o.destinations = append(o.destinations, d)
		}
	}
	registry := t.registry(to)
	set := newUpstreamSet(context.Background(), o, t.block.Dial, t.block.Log, registry) // waits for host names only
	set.memory = t.block.Memory
	if registry == t.block.Metrics {
		set.reportTo(t.block.Health())
	}
	return &Upstreams{set}
}

// registry returns where the metrics of upstreams go.
func (t *Template) registry(to []string) *metrics.Registry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, text := range to {
		if !t.named[text] && len(t.named) == mostNamed {
			return new(metrics.Registry)
		}
		t.named[text] = true
	}
	return t.block.Metrics
}

// Stop ends all queries to the upstreams, and closes their sockets.
func (u *Upstreams) Stop() { u.set.Stop() }

// Names returns the names of the upstreams, as Forward.Upstreams does.
func (u *Upstreams) Names() (names []string) {
	for _, one := range u.set.current.Load().all {
		names = append(names, one.String())
	}
	return names
}

// Sent is Forward.Sent.
func (u *Upstreams) Sent(yield func(upstream string, queries, unanswered uint64)) {
	(&Forward{set: u.set}).Sent(yield)
}

// Probe is Forward.Probe. It returns an error if u does not have the upstream.
func (u *Upstreams) Probe(ctx context.Context, name string, q wire.Name, t wire.Type) error {
	return (&Forward{set: u.set}).Probe(ctx, name, q, t)
}

// Exclude excludes an upstream from all queries, or includes it again.
func (t *Template) Exclude(name string, exclude bool) { t.forward.Exclude(name, exclude) }

// ServeDNS, AwaitDNS and Resolve are those of Forward. AwaitDNS and Resolve get the same upstreams.
func (t *Template) ServeDNS(q *dns.Query) dns.Verdict { return t.forward.ServeDNS(q) }

// AwaitDNS sends q to upstreams, unless an equal query has been sent to them.
func (t *Template) AwaitDNS(q *dns.Query, u *Upstreams, wake func()) bool {
	return t.forward.await(q, u.set, wake)
}

// Resolve answers q after AwaitDNS.
func (t *Template) Resolve(ctx context.Context, q *dns.Query, u *Upstreams) error {
	return t.forward.resolve(ctx, q, u.set)
}
