// Package autopath walks the search path of a client's resolver in its stead:
// the directive autopath. walk.go asks the names of the path.
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

// An AutoPath answers the first question of a search path with what the last
// would bring: the autopath directive.
//
//	autopath [ZONE…] RESOLV-CONF
//	autopath [ZONE…] @kubernetes
//	autopath [ZONE…] @query [SEARCH…]
//
// A pod's resolver that looks for www.example.com asks for
// www.example.com.NS.svc.cluster.local first, then for four or more names that do
// not exist either, and for www.example.com last, each for A and for AAAA. This
// directive asks them in its stead when the first comes, and answers that with a
// CNAME for the name that exists, and its addresses:
//
//	www.example.com.shop.svc.cluster.local. 5  IN CNAME www.example.com.
//	www.example.com.                        60 IN A     192.0.2.80
//
// With three search domains that is 2 queries for a lookup in place of 8, and one
// round trip in place of four. It can stand once in a server block, and is about
// names in its ZONEs, the block's own unless given.
//
// Only a name that does not exist (NXDOMAIN for A and for AAAA) is looked for
// further. Each name of the path is asked for both types, so that a client's two
// questions have one outcome; the names pass the whole server from its top, so
// that acl, view, rewrite and cache hold for them as for the client's own. If one
// is answered with anything else than NXDOMAIN or addresses, or not within four
// seconds, the reply is the ordinary one, and the client walks by itself. A cache
// in the server block keeps the names from being asked twice.
//
// RESOLV-CONF is a file with the search path, as in resolv.conf(5). It is read
// when the server starts or reloads.
//
// @kubernetes needs the directive kubernetes in the server block with the option
// pods verified. The search path is that of the client's pod, which is found by
// its address: NS.svc.ZONE, svc.ZONE, ZONE, and what /etc/resolv.conf has here,
// which should be as on the clients' nodes. Addresses that several pods have, or
// that are a node's, are no pod's.
//
// @query needs no pods, and so no memory or watch for them. It takes the search
// path out of the question: a name of at least two labels in front of NS.svc.ZONE
// where NS is a namespace and has no such Service. SEARCH are the domains that
// pods have after ZONE: those of the nodes' /etc/resolv.conf. It is for
// clients behind a cache on their node, too, whose addresses are not seen. It
// only ever answers for the last step, the name as it was looked for: if that
// exists under any domain of the path, the client finds it there by itself. List
// every domain: a name that exists only under one that is not listed, and by
// itself too, would be found by itself.
//
// One thing a question does not say is which step it is. A pod that looks for
// www.example.com.NS, where NS is a namespace, asks for
// www.example.com.NS.svc.cluster.local in its second step, as a pod of NS that
// looks for www.example.com does in its first. So @query leaves namespaces alone
// that are called like a top-level domain which exists (app, dev); to know that
// it asks for the namespace as a name of one label. What is left are names such
// as www.example.com.payments, which exist nowhere: they are found without their
// last label. So are names that are looked for with NS.svc.cluster.local at their
// end, or with another search path than pods have by default. The other two
// forms, as in CoreDNS, have this with the client's own namespace.
//
//	.:1053 {
//	    autopath @query corp.example
//	    kubernetes cluster.local {
//	        manifests examples
//	    }
//	    whoami
//	}
//
// Metrics: coredns_autopath_success_total{server} counts the questions that were
// answered in this way, seamark_autopath_saved_queries_total{server} those that
// their clients need not ask any more.
//
// Same as CoreDNS: RESOLV-CONF and @kubernetes. Differs: only A and AAAA; both have
// one outcome; a failure in the path gives the ordinary reply; pods that share an
// address have no search path; acl and view see every name. Ours: @query.
type AutoPath struct {
	zones   config.Fallthrough
	how     string      // "@kubernetes", "@query", or a file
	search  []wire.Name // of the file
	more    []wire.Name // behind the cluster's zone
	cluster cluster
	metrics *metrics.Registry
	series  series // of the chain that BindChain was called for
}

// A cluster is the handler that knows what search paths its pods have.
type cluster interface {
	// SearchPath says how many labels of the question stand in front of the first
	// element of a pod's search path, NS.svc.ZONE: that of the client, by its
	// address, or of any.
	SearchPath(q *dns.Query, byAddress bool) (labels int, ok bool)
	// NeedClients says that clients will be asked for by their address.
	NeedClients() error
}

