// Package admin implements the directive admin: an HTTP API and a page with which operators
// look into a running server.
package admin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/observe/judge"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
)

// Admin lets operators look into the running server: the admin directive. Its reference page
// is docs/reference/directives/admin.md.
type Admin struct {
	options  options
	block    *config.Block
	recorder *traffic.Recorder
	metadata func(q *dns.Query) string // namespace of the client
	zones    []wire.Name               // of the cluster, without reverse zones
	clusters []clusterZones
	cluster  cluster.Options // the API server of the last one; the service account of the pod without one
	caches   []cacheReader
	policies []policyReader
	records  []inventory.Named
	ready    []interface{ Ready() bool }
	ports    atomic.Pointer[[]config.Port]
	servers  atomic.Pointer[[]corefile.Server]
}

type options struct {
	addr   string
	token  string // a file
	hosts  string // separated by spaces
	redact bool
	pods   bool // show the pods of clients

	review   bool   // check tokens with the API server
	audience string // of these tokens
}

// Setup sets up the admin directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	a := &Admin{options: options{addr: "localhost:8053"}, block: b}
	d := uses[0]
	err := errors.Join(config.Once(uses), d.Arity(0, 2))
	if err == nil && len(d.Args) > 0 {
		err = a.options.setAddress(b, d)
	}
	err = errors.Join(err, a.options.parse(b, d))
	if err == nil {
		err = a.options.check(d)
	}
	if addr := a.options.addr; err == nil && public(addr) {
		b.Warn(d.Errorf("tokens are sent to %s without encryption: use an address such as localhost:8053, unix PATH, "+
			"or a private address behind a proxy with TLS", addr))
	}

	b.Offer(a)
	b.OnPlanned(func() error { return a.plan(d) })
	web.ServePages(b, d, a.options.addr, web.TLS{}, func(s *config.Start, site *web.Site) error {
		return a.start(s, site, d)
	})
	return err
}

// parse reads the options in braces.
func (o *options) parse(b *config.Block, d corefile.Directive) error {
	parseToken := func(d corefile.Directive) error {
		o.token = b.Path(d.Args[0].Text)
		if _, err := readToken(o.token); err != nil {
			return d.Errorf("%w", err)
		}
		b.WarnExposed(d, o.token)
		return nil
	}
	parseReview := func(d corefile.Directive) error {
		o.review, o.audience = true, strings.Join(d.Words(), "")
		return nil
	}
	parseHosts := func(d corefile.Directive) error {
		o.hosts = strings.TrimSpace(o.hosts + " " + strings.ToLower(strings.Join(d.Words(), " ")))
		return nil
	}

	return d.Options(
		corefile.Option{Usage: "token FILE", Once: true, Set: parseToken},
		corefile.Option{Usage: "token_review [AUDIENCE]", Once: true, Set: parseReview},
		corefile.Option{Usage: "host NAMES...", Set: parseHosts},
		corefile.Option{Usage: "pods", Set: corefile.Flag(&o.pods)},
		corefile.Option{Usage: "redact", Set: corefile.Flag(&o.redact)},
	)
}

// check returns an error for options that contradict each other.
func (o *options) check(d corefile.Directive) error {
	switch {
	case o.pods && o.redact:
		return d.Errorf("pods needs the addresses of clients, which redact hides: use one of them")
	case o.token != "" && o.review:
		return d.Errorf("token and token_review exclude each other: use one of them")
	case !local(o.addr) && d.OfFlag():
		return d.Errorf("other machines can reach %s: use an address such as localhost:8053, "+
			"or the directive admin with token or token_review in the Corefile", o.addr)
	case o.token == "" && !o.review && !local(o.addr):
		return d.Errorf("other machines can reach %s: add token FILE or token_review, "+
			"or use an address such as localhost:8053", o.addr)
	}
	return nil
}

