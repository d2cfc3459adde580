package stubzones

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/wire"
)

// A Handler forwards queries for zones of ConfigMaps: the stub_zones directive. Its reference page is
// docs/reference/directives/stub_zones.md.
type Handler struct {
	rules    *objects.Delegations
	whole    []wire.Name // the zones of the server block
	template *forward.Template
	stateKey dns.StateKey
	settings *settings
	zones    *zones // nil before the start
}

// AnyClass reports that queries of other classes than IN are forwarded, too.
func (*Handler) AnyClass() dns.ClassUse { return dns.ClassAnswered }

// Repetition reports that names in delegated zones depend on the objects.
func (h *Handler) Repetition() dns.Repetition {
	return dns.Repetition{Allows: func(q *dns.Query) bool { return h.rules.ZoneOf(q.Name()) == 0 }}
}

// CacheScope has a cache keep its answers while delegations and limits change: the variant of a query
// identifies its zone and the servers.
func (*Handler) CacheScope(d corefile.Directive) corefile.Directive {
	if d.Text != "stub_zones" {
		return d
	}
	d.Body = slices.DeleteFunc(slices.Clone(d.Body), func(o corefile.Directive) bool {
		return !slices.Contains(forwardOptions[:], o.Text)
	})
	return d
}

// ServeDNS passes names without a stub zone to the next handler. Other queries are parked. Before the
// objects have been read, names in delegated zones fail: NXDOMAIN from elsewhere would be kept by
// clients. That does not hold for whole zones of the server block, which others answer.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	length := h.rules.ZoneOf(q.Name())
	if length == 0 {
		return dns.Next
	}
	if z := h.find(q, length); z != nil {
		q.Variant = z.variant
		q.SetState(h.stateKey, z)
		return h.template.ServeDNS(q)
	}
	if h.Ready() || slices.Contains(h.whole, wire.Name(q.Name()[len(q.Name())-length:])) {
		return dns.Next
	}
	q.Fail(wire.ServFail)
	return dns.Done
}

// find returns the longest stub zone that the query name is in, or nil. The longest delegated zone that
// the name is in has a length: a stub zone above it has no names in it.
func (h *Handler) find(q *dns.Query, length int) *stubZone {
	name := q.Name()
	for at := 0; at <= q.Labels(); at++ {
		suffix := name[q.LabelOffset(at):]
		if len(suffix) < length {
			break
		}
		if z := h.zones.table.byName.Get(suffix); z != nil {
			return z
		}
	}
	return nil
}

// AwaitDNS sends q to the upstreams of its zone.
func (h *Handler) AwaitDNS(q *dns.Query, wake func()) bool {
	z, _ := q.State(h.stateKey).(*stubZone)
	return z != nil && h.template.AwaitDNS(q, z.upstreams.Upstreams, wake)
}

var errNoZone = errors.New("the query has no stub zone")

// Resolve answers q after AwaitDNS.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	z, _ := q.State(h.stateKey).(*stubZone)
	if z == nil {
		return errNoZone
	}
	return h.template.Resolve(ctx, q, z.upstreams.Upstreams)
}

// Ready reports whether the objects have been read once.
func (h *Handler) Ready() bool { return h.zones == nil || h.zones.Ready() }

// From returns the root: the upstreams of all zones together are one forward. This and the methods
// below are for directive loop.
func (h *Handler) From() wire.Name { return wire.Root }

// Upstreams returns the names of the current upstreams. changed is closed when they change.
func (h *Handler) Upstreams() (names []string, changed <-chan struct{}) {
	all, changed := h.zones.table.all()
	for _, z := range all {
		names = append(names, z.upstreams.Names()...)
	}
	slices.Sort(names)
	return slices.Compact(names), changed
}

// Sent is that of forward, of each upstream of a stub zone.
func (h *Handler) Sent(yield func(upstream string, queries, unanswered uint64)) {
	if h.zones == nil {
		return
	}
	all, _ := h.zones.table.all()
	seen := map[string]bool{}
	for _, z := range all {
		z.upstreams.Sent(func(upstream string, queries, unanswered uint64) {
			if !seen[upstream] { // the numbers are those of all that use it
				seen[upstream] = true
				yield(upstream, queries, unanswered)
			}
		})
	}
}

// Probe sends a query to one upstream, even if it is excluded, and waits for any reply.
func (h *Handler) Probe(ctx context.Context, name string, q wire.Name, t wire.Type) error {
	all, _ := h.zones.table.all()
	for _, z := range all {
		if slices.Contains(z.upstreams.Names(), name) {
			return z.upstreams.Probe(ctx, name, q, t)
		}
	}
	return fmt.Errorf("no stub zone has the upstream %s", name)
}

// Exclude excludes an upstream from all queries, or includes it again.
func (h *Handler) Exclude(name string, exclude bool) { h.template.Exclude(name, exclude) }

// ExplainDNS implements [dns.Explainer].
func (h *Handler) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	length := h.rules.ZoneOf(q.Name())
	switch {
	case length == 0:
		return []dns.Cause{{Text: "the name is in no zone that is delegated to a namespace"}}
	case !h.Ready():
		return []dns.Cause{{Text: "the objects with stub zones have not been read yet"}}
	}
	z := h.find(q, length)
	if z == nil {
		causes := []dns.Cause{{Text: "no object has a stub zone for the name"}}
		if text := h.zones.Faults(); text != "" {
			causes = append(causes, dns.Cause{Text: text})
		}
		return causes
	}
	at := z.From.Key()
	return []dns.Cause{{
		Text:   fmt.Sprintf("the upstreams are %s (%s)", z.Value, z.From),
		Object: &dns.Object{Kind: z.From.Kind().ObjectKind(), Namespace: at.Namespace, Name: at.Name},
	}}
}

// ReadObjects implements explain.ObjectReader.
func (h *Handler) ReadObjects(ctx context.Context, all []*dns.Object) {
	var read cluster.ReadOrigin
	if h.zones != nil {
		read = h.zones.Origins()
	}
	explain.ReadOrigins(ctx, read, all)
}