const (
	byClient   = "@kubernetes"
	byQuestion = "@query"

	// hostFile has the search path of this machine.
	hostFile = "/etc/resolv.conf"
)

// Setup is the Setup of autopath.
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
	if !strings.HasPrefix(a.how, "@") {
		return nil
	}
	b.OnPlanned(func() error {
		found := config.Find[cluster](b)
		if len(found) == 0 {
			return d.Errorf("%s: needs the directive kubernetes in the same server block", a.how)
		}
		a.cluster = found[0]
		if a.how == byClient {
			if err := a.cluster.NeedClients(); err != nil {
				return d.Errorf("%s: %w", a.how, err)
			}
		}
		return nil
	})
	return nil
}

// read takes the arguments.
func (a *AutoPath) read(b *config.Block, d corefile.Directive) error {
	if len(d.Args) == 0 {
		return d.Errorf("want a file, %s or %s", byClient, byQuestion)
	}
	at := len(d.Args) - 1 // of what says where the search path is from
	for i, arg := range d.Args {
		if arg.Text == byQuestion {
			at = i
			break
		}
	}
	zones, behind := d, d
	zones.Args, behind.Args = d.Args[:at], d.Args[at+1:]
	of, err := b.ZonesOr(zones)
	if err != nil {
		return err
	}
	a.zones = config.Fallthrough{On: true, Zones: of}
	switch a.how = d.Args[at].Text; {
	case a.how == byQuestion:
		a.more, err = config.ParseZones(d.Path, behind.Args)
		return err
	case a.how == byClient:
		a.more, err = readSearch(hostFile)
		if err != nil {
			b.Log.Warn("autopath: no search domains but the cluster's", "err", err)
		}
		return nil
	case strings.HasPrefix(a.how, "@"):
		return d.Errorf("want a file, %s or %s, got %q%s", byClient, byQuestion, a.how, corefile.DidYouMean(a.how, []string{byClient, byQuestion}))
	}
	if a.search, err = readSearch(b.Path(a.how)); err != nil {
		return d.Errorf("%w", err)
	}
	if len(a.search) == 0 {
		b.Log.Warn("autopath: the file has no search domains: nothing is looked for", "file", a.how)
	}
	return nil
}

// readSearch gives the search path of a resolv.conf(5). The last line that has
// one counts.
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
			if name != wire.Root { // it is tried last in any case
				search = append(search, name)
			}
		}
	}
	return search, nil
}

// ServeDNS takes the questions that may be the first of a search path. The
// others pass.
func (a *AutoPath) ServeDNS(q *dns.Query) dns.Verdict {
	if _, ok := a.base(q); !ok {
		return dns.Next
	}
	return dns.Wait
}

// Resolve asks those below, and then for the rest of the path if the name does
// not exist.
func (a *AutoPath) Resolve(ctx context.Context, q *dns.Query) error {
	q.Next(ctx)
	labels, ok := a.base(q)
	if !ok || q.Dropped() || q.RCode != wire.NXDomain {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.walk(ctx, q, labels)
}

// base says how many labels of the question are what the client looks for, if
// it may be the first of a search path.
func (a *AutoPath) base(q *dns.Query) (labels int, ok bool) {
	// What other questions lead to is no client's search.
	if q.Type != wire.TypeA && q.Type != wire.TypeAAAA || q.Depth() > 0 || !a.zones.Through(q.Name()) {
		return 0, false
	}
	switch {
	case a.how == byQuestion:
		labels, ok = a.cluster.SearchPath(q, false)
		return labels, ok && labels > 1
	case a.how == byClient:
		return a.cluster.SearchPath(q, true)
	case len(a.search) == 0:
		return 0, false
	}
	labels = q.Labels() - a.search[0].Labels()
	return labels, labels > 0 && string(q.Name()[q.LabelOffset(labels):]) == string(a.search[0])
}

// A series is what is counted for one chain.
type series struct{ success, saved *metrics.Counter }

// BindChain returns a copy of a that counts for c.
func (a *AutoPath) BindChain(c *dns.Chain) any {
	bound := *a
	bound.series = series{
		a.metrics.Counter("coredns_autopath_success_total", "Counter of requests that did autopath.", "server", c.Server),
		a.metrics.Counter("seamark_autopath_saved_queries_total", "Queries that clients need not send because autopath has answered an earlier one.", "server", c.Server),
	}
	return &bound
}