// plan finds the other directives whose data a shows.
func (a *Admin) plan(d corefile.Directive) error {
	a.metadata = a.block.Metadata("kubernetes/client-namespace")
	a.caches, a.records = config.Find[cacheReader](a.block), inventory.ListersOf(a.block)
	a.policies = config.Find[policyReader](a.block)
	a.ready = config.Find[interface{ Ready() bool }](a.block)
	a.clusters = config.Find[clusterZones](a.block)

	for _, h := range a.clusters {
		a.zones = append(a.zones, h.ClusterZones()...)
		if a.cluster = h.ClusterOptions(); a.cluster.Manifests != "" && (a.options.review || a.options.pods) {
			return d.Errorf("token_review and pods need an API server: " +
				"the directive kubernetes of this server block has manifests")
		}
	}
	return nil
}

// setAddress reads ADDRESS, or unix PATH.
func (o *options) setAddress(b *config.Block, d corefile.Directive) error {
	words := d.Words()
	if words[0] != "unix" {
		o.addr = words[0]
		if len(words) > 1 {
			return d.Errorf("want one address, or unix PATH")
		}
		return d.Each(web.ParseAddress(o.addr))
	}

	if len(words) == 1 || words[1] == "" {
		return d.Errorf("unix: want the path of a socket")
	}
	path := b.Path(words[1])
	if len(path) > config.MaxSocketPath {
		return d.Errorf("unix: want a path of at most %d bytes, got %d: %s", config.MaxSocketPath, len(path), path)
	}
	o.addr = "unix:" + path
	return nil
}

// A clusterZones is a handler with the zones and the namespaces of a cluster.
type clusterZones interface {
	ClusterOptions() cluster.Options
	ClusterZones() []wire.Name
	HasNamespace(label []byte) bool
}

// A policyReader is a directive that denies names.
type policyReader interface {
	// DeniedBy returns the group that denies the answered query, or would without audit; "" if none does.
	DeniedBy(q *dns.Query) string
	// Audit returns what the groups that audit would have denied; ok is false if none does.
	Audit() (report audit.Report, ok bool)
}

// readToken returns the token in a file.
func readToken(file string) (string, error) {
	text, err := watch.ReadKey(file)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("reading the token: %s is empty", file)
	}
	return token, nil
}

