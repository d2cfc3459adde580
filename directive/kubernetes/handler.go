// Package kubernetes implements the directives kubernetes, k8s_external and
// federation, which answer a cluster's names by the Kubernetes DNS specification.
//
// A name is resolved in five steps. [Handler.ServeDNS] finds the longest of its
// zones that the name is in. A [lookup] reads the labels in front of the zone from
// right to left and dispatches on the kind: svc, pod, a reverse name or the zone
// itself. For a Service it gets the entry of the labels SERVICE.NAMESPACE from the
// index, by one read without a lock. A [serviceLookup] reads the labels in front of
// the Service as an endpoint, a port, a cluster or a topology zone, which is a
// selection of the entry's endpoints. It copies their records, which the index has
// made when the objects changed, or writes them, until the reply is full.
//
// Package index below holds the cluster's names and applies watch events. This package
// connects it with a source of objects, and answers from it.
package kubernetes

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// A podMode is a value of the option pods.
type podMode uint8

const (
	podsDisabled podMode = iota
	podsInsecure         // every address in a namespace that exists
	podsVerified         // the addresses of the namespace's pods
)

// A Handler is the directive kubernetes of one server block.
type Handler struct {
	zones        []*zoneInfo // longest first
	byName       wire.ZoneMap[*zoneInfo]
	primary      wire.Name // PTR records point to names in it
	ttl          uint32
	podMode      podMode
	zonal        bool
	near         *nodeZone   // zonal prefer; nil without it
	onlyServices bool        // names that depend on endpoints are the next handler's
	nodePods     bool        // Pods of one node are watched: names of others are the next handler's
	kubeDNS      bool        // compatible kube-dns
	wildcards    bool        // the label * matches any
	verifyPTR    bool        // an endpoint's PTR record needs a pod with the address
	scans        *slots.Pool // limits the concurrent scans of all Services
	fallThrough  config.Fallthrough
	local        []netip.Addr // the server listens on them
	index        *index.Index
	health       *health.Board // the source of the index reports on it
	server       string        // labels of the name server in front of each zone
	options      *options      // other directives may change them before the start
	external     *External     // whose zones these are; nil for kubernetes
	transferred  []*zoneInfo
	live         *liveZones     // nil unless other servers copy zones
	memory       *memory.Budget // of live

	generations *generation.Cells // of index; nil if no answers are repeated
}

// A zoneInfo is one of the handler's zones.
type zoneInfo struct {
	name         wire.Name
	labels       int
	reverse      bool      // under in-addr.arpa or ip6.arpa
	multicluster bool      // it has names of ServiceImports
	live         *liveZone // if other servers copy the zone
}

// Ready reports whether every object has been listed once or is in a snapshot. It stays
// true while the API server is away. With only services the next handler answers until
// then.
func (h *Handler) Ready() bool { return h.onlyServices || h.index.Ready() }

// Unready returns why it is not ready: what has not been listed, and what the source reports.
func (h *Handler) Unready() string {
	text := h.index.Unlisted() + " have not been listed since the start"
	for _, c := range h.health.Of(h.index) {
		text += fmt.Sprintf("; %s (for %v)", c.Text, time.Since(c.Since).Round(time.Second))
	}
	return text
}

// ServeDNS implements [dns.Handler].
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	z := h.zone(q)
	if z == nil {
		return dns.Next
	}
	l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
	stamp, refused := l.stamp() // before the index is read
	found := l.answer()
	if found < emptyNonTerminal && h.wildcards && l.hasWildcard() { // no object is named *
		return h.serveWildcard(q, z)
	}
	verdict := l.reply(found)
	switch {
	case refused != "":
		q.AllowRepeat(dns.Repeat{Refused: refused})
	case found < notListed:
		q.AllowRepeat(dns.Repeat{For: repeatFor(q), While: stamp})
	}
	return verdict
}

// reply completes the reply by the result.
func (l *lookup) reply(found result) dns.Verdict {
	q := l.q
	q.Reason = uint8(found)
	switch {
	case found >= notListed:
		return l.noReply(found)
	case found <= emptyNonTerminal && l.fallThrough.Through(q.Name()):
		return dns.Next
	}
	l.finish(found)
	return dns.Done
}

// noReply is reply for a result that is no answer.
func (l *lookup) noReply(found result) dns.Verdict {
	switch {
	case found == parked:
		return dns.Wait
	case found == refused:
		l.q.Fail(wire.Refused)
	case found == notListed && !l.onlyServices:
		// The name may exist, so other handlers must not answer it either.
		l.q.Fail(wire.ServFail)
	default:
		return dns.Next
	}
	return dns.Done
}

// Resolve implements [dns.Resolver]. It scans all Services for a query with
// wildcards, and waits for the answer to a CNAME's target.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	if z := h.zone(q); z != nil && h.wildcards {
		l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
		if l.hasWildcard() && l.scansAllServices() {
			verdict, err := l.scan(ctx)
			switch {
			case err != nil || verdict == dns.Done:
				return err
			case verdict == dns.Next:
				q.Next(ctx)
				return nil
			}
		}
	}
	h.appendTarget(q, q.ResumeSubQuery(ctx))
	return nil
}

// scan answers a query that scans all Services. Each scan occupies a processor, whose slot is free again before
// the query waits for anything else.
func (l *lookup) scan(ctx context.Context) (dns.Verdict, error) {
	client := l.q.Peer.Addr()
	if err := l.scans.Acquire(ctx, client); err != nil {
		return dns.Done, err
	}
	defer l.scans.Release(client)
	return l.reply(l.answerWildcards()), nil
}

// Objects returns the objects that h answers from: see [index.Index.Objects].
func (h *Handler) Objects() iter.Seq2[cluster.Kind, cluster.Object] { return h.index.Objects() }

// AuthoritativeZones returns the zones of h.
func (h *Handler) AuthoritativeZones() []wire.Name { return h.byName.Zones() }

// zone returns the longest zone that the query's name is in; nil if it is in none.
func (h *Handler) zone(q *dns.Query) *zoneInfo {
	z, _ := h.byName.Longest(&q.Request, 0)
	return z
}
