// Package autopath follows the search path of a client's resolver on the server:
// the autopath directive. walk.go queries the names of the path.
package autopath

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// An AutoPath follows the search path of the client's resolver on the server: the
// autopath directive.
//
//	autopath [ZONE...] RESOLV-CONF
//	autopath [ZONE...] @kubernetes
//	autopath [ZONE...] @query [SEARCH...]
//
// Use it to reduce the number of queries and the latency of lookups of external
// names. To look up www.example.com, a pod's resolver first queries
// www.example.com.NS.svc.cluster.local, then four or more other names that do not
// exist, and www.example.com last, each for A and AAAA. This directive queries
// those names itself when the first query arrives, and answers with a CNAME to
// the name that exists and its addresses:
//
//	www.example.com.shop.svc.cluster.local. 5  IN CNAME www.example.com.
//	www.example.com.                        60 IN A     192.0.2.80
//
// With three search domains, a lookup takes 2 queries instead of 8, and one round
// trip instead of four. You can write autopath once in a server block. It applies
// to names in its ZONEs, by default those of the block.
//
// The search continues only if a name does not exist (NXDOMAIN for A and for
// AAAA). Each name of the path is queried for both types, so a client's two
// queries have the same outcome. The sub-queries pass through the whole server,
// so acl, view, rewrite and cache apply to them as to queries of the client. If
// the response code of a sub-query is neither NXDOMAIN nor NOERROR, or the search
// takes longer than four seconds, the reply is the ordinary one and the client
// continues the search itself. Add cache to the server block to avoid repeated
// queries.
//
// RESOLV-CONF is a file with the search path in the format of resolv.conf(5). It
// is read when the server starts or reloads.
//
// @kubernetes requires the kubernetes directive with the option pods verified in
// the same server block. The search path is that of the client's pod, found by
// the client address: NS.svc.ZONE, svc.ZONE, ZONE, and the search path in
// /etc/resolv.conf of the server, which should be the same as on the clients'
// nodes. Addresses of nodes, and addresses that several pods share, have no
// search path.
//
// @query does not require pods, so it needs no memory and no watch for them. It
// takes the search path from the query: a name with at least two labels before
// NS.svc.ZONE, where NS is a namespace without a Service of that name. SEARCH
// lists the domains after ZONE in the pods' search path: those in
// /etc/resolv.conf of the nodes. Use @query also if clients are behind a cache on
// their node, which hides their addresses. @query answers only with the last name
// of the search, the name without a suffix. If the name exists under another
// domain of the path, the client finds it there itself. List every domain: if a
// name exists both under a domain that is not listed and without a suffix, the
// client gets the latter.
//
// A query does not show which step of the search it is. A pod that looks up
// www.example.com.NS, where NS is a namespace, queries
// www.example.com.NS.svc.cluster.local in its second step, as a pod in NS that
// looks up www.example.com does in its first. So @query ignores namespaces whose
// name is also a top-level domain (app, dev): to find out, it queries the name of
// the namespace as a single label. Two cases remain. Names such as
// www.example.com.payments, which do not exist, are found without their last
// label. So are names that a client looks up with NS.svc.cluster.local at the end
// or with a search path other than the default. The other two forms, as in
// CoreDNS, have the same limitation for the client's own namespace.
//
//	.:1053 {
//	    autopath @query corp.example
//	    kubernetes cluster.local {
//	        manifests examples
//	    }
//	    whoami
//	}
//
// Metrics: coredns_autopath_success_total{server} counts the queries answered by
// autopath, seamark_autopath_saved_queries_total{server} the queries that clients
// no longer need to send.
//
// Same as CoreDNS: RESOLV-CONF and @kubernetes. Differs: only A and AAAA; both
// types have the same outcome; if a name of the path fails, the reply is the
// ordinary one; pods that share an address have no search path; acl and view
// apply to every name. Ours: @query.
type AutoPath struct {
	zones      config.Fallthrough
	source     string      // "@kubernetes", "@query", or a file
	search     []wire.Name // from the file
	hostSearch []wire.Name // search domains after the cluster zone
	cluster    cluster
	metrics    *metrics.Registry
	series     series // of the chain passed to BindChain
}

// A cluster is a handler that knows the search paths of its pods.
type cluster interface {
	// SearchPath returns the number of labels of the query's name that precede
	// NS.svc.ZONE, the first domain of a pod's search path. If byAddress is true,
	// NS must be the namespace of the pod with the client's address.
	SearchPath(q *dns.Query, byAddress bool) (labels int, ok bool)
	// NeedClients makes the cluster index pods by address.
	NeedClients() error
}

const (
	byClient = "@kubernetes"
	byQuery  = "@query"

	// hostFile contains the search path of this machine.
	hostFile = "/etc/resolv.conf"
)

