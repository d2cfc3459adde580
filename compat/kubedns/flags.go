// Package kubedns translates kube-dns's flags and environment into a Corefile. The
// command kube-dns and package convert call it; the directives that the Corefile
// names do the work.
package kubedns

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/flags"
	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/spf13/pflag"
)

// Flags are the flags of kube-dns and a few of Seamark.
type Flags struct {
	Domain             string
	Nameservers        string // ip[:port],…; only without a ConfigMap
	Federations        string // name=domain,…; only without a ConfigMap
	Kubeconfig, Master string // both empty: the pod's own cluster
	HealthzPort        uint16
	BindAddress        string
	Port               uint16
	ConfigMapNamespace string
	ConfigMap          string // may be empty
	ConfigDir          string // may be empty
	ConfigPeriod       time.Duration
	InitialSyncTimeout time.Duration
	Profiling          bool

	// Flags that kube-dns does not have.
	CacheSize int // capacity for positive and for negative answers; 0: no cache
	Wildcards bool
	CacheFor  string // clients that may read /cache: local, any
	Lameduck  time.Duration
}

// DefaultFlags returns the defaults of kube-dns.
func DefaultFlags() Flags {
	return Flags{
		Domain: "cluster.local.", HealthzPort: 8081, BindAddress: "0.0.0.0", Port: 53,
		ConfigMapNamespace: "kube-system", ConfigPeriod: 10 * time.Second, InitialSyncTimeout: time.Minute,
		CacheSize: 10000, Wildcards: true, CacheFor: "local", Lameduck: 5 * time.Second,
	}
}

// AddFlags adds kube-dns's flags to f. Their defaults are the current values.
func (f *Flags) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&f.Domain, "domain", f.Domain, "`ZONE` of the cluster")
	set.StringVar(&f.Nameservers, "nameservers", "", "`IP[:PORT],…` of the upstreams without a ConfigMap (default those in /etc/resolv.conf)")
	set.StringVar(&f.Kubeconfig, "kubecfg-file", "", "kubeconfig `FILE` of the cluster (default the pod's service account)")
	set.StringVar(&f.Master, "kube-master-url", "", "`URL` of the API server; may contain environment variables ($NAME)")
	set.Var((*flags.Port)(&f.HealthzPort), "healthz-port", "`PORT` of /readiness and /cache")
	set.StringVar(&f.BindAddress, "dns-bind-address", f.BindAddress, "`ADDRESS` to listen on")
	set.Var((*flags.Port)(&f.Port), "dns-port", "`PORT` to listen on, UDP and TCP")
	set.StringVar(&f.Federations, "federations", "", "`NAME=DOMAIN,…` without a ConfigMap")
	set.StringVar(&f.ConfigMapNamespace, "config-map-namespace", f.ConfigMapNamespace, "`NAMESPACE` of --config-map")
	set.StringVar(&f.ConfigMap, "config-map", "", "`NAME` of the ConfigMap to follow through the API server")
	set.StringVar(&f.ConfigDir, "config-dir", "", "`DIR` with the mounted ConfigMap to follow")
	set.DurationVar(&f.ConfigPeriod, "config-period", f.ConfigPeriod, "poll --config-dir at this interval, for file systems without change notification")
	set.DurationVar(&f.InitialSyncTimeout, "initial-sync-timeout", f.InitialSyncTimeout, "log after this time that the cluster's data is incomplete; other names are answered at once")
	set.BoolVar(&f.Profiling, "profiling", false, "serve profiles at localhost:6060")
	set.IntVar(&f.CacheSize, "cache-size", f.CacheSize, "cache this many positive and as many negative answers of upstreams; 0 disables the cache")
	set.BoolVar(&f.Wildcards, "wildcards", f.Wildcards, "let * match any label in queries")
	set.StringVar(&f.CacheFor, "cache-for", f.CacheFor, "clients that may read /cache: local (this host) or any")
	set.DurationVar(&f.Lameduck, "lameduck", f.Lameduck, "keep answering for this time after SIGTERM")
}

