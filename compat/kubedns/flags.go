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
	"github.com/seamark/seamark/internal/kubednsconfig"
)

// Flags are those of kube-dns, and a few of ours. DefaultFlags has the defaults.
type Flags struct {
	Domain             string
	Nameservers        string // ip[:port],…; only without a ConfigMap
	Federations        string // name=domain,…; likewise
	Kubeconfig, Master string // "" and "" is the pod's own cluster
	HealthzPort        uint16
	BindAddress        string
	Port               uint16
	ConfigMapNamespace string
	ConfigMap          string // "" is none
	ConfigDir          string // "" is none
	ConfigPeriod       time.Duration
	InitialSyncTimeout time.Duration
	Profiling          bool

	// Ours.
	CacheSize int // answers of other servers, and as many denials; 0 is no cache
	Wildcards bool
	CacheFor  string // who may see /cache: local, any
	Lameduck  time.Duration
}

// DefaultFlags are kube-dns's.
func DefaultFlags() Flags {
	return Flags{
		Domain: "cluster.local.", HealthzPort: 8081, BindAddress: "0.0.0.0", Port: 53,
		ConfigMapNamespace: "kube-system", ConfigPeriod: 10 * time.Second, InitialSyncTimeout: time.Minute,
		CacheSize: 10000, Wildcards: true, CacheFor: "local", Lameduck: 5 * time.Second,
	}
}

// Corefile is what the flags and the environment mean, as the text of a Corefile,
// and in notes what of them means nothing. getenv gives the environment's
// variables.
func (f Flags) Corefile(getenv func(string) string) (text string, notes []string, err error) {
	w := flagWriter{Flags: f, getenv: getenv}
	w.block()
	return w.text.String(), w.notes, errors.Join(w.errs...)
}

// A flagWriter writes the Corefile, and gathers everything that is wrong.
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

func (w *flagWriter) wrong(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

func (w *flagWriter) block() {
	fmt.Fprintf(&w.text, ".:%d {\n", w.Port)
	if addr, err := netip.ParseAddr(w.BindAddress); err != nil {
		w.wrong("--dns-bind-address: want an IP address, got %q", w.BindAddress)
	} else {
		w.line("bind %s", addr)
	}
	w.line("errors {\n        consolidate 30s . warning show_first\n    }") // a dead upstream is one line
	w.line("kubedns_status :%d {\n        cache %s\n    }", w.HealthzPort, w.CacheFor)
	if w.CacheFor != "local" && w.CacheFor != "any" {
		w.wrong("--cache-for: want local or any, got %q", w.CacheFor)
	}
	for _, p := range [...]struct {
		name string
		port uint16
	}{{"--dns-port", w.Port}, {"--healthz-port", w.HealthzPort}} {
		if p.port == 0 {
			w.wrong("%s: want a port of 1..65535, got 0", p.name)
		}
	}
	if w.CacheSize < 0 {
		w.wrong("--cache-size: want 0 or more, got %d", w.CacheSize)
	}
	for _, t := range [...]struct {
		name       string
		time       time.Duration
		least, max time.Duration
	}{
		{"--lameduck", w.Lameduck, 0, time.Hour}, {"--initial-sync-timeout", w.InitialSyncTimeout, 0, time.Hour},
		{"--config-period", w.ConfigPeriod, 10 * time.Millisecond, 24 * time.Hour},
	} {
		if t.time < t.least || t.time > t.max {
			w.wrong("%s: want %s..%s, got %s", t.name, t.least, t.max, t.time)
		}
	}
	w.metrics()
	if w.Profiling {
		w.line("pprof localhost:6060")
	}
	if w.Lameduck > 0 {
		w.line("lameduck %s", w.Lameduck)
	}
	w.line("header {\n        response set ra\n    }")
	w.line("template CH ANY . {\n        rcode SERVFAIL\n    }")
	w.line("chaos {\n        statistics\n    }") // dnsmasq's, which a sidecar asks for
	w.line("loadbalance")
	w.kubernetes()
	w.configMap()
	if w.CacheSize > 0 {
		w.line("cache {\n        success %d\n        denial %d\n    }", w.CacheSize, w.CacheSize)
	}
	w.line("loop")
	w.text.WriteString("}\n")
}

// metrics are on if the environment says where.
func (w *flagWriter) metrics() {
	port := w.getenv("PROMETHEUS_PORT")
	if port == "" {
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		w.wrong("PROMETHEUS_PORT: want a port of 1..65535, got %q", port)
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
		w.wrong("--domain: want a name of DNS-1123 labels such as cluster.local., got %q", w.Domain)
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

// source says where the cluster is.
func (w *flagWriter) source(indent string) {
	master := os.Expand(w.Master, w.getenv)
	if master != "" {
		u, err := url.Parse(master)
		if err != nil || u.Scheme == "" || u.Host == "" {
			w.wrong("--kube-master-url: want a URL such as https://10.0.0.1:6443, got %q", w.Master)
		}
	}
	switch {
	case w.Kubeconfig != "" && master != "":
		w.wrong("--kubecfg-file and --kube-master-url: want one of them: the file can name the server")
	case w.Kubeconfig != "":
		w.line("%skubeconfig %s", indent, w.word("--kubecfg-file", w.Kubeconfig))
	case master != "":
		w.line("%sendpoint %s", indent, w.word("--kube-master-url", master))
	}
}

// configMap says who else is asked.
func (w *flagWriter) configMap() {
	switch {
	case w.ConfigMap != "" && w.ConfigDir != "":
		w.wrong("--config-map and --config-dir: want one of them")
	case w.ConfigMap != "" && (!kubednsconfig.IsLabel(w.ConfigMapNamespace) || !kubednsconfig.IsSubdomain(w.ConfigMap)):
		w.wrong("--config-map-namespace and --config-map: want the names of a namespace and of a ConfigMap, got %q and %q", w.ConfigMapNamespace, w.ConfigMap)
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
		w.alone()
		return
	}
	for _, f := range [...]struct{ name, value string }{{"--nameservers", w.Nameservers}, {"--federations", w.Federations}} {
		if f.value != "" {
			w.notes = append(w.notes, f.name+" means nothing beside a ConfigMap, which says that itself")
		}
	}
}

// alone is who else is asked if there is no ConfigMap.
func (w *flagWriter) alone() {
	to := "/etc/resolv.conf"
	if w.Nameservers != "" {
		var servers []string
		for text := range strings.SplitSeq(w.Nameservers, ",") {
			addr, ok := kubednsconfig.ParseAddress(strings.TrimSpace(text))
			if !ok {
				w.wrong("--nameservers: want IP or IP:PORT, got %q", text)
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
		w.wrong("--federations: %w", err)
	}
	w.line("federation {")
	for _, f := range c.Federations {
		if f.Name == "import" { // a Corefile would read a file
			w.wrong("--federations: a federation cannot be called import here: give it in a ConfigMap")
		}
		w.line("    %s %s", f.Name, f.Domain)
	}
	w.line("}")
}

// word writes one that may have any characters.
func (w *flagWriter) word(flag, text string) string {
	written, err := corefile.Word(text)
	if err != nil {
		w.wrong("%s: %w", flag, err)
	}
	return written
}
