// Package kubernetes answers a cluster's names by the Kubernetes DNS specification:
// the directive kubernetes. records.go says what answer each name has,
// entry.go makes answers of objects, index.go keeps them, setup.go reads the
// directive's options.
package kubernetes

import (
	"context"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A podMode says which pod names exist.
type podMode uint8

const (
	podsDisabled podMode = iota
	podsInsecure         // every address of an existing namespace
	podsVerified         // those that a pod of the namespace has
)

// A Handler is one use of the directive kubernetes.
type Handler struct {
	zones       []*zoneInfo // longest first
	primary     wire.Name   // where reverse names point to
	ttl         uint32
	podMode     podMode
	zonal       bool
	kubeDNS     bool          // records as kube-dns gives them
	wildcards   bool          // labels * stand for any
	scans       chan struct{} // has room for those who walk over everything at a time
	fallThrough config.Fallthrough
	local       []netip.Addr // addresses that the server listens on
	index       *Index
	server      string   // labels of the name server in front of each zone
	options     *options // what other directives may still change before the start
}

// A zoneInfo is one zone that a handler serves.
type zoneInfo struct {
	name         wire.Name
	labels       int
	reverse      bool // under in-addr.arpa or ip6.arpa
	multicluster bool // names of ServiceImports
}

// An outcome is what was found for a question.
type result uint8

const (
	nameError        result = iota // the name does not exist
	answered                       // it does; the answer is written, and empty if it lacks the type
	emptyNonTerminal               // a reverse name that exists only because others are below it
	notListed                      // what would tell has not been listed yet
	refused                        // not for clients
	parked                         // a CNAME is written, and its target must be waited for
)

// Ready says whether the cluster has been seen whole once. It stays so while
// the API server is away.
func (h *Handler) Ready() bool { return h.index.Synced() }

// ServeDNS answers what is in the handler's zones.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	z := h.zone(q)
	if z == nil {
		return dns.Next
	}
	l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
	found := l.answer()
	if found == nameError && h.wildcards && l.hasWildcard() { // nothing is called *
		return h.serveWildcard(q, z)
	}
	return l.reply(found)
}

// conclude makes a reply of what was found.
func (l *lookup) reply(found result) dns.Verdict {
	q := l.q
	switch found {
	case parked:
		return dns.Wait
	case notListed:
		// Neither NXDOMAIN nor anybody else's to answer.
		q.Fail(wire.ServFail)
		return dns.Done
	case refused:
		q.Fail(wire.Refused)
		return dns.Done
	case nameError, emptyNonTerminal:
		if l.fallThrough.Through(q.Name()) {
			return dns.Next
		}
	}
	l.finish(found)
	return dns.Done
}

// Resolve walks over all Services for a question with wildcards, and takes up the
// chase of a CNAME whose target had to wait.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	if z := h.zone(q); z != nil && h.wildcards {
		l := lookup{Handler: h, q: q, zone: z, depth: q.Labels() - z.labels}
		if l.hasWildcard() && l.scansAllServices() {
			select { // a walk takes a processor: others have to be answered, too
			case h.scans <- struct{}{}:
				defer func() { <-h.scans }()
			case <-ctx.Done():
				return ctx.Err()
			}
			switch l.reply(l.answerWildcards()) {
			case dns.Next:
				q.Next(ctx)
				return nil
			case dns.Done:
				return nil
			}
		}
	}
	h.appendTarget(q, q.ResumeSubQuery(ctx))
	return nil
}

// zone finds the longest zone that the question is in.
func (h *Handler) zone(q *dns.Query) *zoneInfo {
	name, labels := q.Name(), q.Labels()
	for _, z := range h.zones {
		if labels >= z.labels && string(name[q.LabelOffset(labels-z.labels):]) == string(z.name) {
			return z
		}
	}
	return nil
}
