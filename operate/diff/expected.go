package diff

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	seamark "github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

// kubeadmCorefile has the zones and options of the kubernetes directive in kubeadm's Corefile.
const kubeadmCorefile = `. {
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 30
    }
}
`

// plainCorefile has the directive's default options, as the command serve --manifests.
const plainCorefile = `. {
    kubernetes cluster.local in-addr.arpa ip6.arpa
}
`

// assumedCorefile returns the Corefile that is assumed for a server whose Corefile is not
// known, and a name for its options. soa is the reply to a query for the SOA record of the zone.
func assumedCorefile(soa *dns.Msg) (text, name string) {
	for _, rr := range soa.Answer {
		if rr.Header().Rrtype == dns.TypeSOA && rr.Header().Ttl == defaultTTL {
			return plainCorefile, "the default options of the directive kubernetes" +
				" (the server's SOA record has the TTL 5)"
		}
	}
	return kubeadmCorefile, "the options of kubeadm's Corefile"
}

// defaultTTL is the TTL in seconds of the directive kubernetes without the option ttl.
const defaultTTL = 5

// readLimit is how long newExpected waits for the objects.
const readLimit = 2 * time.Minute

// readingInterval is the time between two reports that the objects are being read.
const readingInterval = 2 * time.Second

// A source is the directive kubernetes, as far as a comparison uses it.
type source interface {
	Objects() iter.Seq2[cluster.Kind, cluster.Object]
	Ready() bool
	AuthoritativeZones() []wire.Name
}

// expected is a server without sockets that answers from the objects.
type expected struct {
	plan    *server.Plan
	source  source
	zones   []string // the zones that are not reverse zones
	reverse []string // the reverse zones
	all     zoneList // both
	kubeDNS bool     // compatible kube-dns
	port    *seamark.Port
	reading func(time.Duration) // called at intervals while the objects are read; nil for none
	*problems
}

func newExpected(ctx context.Context, o Options) (*expected, error) {
	if err := o.Cluster.CheckFiles(); err != nil {
		return nil, err
	}
	servers, err := expectedServers("Corefile", o)
	if err != nil {
		return nil, err
	}

	e := &expected{reading: o.Reading, problems: new(problems)}
	e.kubeDNS = corefile.IndexOf(servers[0].Directives[0].Body, "compatible") >= 0
	e.started = o.Cluster.Manifests != "" // a file with an error does not prevent the comparison
	e.plan, err = server.NewPlan(servers, server.Options{
		Directives: o.Directives, Port: 53,
		Log: slog.New(problemLog{o.Log.Handler(), e.problems}), Metrics: new(metrics.Registry),
		Listen: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 53)},
		Open: func(_ context.Context, addr netip.AddrPort, _ transport.Options) (server.Listener, error) {
			l := server.Unconnected(addr)
			e.port = l.Port()
			return l, nil
		},
	})
	if err != nil {
		return nil, err
	}
	if err := e.plan.Warnings(); err != nil {
		return nil, err // a folder or a kubeconfig that cannot be read
	}

	e.source = server.Find[source](e.plan)[0]
	for _, z := range e.source.AuthoritativeZones() {
		if wire.WithinReverse(z) {
			e.reverse = append(e.reverse, z.String())
		} else {
			e.zones = append(e.zones, z.String())
		}
	}
	e.all = slices.Concat(e.zones, e.reverse)

	if err := e.plan.Start(ctx, nil); err != nil {
		return nil, err
	}
	if err := e.wait(ctx); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// wait blocks until the objects have been read.
