// Package kubedns implements the directive kubedns_config. It follows kube-dns's
// ConfigMap (Source) and expands the directive into forward, federation and related
// directives. A Follower reads a Corefile with all its ConfigMaps expanded; the
// server plans the result like any other Corefile. The package answers no queries
// and opens no sockets.
package kubedns

import (
	"cmp"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A use applies kube-dns's ConfigMap, and every change of it: the kubedns_config directive.
// Its reference page is docs/reference/directives/kubedns_config.md.
type use struct {
	Source
	defaults []corefile.Token
	resolver []corefile.Token
	joined   bool                 // add upstreams to the block's forward
	options  []corefile.Directive // for each forward
}

// none is the argument of default for no upstreams.
const none = "none"

// forwardOptions are the options that each forward gets.
var forwardOptions = [...]string{
	"case_randomization", "expire", "failfast_all_unhealthy_upstreams", "failover", "force_tcp", "health_check",
	"max_age", "max_concurrent",
	"max_connect_attempts", "max_fails", "max_idle_conns", "policy", "prefer_udp", "read_timeout", "source_address",
}

// Setup checks the options of kubedns_config. A Follower has expanded the directive
// before the plan.
func Setup(b *config.Block, uses []corefile.Directive) error {
	u, err := parseUse(uses[0], b.Path(""))
	if err := errors.Join(config.Once(uses), err); err != nil {
		return err
	}
	if err := u.Object.CheckFiles(); err != nil { // the server waits for them
		b.Warn(uses[0].Each(err))
	}
	return nil
}

// parseUse parses a kubedns_config; root is the base directory of relative paths.
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
		{Usage: "default TO...|none", Default: "/etc/resolv.conf", Set: func(o corefile.Directive) error {
			u.defaults = o.Args
			return nil
		}},
		{Usage: "join_upstreams", Set: corefile.Flag(&u.joined)},
		{Usage: "resolver IP[:PORT]...", Set: func(o corefile.Directive) error {
			u.resolver = o.Args
			return addresses(o)
		}},
		{
			Usage: "period DURATION", Default: "10s",
			Set: corefile.Duration(&u.Period, 10*time.Millisecond, 24*time.Hour),
		},
		{Usage: "endpoint URL", Set: corefile.String(&u.Object.Endpoint)},
	}
	options = append(options, sources.LocationOptions(&u.Object, path)...)

	for _, name := range forwardOptions {
		set := func(o corefile.Directive) error {
			u.options = append(u.options, o)
			return nil
		}
		options = append(options, corefile.Option{Usage: name + " [ARGUMENTS...]", Set: set})
	}
	errs = append(errs, d.Options(options...))

	if name := d.Args[0].Text; strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") {
		if u.Object != (cluster.Options{}) {
			errs = append(errs, d.Errorf("endpoint, tls, kubeconfig and manifests are for a ConfigMap in a cluster, "+
				"and %s is a directory: remove them", name))
		}
		u.Object, u.Dir = cluster.Options{}, path(name)
	} else {
		u.Object.ConfigMap = name
		errs = append(errs, d.Each(u.Object.Check()))
	}
	return u, errors.Join(errs...)
}

// addresses checks that the arguments are IP addresses with optional ports.
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

// findUse finds and parses the kubedns_config of a server block. ok is false if there
// is none or if it is invalid, which the plan reports.
func findUse(s corefile.Server) (u use, at int, ok bool) {
	at = corefile.IndexOf(s.Directives, "kubedns_config")
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
