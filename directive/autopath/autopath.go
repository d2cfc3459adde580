// Package autopath follows the search path of a client's resolver on the server:
// the autopath directive. walk.go queries the names of the path.
package autopath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// An AutoPath follows the search path of the client's resolver on the server: the autopath
// directive. Its reference page is docs/reference/directives/autopath.md.
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

	at := slices.IndexFunc(d.Args, func(arg corefile.Token) bool { return arg.Text == byQuery })
	if at < 0 {
		at = len(d.Args) - 1
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
		return d.Errorf("want a file, %s or %s, got %q%s",
			byClient, byQuery, a.source, corefile.DidYouMean(a.source, []string{byClient, byQuery}))
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
		a.metrics.Counter("coredns_autopath_success_total", "Counter of requests that did autopath.",
			"server", c.Server),
		a.metrics.Counter("seamark_autopath_saved_queries_total",
			"Queries that clients did not need to send because autopath answered an earlier one.", "server", c.Server),
	}
	return &bound
}