// Corefile returns the Corefile for the flags and the environment, and a note for
// each flag that is ignored. getenv returns environment variables.
func (f Flags) Corefile(getenv func(string) string) (text string, notes []string, err error) {
	w := flagWriter{Flags: f, getenv: getenv}
	w.block()
	return w.text.String(), w.notes, errors.Join(w.errs...)
}

// A flagWriter writes the Corefile and collects all mistakes.
type flagWriter struct {
	Flags
	getenv func(string) string
	text   strings.Builder
	notes  []string
	errs   []error
}

func (w *flagWriter) line(format string, args ...any) {
	fmt.Fprintf(&w.text, "    "+format+"\n", args...)
}

func (w *flagWriter) fail(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

func (w *flagWriter) block() {
	fmt.Fprintf(&w.text, ".:%d {\n", w.Port)
	if addr, err := netip.ParseAddr(w.BindAddress); err != nil {
		w.fail("--dns-bind-address: want an IP address, got %q", w.BindAddress)
	} else {
		w.line("bind %s", addr)
	}
	w.line("errors {\n        consolidate 30s . warning show_first\n    }") // a failing upstream logs one line
	w.line("kubedns_status :%d {\n        cache %s\n    }", w.HealthzPort, w.CacheFor)
	if w.CacheFor != "local" && w.CacheFor != "any" {
		w.fail("--cache-for: want local or any, got %q", w.CacheFor)
	}
	for _, p := range [...]struct {
		name string
		port uint16
	}{{"--dns-port", w.Port}, {"--healthz-port", w.HealthzPort}} {
		if p.port == 0 {
			w.fail("%s: want a port of 1..65535, got 0", p.name)
		}
	}
	if w.CacheSize < 0 {
		w.fail("--cache-size: want 0 or more, got %d", w.CacheSize)
	}
	w.errs = append(w.errs,
		flags.CheckRange("--lameduck", w.Lameduck, 0, time.Hour),
		flags.CheckRange("--initial-sync-timeout", w.InitialSyncTimeout, 0, time.Hour),
		flags.CheckRange("--config-period", w.ConfigPeriod, 10*time.Millisecond, 24*time.Hour))
	w.metrics()
	if w.Profiling {
		w.line("pprof localhost:6060")
	}
	if w.Lameduck > 0 {
		w.line("lameduck %s", w.Lameduck)
	}
	w.line("header {\n        response set ra\n    }")
	w.line("template CH ANY . {\n        rcode SERVFAIL\n    }")
	w.line("chaos {\n        statistics\n    }") // dnsmasq's counters, which a sidecar polls
	w.line("loadbalance")
	w.kubernetes()
	w.configMap()
	if w.CacheSize > 0 {
		w.line("cache {\n        success %d\n        denial %d\n    }", w.CacheSize, w.CacheSize)
	}
	w.line("loop")
	w.text.WriteString("}\n")
}

// metrics enables metrics if the environment sets their port.
func (w *flagWriter) metrics() {
	port := w.getenv("PROMETHEUS_PORT")
	if port == "" {
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		w.fail("PROMETHEUS_PORT: want a port of 1..65535, got %q", port)
	}
	path := w.getenv("PROMETHEUS_PATH")
	if path == "" {
		path = "/metrics"
	}
	w.line("skydns_metrics :%s %s {", port, w.word("PROMETHEUS_PATH", path))
	for _, part := range [...]string{"namespace", "subsystem"} {
		variable := "PROMETHEUS_" + strings.ToUpper(part)
		if name := w.getenv(variable); name != "" {
			w.line("    %s %s", part, w.word(variable, name))
		}
	}
	w.line("}")
}

func (w *flagWriter) kubernetes() {
	domain := strings.ToLower(strings.TrimSuffix(w.Domain, "."))
	if !kubednsconfig.IsSubdomain(domain) {
		w.fail("--domain: want a name of DNS-1123 labels such as cluster.local., got %q", w.Domain)
	}
	w.line("kubernetes %s in-addr.arpa ip6.arpa {", domain)
	w.source("    ")
	w.line("    compatible kube-dns")
	if w.Wildcards {
		w.line("    wildcards")
	}
	w.line("    pods insecure")
	w.line("    ttl 30")
	w.line("    fallthrough in-addr.arpa ip6.arpa")
	w.line("    startup_timeout %s", w.InitialSyncTimeout)
	w.line("}")
}

// source writes the location of the API server.
func (w *flagWriter) source(indent string) {
	master := os.Expand(w.Master, w.getenv)
	if master != "" {
		u, err := url.Parse(master)
		if err != nil || u.Scheme == "" || u.Host == "" {
			w.fail("--kube-master-url: want a URL such as https://10.0.0.1:6443, got %q", w.Master)
		}
	}
	switch {
	case w.Kubeconfig != "" && master != "":
		w.fail("--kubecfg-file and --kube-master-url: want one of them: the file can name the server")
	case w.Kubeconfig != "":
		w.line("%skubeconfig %s", indent, w.word("--kubecfg-file", w.Kubeconfig))
	case master != "":
		w.line("%sendpoint %s", indent, w.word("--kube-master-url", master))
	}
}

// configMap writes the upstreams for names outside the cluster.
func (w *flagWriter) configMap() {
	switch {
	case w.ConfigMap != "" && w.ConfigDir != "":
		w.fail("--config-map and --config-dir: want one of them")
	case w.ConfigMap != "" && (!kubednsconfig.IsLabel(w.ConfigMapNamespace) || !kubednsconfig.IsSubdomain(w.ConfigMap)):
		w.fail("--config-map-namespace and --config-map: want the names of a namespace and of a ConfigMap, got %q and %q", w.ConfigMapNamespace, w.ConfigMap)
	case w.ConfigMap != "":
		w.line("kubedns_config %s {", w.word("--config-map", w.ConfigMapNamespace+"/"+w.ConfigMap))
		w.source("    ")
		w.line("    policy sequential")
		w.line("}")
	case w.ConfigDir != "":
		dir := w.ConfigDir
		if !strings.HasPrefix(dir, "/") && !strings.HasPrefix(dir, ".") {
			dir = "./" + dir
		}
		w.line("kubedns_config %s {", w.word("--config-dir", dir))
		w.line("    period %s", w.ConfigPeriod)
		w.line("    policy sequential")
		w.line("}")
	default:
		w.withoutConfigMap()
		return
	}
	for _, f := range [...]struct{ name, value string }{{"--nameservers", w.Nameservers}, {"--federations", w.Federations}} {
		if f.value != "" {
			w.notes = append(w.notes, f.name+" is ignored: the ConfigMap replaces it")
		}
	}
}

// withoutConfigMap writes the upstreams and federations of the flags.
func (w *flagWriter) withoutConfigMap() {
	to := "/etc/resolv.conf"
	if w.Nameservers != "" {
		var servers []string
		for text := range strings.SplitSeq(w.Nameservers, ",") {
			addr, ok := kubednsconfig.ParseAddress(strings.TrimSpace(text))
			if !ok {
				w.fail("--nameservers: want IP or IP:PORT, got %q", text)
			}
			if !slices.Contains(servers, addr.String()) {
				servers = append(servers, addr.String())
			}
		}
		to = strings.Join(servers, " ")
	}
	w.line("forward . %s {\n        policy sequential\n    }", to)
	if w.Federations == "" {
		return
	}
	c, err := kubednsconfig.Parse(map[string]string{"federations": w.Federations})
	if err != nil {
		w.fail("--federations: %w", err)
	}
	w.line("federation {")
	for _, f := range c.Federations {
		if f.Name == "import" { // the Corefile would import a file
			w.fail("--federations: the name import has a meaning in a Corefile: set this federation in a ConfigMap")
		}
		w.line("    %s %s", f.Name, f.Domain)
	}
	w.line("}")
}

// word returns text as a word of a Corefile.
func (w *flagWriter) word(flag, text string) string {
	written, err := corefile.Word(text)
	if err != nil {
		w.fail("%s: %w", flag, err)
	}
	return written
}
