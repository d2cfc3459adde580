// Package kubedns translates kube-dns's flags and environment into a Corefile. The
// command kube-dns and package convert call it; the directives that the Corefile
// names do the work.
package kubedns

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/sys/redact"
	"github.com/spf13/pflag"
)

// Flags are the flags of kube-dns and a few of Seamark.
type Flags struct {
	Domain             string
	Nameservers        string // ip[:port],...; only without a ConfigMap
	Federations        string // name=domain,...; only without a ConfigMap
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
	set.StringVar(&f.Nameservers, "nameservers", "",
		"`IP[:PORT],...` of the upstreams without a ConfigMap (default those in /etc/resolv.conf)")
	set.StringVar(&f.Kubeconfig, "kubecfg-file", "",
		"kubeconfig `FILE` of the cluster (default the pod's service account)")
	set.StringVar(&f.Master, "kube-master-url", "",
		"`URL` of the API server; may contain environment variables ($NAME)")
	set.Var((*flags.Port)(&f.HealthzPort), "healthz-port", "`PORT` of /readiness and /cache")
	set.StringVar(&f.BindAddress, "dns-bind-address", f.BindAddress, "`ADDRESS` to listen on")
	set.Var((*flags.Port)(&f.Port), "dns-port", "`PORT` to listen on, UDP and TCP")

	set.StringVar(&f.Federations, "federations", "", "`NAME=DOMAIN,...` without a ConfigMap")
	set.StringVar(&f.ConfigMapNamespace, "config-map-namespace", f.ConfigMapNamespace, "`NAMESPACE` of --config-map")
	set.StringVar(&f.ConfigMap, "config-map", "", "`NAME` of the ConfigMap to follow through the API server")
	set.StringVar(&f.ConfigDir, "config-dir", "", "`DIR` with the mounted ConfigMap to follow")
	set.DurationVar(&f.ConfigPeriod, "config-period", f.ConfigPeriod,
		"poll --config-dir at this interval, for file systems without change notification")
	set.DurationVar(&f.InitialSyncTimeout, "initial-sync-timeout", f.InitialSyncTimeout,
		"log after this time that the cluster's data is incomplete; other names are answered at once")
	set.BoolVar(&f.Profiling, "profiling", false, "serve profiles at localhost:6060")

	set.IntVar(&f.CacheSize, "cache-size", f.CacheSize,
		"cache this many positive and as many negative answers of upstreams; 0 disables the cache")
	set.BoolVar(&f.Wildcards, "wildcards", f.Wildcards, "let * match any label in queries")
	set.StringVar(&f.CacheFor, "cache-for", f.CacheFor, "clients that may read /cache: local (this host) or any")
	set.DurationVar(&f.Lameduck, "lameduck", f.Lameduck, "keep answering for this time after SIGTERM")
}

// Corefile returns the Corefile for the flags and the environment, and a note for
// each flag that is ignored. getenv returns environment variables.
func (f Flags) Corefile(getenv func(string) string) (text string, notes []string, err error) {
	w := writer{Flags: f, Writer: flags.Writer{Getenv: getenv}}
	w.Block(fmt.Sprintf(".:%d", f.Port), w.block)
	text, err = w.Writer.Corefile()
	return text, w.notes, err
}

type writer struct {
	Flags
	flags.Writer
	notes []string
}

func (w *writer) block() {
	addr, err := netip.ParseAddr(w.BindAddress)
	w.FailIf(err != nil, "--dns-bind-address: want an IP address, got %q", w.BindAddress)
	w.FailIf(w.CacheFor != "local" && w.CacheFor != "any", "--cache-for: want local or any, got %q", w.CacheFor)
	w.FailIf(w.CacheSize < 0, "--cache-size: want 0 or more, got %d", w.CacheSize)
	w.Add(
		flags.CheckRange("--dns-port", w.Port, 1, math.MaxUint16),
		flags.CheckRange("--healthz-port", w.HealthzPort, 1, math.MaxUint16),
		flags.CheckRange("--lameduck", w.Lameduck, 0, time.Hour),
		flags.CheckRange("--initial-sync-timeout", w.InitialSyncTimeout, 0, time.Hour),
		flags.CheckRange("--config-period", w.ConfigPeriod, 10*time.Millisecond, 24*time.Hour))

	w.Directive("bind " + addr.String())
	w.Errors()
	w.Directive(fmt.Sprintf("kubedns_status :%d", w.HealthzPort), "cache "+w.CacheFor)
	w.Metrics()
	w.When(w.Profiling, "pprof localhost:6060")
	w.When(w.Lameduck > 0, "lameduck "+w.Lameduck.String())

	w.Directive("header", "response set ra")
	w.Directive("template CH ANY .", "rcode SERVFAIL")
	w.Directive("chaos", "statistics") // dnsmasq's counters, which a sidecar polls
	w.Directive("loadbalance")
	w.kubernetes()
	w.upstreams()
	w.When(w.CacheSize > 0, "cache", fmt.Sprintf("success %d", w.CacheSize), fmt.Sprintf("denial %d", w.CacheSize))
	w.Directive("loop")
}