// local reports whether only this machine can reach an address.
func local(addr string) bool {
	if _, ok := config.SocketPath(addr); ok {
		return true
	}
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// public reports whether an address may be reached from other networks: one that is public, or
// all addresses of the machine.
func public(addr string) bool {
	if local(addr) {
		return false
	}
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.IsPrivate() && !ip.IsLinkLocalUnicast()
}

// A recorderKey identifies what is recorded. It includes redact, so that nothing remains
// readable that was recorded without it.
type recorderKey struct {
	addr   string
	redact bool
}

// A judgeKey identifies a judge.
type judgeKey struct {
	addr     string
	recorder *traffic.Recorder
}

func (a *Admin) start(s *config.Start, site *web.Site, d corefile.Directive) error {
	// The recorder survives reloads, and the service belongs to the plan.
	a.recorder, _ = config.Keep(s, recorderKey{a.options.addr, a.options.redact}, func() (*traffic.Recorder, error) {
		return traffic.NewRecorder(a.block.Memory.Claim(memory.Records)), nil
	})
	j, _ := config.Keep(s, judgeKey{a.options.addr, a.recorder}, func() (*judge.Judge, error) {
		return judge.New(a.block.Metrics, a.block.Health(), a.recorder, a.block.Log), nil
	})
	service, _ := config.Keep(s, config.InPlan{Plan: s, Key: a.options.addr}, func() (*service, error) {
		return newService(a.options, a.recorder, j, a.block.Metrics, a.block.Log), nil
	})
	if service.options != a.options {
		return d.Errorf("another server block has other options of admin for %s: use the same ones", a.options.addr)
	}
	service.blocks = append(service.blocks, a)
	if (service.api.cluster == cluster.Options{}) {
		service.api.cluster = a.cluster
	}
	if v := service.reviewer; v != nil {
		key := verdictsKey{a.options.addr, a.options.audience, service.api.cluster}
		v.verdicts, _ = config.Keep(s, key, func() (*verdicts, error) { return newVerdicts(), nil })
	}
	if f := service.pods; f != nil {
		key := podsKey{a.options.addr, service.api.cluster}
		f.knownPods, _ = config.Keep(s, key, func() (*knownPods, error) { return newKnownPods(), nil })
	}

	a.block.OnSwap(func() {
		j.SetUnready(service.unready)
		site.Handle("/", service)
	})
	return nil
}

// SetPorts passes the listening addresses of the server to explain.
func (a *Admin) SetPorts(ports []config.Port) { a.ports.Store(&ports) }

// BindChain returns the observer of c.
func (a *Admin) BindChain(c *dns.Chain) any {
	o := &observer{Admin: a, zone: c.Zone, names: []string{""}}
	for _, step := range c.Steps() {
		o.names = append(o.names, step.Name)
	}
	return o
}

// Repetition is not used, as ObserveDNS.
func (*Admin) Repetition() dns.Repetition { return dns.Repetition{} }

// ObserveDNS is not called: in each chain the result of BindChain stands in place of an Admin.
func (*Admin) ObserveDNS(*dns.Query) {}

// An observer records the queries of one chain.
type observer struct {
	*Admin
	zone  string
	names []string // of the directives, by step plus one
}

// Repetition reports that replies which the kernel of a node repeats are counted, their clients by a sample, and that
// the readers of tail get more samples.
func (o *observer) Repetition() dns.Repetition {
	return dns.Repetition{
		Count: func(r *dns.Repeated, n uint64) {
			name := r.Name
			if o.options.redact {
				name = nil
			}
			o.recorder.CountKernel(name, r.RCode.String(), n)
		},
		Samples: func() dns.SampleRate {
			if o.recorder.Watched() {
				return dns.ManySamples
			}
			return dns.FewSamples
		},
		Sample: func(q *dns.Query, weight float64) { o.record(q, o.names[q.AnsweredStep()+1], weight) },
	}
}

// ObserveDNS implements [dns.Observer]. It allocates no memory for most queries.
func (o *observer) ObserveDNS(q *dns.Query) {
	o.recorder.Count(q.Peer.Addr(), q.Name())
	if o.recorder.Selects() {
		o.record(q, o.source(q), 0)
	}
}

// record records a query that a directive has answered. The weight is that of a sample of the kernel's, and
// otherwise 0.
func (o *observer) record(q *dns.Query, source string, weight float64) {
	name := q.Name()
	e := traffic.Event{
		Time: q.Now(), Client: q.Peer.Addr(), Type: q.Type.String(), Protocol: q.Network().String(),
		Duration: q.Elapsed, Size: len(q.Reply()), Source: source, Zone: o.zone, Weight: weight,
	}
	if !q.Dropped() {
		e.RCode = q.RCode.String()
	}
	for _, p := range o.policies {
		e.Denied = p.DeniedBy(q)
	}

	var space [64 + len(traffic.Redacted) + wire.MaxName]byte
	namespace, search := append(space[:0], o.metadata(q)...), 0
	var searched int // labels of the name that a pod may have searched for
	if q.RCode == wire.NXDomain || o.options.redact {
		var label []byte
		label, searched = o.search(q)
		if q.RCode == wire.NXDomain {
			if len(label) > 1 {
				namespace = append(space[:0], label[1:]...)
			}
			search = q.LabelOffset(searched)
		}
	}

	if o.options.redact {
		e.Client = redactedClient(e.Client)
		hidden := searched > 0 && !(source == "kubernetes" && isOwnAnswer(q))
		name, search = o.redact(q, space[64:64], search, hidden)
	}
	if weight > 0 {
		o.recorder.RecordKernel(&e, name, namespace, search)
		return
	}
	o.recorder.Record(&e, name, namespace, search)
}

// source returns the name of the directive that answered.
func (o *observer) source(q *dns.Query) string {
	step := q.AnsweredStep()
	for _, c := range o.caches {
		if s, stored := c.Answered(q); !stored {
			step = s
		}
	}
	if step+1 < 0 || step+1 >= len(o.names) {
		return ""
	}
	return o.names[step+1]
}

// search returns the number of labels of the name that a pod searched for with the query, 0 if
// it was none of a pod's searches: a name of the cluster that does not exist and is a name of
// two labels or more before the search domains NAMESPACE.svc.ZONE, svc.ZONE and ZONE. The
// namespace in the search domain is that of the pod; it has its length before it, and is empty
// if there is none.
func (o *observer) search(q *dns.Query) (namespace []byte, labels int) {
	zone, ok := o.clusterZone(q)
	if !ok {
		return nil, 0
	}

	labels = q.Labels() - zone.Labels()
	label := func(i int) []byte { return q.Name()[q.LabelOffset(i):q.LabelOffset(i+1)] }

	switch {
	case labels < 2, string(label(labels-1)) == "\x03pod":
		return nil, 0
	case string(label(labels-1)) != "\x03svc": // NAME.ZONE
	case labels >= 4: // NAME.svc.ZONE, or NAME.NAMESPACE.svc.ZONE
		labels--
		if o.hasNamespace(label(labels - 1)) {
			labels--
			namespace = label(labels)
		}
	default:
		return nil, 0
	}

	if labels < 2 {
		return namespace, 0
	}
	return namespace, labels
}

// isOwnAnswer reports whether a query that a cluster has answered is for an existing name of it. Otherwise it may be
// a search whose answer autopath has replaced by an alias, which no name of an endpoint is.
func isOwnAnswer(q *dns.Query) bool {
	if q.Dropped() || q.RCode != wire.NoError {
		return false
	}
	if q.Answer.Count[wire.Answers] == 0 {
		return !q.TC // else the alias may have been removed
	}
	r, ok := wire.ReadRecord(q.Answer.Buf, q.Answer.RecordsOffset())
	return ok && r.Type != wire.TypeCNAME
}

// hasNamespace reports whether a cluster has a namespace. label has its length before it.
func (o *observer) hasNamespace(label []byte) bool {
	return slices.ContainsFunc(o.clusters, func(c clusterZones) bool { return c.HasNamespace(label) })
}

// clusterZone returns the zone of the cluster that the name is in.
func (o *observer) clusterZone(q *dns.Query) (wire.Name, bool) {
	for _, zone := range o.zones {
		if wire.Within(q.Name(), zone) {
			return zone, true
		}
	}
	return "", false
}

// redactedClient returns the network of a client.
func redactedClient(client netip.Addr) netip.Addr {
	bits := 16
	if client.Is6() {
		bits = 64
	}
	if p, err := client.Prefix(bits); err == nil {
		return p.Addr()
	}
	return client
}

// redact appends a query's name to buf, without its first labels if it is hidden, as a search, or is
// outside of the cluster. It returns the name and the length of what the client searches for.
func (o *observer) redact(q *dns.Query, buf []byte, search int, hidden bool) ([]byte, int) {
	keep := q.Labels()
	zone, inCluster := o.clusterZone(q)
	switch {
	case hidden:
		keep = zone.Labels() + 2
	case !inCluster:
		keep = 2
	}
	if keep >= q.Labels() {
		return append(buf, q.Name()...), search
	}

	if search > 0 {
		search = len(traffic.Redacted)
	}
	buf = append(buf, traffic.Redacted...)
	return append(buf, q.Name()[q.LabelOffset(q.Labels()-keep):]...), search
}
