// Package kubedns implements the directive kubedns_config. It follows kube-dns's
// ConfigMap, in a mounted directory (Directory) or through the API server (Object),
// and expands the directive into forward, federation and related directives. A
// Follower reads a Corefile with all its ConfigMaps expanded; the server plans the
// result like any other Corefile. The package answers no queries and opens no
// sockets.
package kubedns

import (
	"cmp"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A use is one use of the directive, understood: kubedns_config.
//
//	kubedns_config NAMESPACE/NAME|DIR {
//	    default TO...|none
//	    join_upstreams
//	    resolver IP[:PORT]...
//	    period DURATION
//	    endpoint URL
//	    tls CERT KEY CA
//	    kubeconfig FILE [CONTEXT]
//	    manifests DIR
//	    OPTION…              # of forward: policy, max_concurrent, force_tcp …
//	}
//
// It puts what the ConfigMap of kube-dns says into its server block: a line of
// forward for each of the stubDomains and for the upstreamNameservers, and one of
// federation. The ConfigMap is NAMESPACE/NAME in a cluster, or a directory that
// begins with / or ., as it is mounted in a pod: its files are the keys.
//
//	stubDomains           {"acme.example": ["10.0.0.10", "[fd00::1]:53", "ns.acme.example"]}
//	upstreamNameservers   ["8.8.8.8", "8.8.4.4:53"], three at most
//	federations           name=domain,name2=domain2
//
// A stub domain stands before every forward of the block whose zone it is in, so
// that the longest zone counts, and is no local zone of screen any more. Within the
// zones of kubernetes its servers are asked for the names that the cluster does not
// have, as if fallthrough named it. The upstreams stand before every other forward
// of the root. If there are no upstreams,
// those of default are asked, /etc/resolv.conf unless given; none, or a forward of the
// root in the block, is to add nobody. Of a stub domain's servers the first 15 are
// asked. Federations are for a block with a kubernetes directive that has endpoints;
// others leave them out. Those of a federation directive in the block stay, beside
// them.
//
// A change is served at once, as by a reload: no query is lost. It empties the cache,
// since other servers may answer now. What is wrong in the
// ConfigMap (a server that is no address, a fourth upstream, text that is no JSON)
// is logged in one line with everything that is wrong, and the last good state
// stays; at the start that is the defaults. A ConfigMap that is gone, or was never
// there, is the defaults. The service account needs get, list and watch on
// configmaps with its name in resourceNames. If the API server is away at the start
// the server waits five seconds for it and then begins with the defaults; later the
// last state stays.
//
//   - default: who is asked for everything else, as TO of forward.
//   - join_upstreams: upstreamNameservers are asked beside the servers of the block's
//     forward of the root, and in the place of files such as /etc/resolv.conf there.
//   - resolver: who is asked for the addresses of servers given by a name that lies
//     within a zone of the block, such as ns.default.svc.cluster.local; this server
//     itself unless given. Other names are looked up by the machine's resolver. All
//     are looked up every 30s.
//   - period: how often a directory is looked at besides, where changes do not tell
//     themselves; 10s.
//   - endpoint, tls, kubeconfig, manifests: where the ConfigMap is, as of
//     kubernetes; else in the pod's own cluster.
//   - every option of forward that has to do with how others are asked goes to each
//     of the lines.
//
// The usual one beside a cluster:
//
//	.:1053 {
//	    kubernetes cluster.local in-addr.arpa ip6.arpa {
//	        manifests examples
//	        fallthrough in-addr.arpa ip6.arpa
//	    }
//	    kubedns_config ./kube-dns-config {
//	        policy sequential
//	    }
//	    cache
//	}
//
// Metrics: seamark_kubedns_config_updates_total{source,result}, the changes that
// were seen, applied or invalid; seamark_kubedns_config_valid{source}, 0 as long as
// what is there is not good.
//
// Ours: CoreDNS has its users translate the ConfigMap by hand. Differs from
// kube-dns and dnsmasq-nanny: stub domains hold for the targets of ExternalName
// Services too; servers' names are looked up again and again, those in the cluster
// whatever its domain is called; changes need no restart and keep the cache;
// federations may also be a JSON object.
type use struct {
	source
	defaults []corefile.Token // nil is ResolvConf
	resolver []corefile.Token
	joined   bool                 // upstreams go to the block's forward
	options  []corefile.Directive // for each forward
}

// A source is where a ConfigMap comes from. Equal sources are one.
type source struct {
	dir    string // absolute or relative to the working directory; "" is object
	period time.Duration
	object cluster.Options
}

// none, in the place of a default, is nobody.
const none = "none"

// passed are the options that go to each forward.
var passed = [...]string{
	"expire", "failfast_all_unhealthy_upstreams", "failover", "force_tcp", "health_check", "max_age", "max_concurrent",
	"max_connect_attempts", "max_fails", "max_idle_conns", "policy", "prefer_udp", "read_timeout", "source_address",
}

// Setup is the Setup of kubedns_config: it checks the options. What they are for a
// Follower has done.
func Setup(b *config.Block, uses []corefile.Directive) error {
	_, err := parseUse(uses[0], b.Path(""))
	return errors.Join(config.Once(uses), err)
}

// parseUse reads a directive; root is the folder of relative paths.
func parseUse(d corefile.Directive, root string) (u use, err error) {
	path := func(file string) string {
		if filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(root, file)
	}
	if err := d.Arity(1, 1); err != nil {
		return u, err
	}
	var errs []error
	options := []corefile.Option{
		{Name: "default", Min: 1, Max: -1, Set: func(o corefile.Directive) error { u.defaults = o.Args; return nil }},
		{Name: "join_upstreams", Set: corefile.Flag(&u.joined)},
		{Name: "resolver", Min: 1, Max: -1, Set: func(o corefile.Directive) error { u.resolver = o.Args; return addresses(o) }},
		{Name: "period", Min: 1, Max: 1, Set: corefile.Duration(&u.period, 10*time.Millisecond, 24*time.Hour)},
		{Name: "endpoint", Min: 1, Max: 1, Set: corefile.String(&u.object.Endpoint)},
		{Name: "tls", Min: 3, Max: 3, Set: func(o corefile.Directive) error {
			u.object.Cert, u.object.Key, u.object.CA = path(o.Args[0].Text), path(o.Args[1].Text), path(o.Args[2].Text)
			return nil
		}},
		{Name: "kubeconfig", Min: 1, Max: 2, Set: func(o corefile.Directive) error {
			words := append(o.Words(), "")
			u.object.Kubeconfig, u.object.KubeconfigContext = path(words[0]), words[1]
			return nil
		}},
		{Name: "manifests", Min: 1, Max: 1, Set: func(o corefile.Directive) error { u.object.Manifests = path(o.Args[0].Text); return nil }},
	}
	for _, name := range passed {
		options = append(options, corefile.Option{Name: name, Max: -1, Set: func(o corefile.Directive) error {
			u.options = append(u.options, o)
			return nil
		}})
	}
	errs = append(errs, d.Options(options...))
	if name := d.Args[0].Text; strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") {
		if u.object != (cluster.Options{}) {
			errs = append(errs, d.Errorf("endpoint, tls, kubeconfig and manifests say where a ConfigMap is, and %s is a directory", name))
		}
		u.object, u.dir = cluster.Options{}, path(name)
	} else {
		u.object.ConfigMap = name
		errs = append(errs, wrap(d, u.object.Check()))
	}
	return u, errors.Join(errs...)
}

// addresses checks that the arguments are.
func addresses(o corefile.Directive) error {
	var errs []error
	for _, a := range o.Args {
		if _, err := netip.ParseAddr(a.Text); err == nil {
			continue
		}
		if _, err := netip.ParseAddrPort(a.Text); err != nil {
			errs = append(errs, a.Errorf(o.Path, "want IP or IP:PORT, got %q", a.Text))
		}
	}
	return errors.Join(errs...)
}

// wrap puts the directive's place in front of what is wrong with a source.
func wrap(d corefile.Directive, err error) error {
	if err == nil {
		return nil
	}
	return d.Errorf("%w", err)
}

// uses finds the directive in a server block, understood. One that is wrong is
// left to the plan, which says so.
func uses(s corefile.Server) (u use, at int, ok bool) {
	at = slices.IndexFunc(s.Directives, func(d corefile.Directive) bool { return d.Text == "kubedns_config" })
	if at < 0 {
		return u, at, false
	}
	root := ""
	for _, d := range s.Directives {
		if d.Text == "root" && len(d.Args) == 1 {
			root = cmp.Or(root, d.Args[0].Text)
		}
	}
	u, err := parseUse(s.Directives[at], root)
	return u, at, err == nil
}