func (w *writer) kubernetes() {
	domain := strings.ToLower(strings.TrimSuffix(w.Domain, "."))
	if !kubednsconfig.IsSubdomain(domain) {
		w.Fail("--domain: want a name of DNS-1123 labels such as cluster.local., got %q", w.Domain)
	}
	options := append(w.source(), "compatible kube-dns")
	if w.Wildcards {
		options = append(options, "wildcards")
	}
	w.Directive("kubernetes "+domain+" in-addr.arpa ip6.arpa", append(options, "pods insecure", "ttl 30",
		"fallthrough in-addr.arpa ip6.arpa", "startup_timeout "+w.InitialSyncTimeout.String())...)
}

// source returns the option that locates the API server.
func (w *writer) source() []string {
	master := os.Expand(w.Master, w.Getenv)
	u, err := corefile.ParseURL(master)
	w.FailIf(master != "" && (err != nil || u.Scheme == "" || u.Host == ""),
		"--kube-master-url: want a URL such as https://10.0.0.1:6443, got %q", redact.URL(w.Master))
	switch {
	case w.Kubeconfig != "" && master != "":
		w.Fail("--kubecfg-file and --kube-master-url: want one of them: the file can name the server")
	case w.Kubeconfig != "":
		return []string{"kubeconfig " + w.Word("--kubecfg-file", w.Kubeconfig)}
	case master != "":
		return []string{"endpoint " + w.Word("--kube-master-url", master)}
	}
	return nil
}

// upstreams writes the directives for names outside the cluster.
func (w *writer) upstreams() {
	switch {
	case w.ConfigMap != "" && w.ConfigDir != "":
		w.Fail("--config-map and --config-dir: want one of them")
	case w.ConfigMap != "":
		if !kubednsconfig.IsLabel(w.ConfigMapNamespace) || !kubednsconfig.IsSubdomain(w.ConfigMap) {
			w.Fail("--config-map-namespace and --config-map: want the names of a namespace and of a ConfigMap, "+
				"got %q and %q", w.ConfigMapNamespace, w.ConfigMap)
		}
		w.Directive("kubedns_config "+w.ConfigMapNamespace+"/"+w.ConfigMap, append(w.source(), sequential)...)
	case w.ConfigDir != "":
		dir := w.ConfigDir
		if !strings.HasPrefix(dir, "/") && !strings.HasPrefix(dir, ".") {
			dir = "./" + dir
		}
		w.Directive("kubedns_config "+w.Word("--config-dir", dir), "period "+w.ConfigPeriod.String(), sequential)
	default:
		w.withoutConfigMap()
		return
	}

	const ignored = " is ignored: the ConfigMap replaces it"
	if w.Nameservers != "" {
		w.notes = append(w.notes, "--nameservers"+ignored)
	}
	if w.Federations != "" {
		w.notes = append(w.notes, "--federations"+ignored)
	}
}

// sequential queries the upstreams in their order, as kube-dns does.
const sequential = "policy sequential"

// withoutConfigMap writes the upstreams and federations of the flags.
func (w *writer) withoutConfigMap() {
	servers := []string{"/etc/resolv.conf"}
	if w.Nameservers != "" {
		servers = nil
		for text := range strings.SplitSeq(w.Nameservers, ",") {
			addr, ok := kubednsconfig.ParseAddress(strings.TrimSpace(text))
			w.FailIf(!ok, "--nameservers: want IP or IP:PORT, got %q", text)
			if !slices.Contains(servers, addr.String()) {
				servers = append(servers, addr.String())
			}
		}
	}
	w.Directive("forward . "+strings.Join(servers, " "), sequential)
	if w.Federations == "" {
		return
	}

	c, err := kubednsconfig.Parse(map[string]string{"federations": w.Federations})
	if err != nil {
		w.Fail("--federations: %w", err)
	}
	var federations []string
	for _, f := range c.Federations {
		w.FailIf(f.Name == "import", // the Corefile would import a file
			"--federations: the name import has a meaning in a Corefile: set this federation in a ConfigMap")
		federations = append(federations, f.Name+" "+f.Domain)
	}
	w.Directive("federation", federations...)
}