// Setup sets up the autopath directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	a := &AutoPath{metrics: b.Metrics}
	err := errors.Join(config.Once(uses), d.Options())
	if err == nil {
		err = a.read(b, d)
	}
	if err != nil {
		return err
	}
	b.Handle(a)
	if !strings.HasPrefix(a.source, "@") {
		return nil
	}
	b.OnPlanned(func() error {
		found := config.Find[cluster](b)
		if len(found) == 0 {
			return d.Errorf("%s: requires the kubernetes directive in the same server block", a.source)
		}
		a.cluster = found[0]
		if a.source == byClient {
			if err := a.cluster.NeedClients(); err != nil {
				return d.Errorf("%s: %w", a.source, err)
			}
		}
		return nil
	})
	return nil
}

// read parses the arguments of d.
func (a *AutoPath) read(b *config.Block, d corefile.Directive) error {
	if len(d.Args) == 0 {
		return d.Errorf("want a file, %s or %s", byClient, byQuery)
	}
	at := len(d.Args) - 1 // index of the source of the search path
	for i, arg := range d.Args {
		if arg.Text == byQuery {
			at = i
			break
		}
	}
	zones, search := d, d
	zones.Args, search.Args = d.Args[:at], d.Args[at+1:]
	zoneNames, err := b.ZonesOr(zones)
	if err != nil {
		return err
	}
	a.zones = config.Fallthrough{On: true, Zones: zoneNames}
	switch a.source = d.Args[at].Text; {
	case a.source == byQuery:
		a.hostSearch, err = config.ParseZones(d.Path, search.Args)
		return err
	case a.source == byClient:
		a.hostSearch, err = readSearch(hostFile)
		if err != nil {
			b.Warn(d.Errorf("%w; only the search domains of the cluster are used", err))
		}
		return nil
	case strings.HasPrefix(a.source, "@"):
		return d.Errorf("want a file, %s or %s, got %q%s", byClient, byQuery, a.source, corefile.DidYouMean(a.source, []string{byClient, byQuery}))
	}
	if a.search, err = readSearch(b.Path(a.source)); err != nil {
		return d.Errorf("%w", err)
	}
	if len(a.search) == 0 {
		b.Warn(d.Errorf("%s has no search domains, so the directive has no effect", a.source))
	}
	return nil
}

// readSearch returns the search path in a resolv.conf(5) file. As in the C
// library, the last search or domain line counts.
func readSearch(file string) (search []wire.Name, err error) {
	text, err := corefile.Text(file)
	if err != nil {
		return nil, fmt.Errorf("reading the search path: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "search" && fields[0] != "domain" {
			continue
		}
		search = nil
		for _, text := range fields[1:] {
			name, err := wire.ParseName(text)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: not a name: %w", file, n, err)
			}
			if name != wire.Root { // the root is always tried last
				search = append(search, name)
			}
		}
	}
	return search, nil
}

// ServeDNS parks queries that may be the first of a search path.
func (a *AutoPath) ServeDNS(q *dns.Query) dns.Verdict {
	if _, ok := a.base(q); !ok {
		return dns.Next
	}
	return dns.Wait
}

// Resolve calls the handlers below and follows the rest of the search path if the
// name does not exist.
func (a *AutoPath) Resolve(ctx context.Context, q *dns.Query) error {
	q.Next(ctx)
	labels, ok := a.base(q)
	if !ok || q.Dropped() || q.RCode != wire.NXDomain {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	return a.walk(ctx, q, labels)
}

// base returns the number of labels of the name that the client looks up. It
// returns false if q cannot be the first query of a search path.
func (a *AutoPath) base(q *dns.Query) (labels int, ok bool) {
	// Sub-queries are not part of a client's search.
	if q.Type != wire.TypeA && q.Type != wire.TypeAAAA || q.Depth() > 0 || !a.zones.Through(q.Name()) {
		return 0, false
	}
	switch {
	case a.source == byQuery:
		labels, ok = a.cluster.SearchPath(q, false)
		return labels, ok && labels > 1
	case a.source == byClient:
		return a.cluster.SearchPath(q, true)
	case len(a.search) == 0:
		return 0, false
	}
	labels = q.Labels() - a.search[0].Labels()
	return labels, labels > 0 && string(q.Name()[q.LabelOffset(labels):]) == string(a.search[0])
}

// A series is the counters of one chain.
type series struct{ success, saved *metrics.Counter }

// BindChain returns a copy of a that counts for c.
func (a *AutoPath) BindChain(c *dns.Chain) any {
	bound := *a
	bound.series = series{
		a.metrics.Counter("coredns_autopath_success_total", "Counter of requests that did autopath.", "server", c.Server),
		a.metrics.Counter("seamark_autopath_saved_queries_total", "Queries that clients did not need to send because autopath answered an earlier one.", "server", c.Server),
	}
	return &bound
}