func (e *expected) wait(ctx context.Context) error {
	limit := time.After(readLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	start, reported := time.Now(), time.Duration(0)
	for !e.source.Ready() {
		select {
		case <-tick.C:
			if duration := time.Since(start); e.reading != nil && duration >= reported+readingInterval {
				reported = duration
				e.reading(duration)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return e.timeout(readLimit)
		}
		if err := e.err(); err != nil {
			return err
		}
	}

	e.problems.start()
	for kind := range e.source.Objects() {
		if kind == cluster.Services || kind == cluster.Imports {
			return nil
		}
	}
	return errors.New("the cluster has no Service to compare")
}

func (e *expected) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // there are no clients to wait for
	e.plan.Stop(ctx)
}

// expectedServers returns a server block with the kubernetes directive of the Corefile file,
// changed so that it reads the objects from o.Cluster.
func expectedServers(file string, o Options) ([]corefile.Server, error) {
	servers, err := corefile.Parse(file, []byte(o.Corefile))
	if err != nil {
		return nil, err
	}
	location, err := locationOptions(o.Cluster)
	if err != nil {
		return nil, err
	}

	for _, s := range servers {
		for _, d := range s.Directives {
			if d.Text == "kubernetes" {
				return expectedServer(s, d, location)
			}
		}
	}
	return nil, fmt.Errorf("%s: no kubernetes directive", file)
}

// expectedServer returns a server block of all names with a kubernetes directive of s, whose objects
// are at a location.
func expectedServer(
	s corefile.Server, d corefile.Directive, location []corefile.Directive,
) ([]corefile.Server, error) {
	// Other options locate the objects, or pass queries on.
	kept := []string{
		"pods", "ptr", "ttl", "namespaces", "namespace_labels", "labels", "noendpoints", "only",
		"endpoint_pod_names", "ignore", "multicluster", "zonal", "compatible", "wildcards",
	}
	d.Body = slices.DeleteFunc(d.Body, func(o corefile.Directive) bool { return !slices.Contains(kept, o.Text) })
	for _, option := range location {
		option.Token.File, option.Token.Line = d.File, d.Line
		option.Path = d.Path + ": " + option.Text
		d.Body = append(d.Body, option)
	}

	if len(d.Args) == 0 { // the zones of the block
		for _, k := range s.Keys {
			keys, err := config.ParseKey(k, 53)
			if err != nil {
				return nil, err
			}
			for _, k := range keys {
				d.Args = append(d.Args, corefile.Token{Text: k.Zone.String(), File: d.File, Line: d.Line})
			}
		}
	}

	root := corefile.Token{Text: ".", File: d.File, Line: d.Line}
	return []corefile.Server{{Keys: []corefile.Token{root}, Directives: []corefile.Directive{d}}}, nil
}

// CheckCorefile returns an error if the text of file is not a Corefile with a
// kubernetes directive.
func CheckCorefile(file, text string) error {
	_, err := expectedServers(file, Options{Corefile: text})
	return err
}

// locationOptions returns the options of the directive kubernetes that locate the objects.
func locationOptions(o cluster.Options) ([]corefile.Directive, error) {
	var options []corefile.Directive
	add := func(name string, words ...string) {
		d := corefile.Directive{Token: corefile.Token{Text: name}}
		for _, w := range words {
			d.Args = append(d.Args, corefile.Token{Text: w})
		}
		options = append(options, d)
	}

	add("startup_timeout", readLimit.String()) // no warning before
	switch {
	case o.Manifests != "":
		add("manifests", o.Manifests)
	case o.Kubeconfig != "" && o.KubeconfigContext != "":
		add("kubeconfig", o.Kubeconfig, o.KubeconfigContext)
	case o.Kubeconfig != "":
		add("kubeconfig", o.Kubeconfig)
	case o.Endpoint != "":
		add("endpoint", o.Endpoint)
		if o.Cert != "" || o.CA != "" {
			if o.Cert == "" {
				return nil, errors.New("an endpoint with a CA needs a certificate and a key")
			}
			add("tls", o.Cert, o.Key, o.CA)
		}
	}
	return options, nil
}

// answer returns the expected answer to a query over TCP, which is not truncated.
func (e *expected) answer(ctx context.Context, packet []byte) (*dns.Msg, error) {
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)
	x, ok := e.port.Explain(ctx, seamark.Explained{
		Packet: packet, Client: loopback, Local: loopback, Proto: seamark.TCP,
	})
	if !ok {
		return nil, errors.New("the expected answer: the query was ignored")
	}

	m := new(dns.Msg)
	if err := m.Unpack(x.Reply); err != nil {
		return nil, fmt.Errorf("the expected answer: %w", err)
	}
	return m, nil
}

// isReverse reports whether a name is in a reverse zone.
func isReverse(name string) bool {
	return strings.HasSuffix(name, ".in-addr.arpa.") || strings.HasSuffix(name, ".ip6.arpa.")
}
