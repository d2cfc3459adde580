package etcd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/wire"
)

// Flags are the flags of SkyDNS. The JSON names are those of its configuration in
// etcd. DefaultFlags returns the defaults.
type Flags struct {
	Addr        string        `json:"dns_addr"`
	Domain      string        `json:"domain"`
	Local       string        `json:"local"`
	Hostmaster  string        `json:"hostmaster"`
	RoundRobin  bool          `json:"round_robin"`
	NSRotate    bool          `json:"ns_rotate"`
	Nameservers []string      `json:"nameservers"` // HOST:PORT; from /etc/resolv.conf if empty
	NoRec       bool          `json:"no_rec"`
	ReadTimeout time.Duration `json:"read_timeout"`
	Priority    uint16        `json:"priority"`
	TTL         uint32        `json:"ttl"`
	MinTTL      uint32        `json:"min_ttl"`
	RCache      int           `json:"rcache"`
	RCacheTTL   int           `json:"rcache_ttl"`
	Ndots       int           `json:"ndot"`

	// These are not part of the configuration in etcd.
	Etcd       etcdclient.Options `json:"-"`
	PathPrefix string             `json:"-"`
	StubZones  bool               `json:"-"`
	Verbose    bool               `json:"-"`
	Lameduck   time.Duration      `json:"-"`
}

// DefaultFlags returns SkyDNS's defaults; getenv returns environment variables.
func DefaultFlags(getenv func(string) string) Flags {
	or := func(name, defaultValue string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return defaultValue
	}
	f := Flags{
		Addr: or("SKYDNS_ADDR", "127.0.0.1:53"), Domain: or("SKYDNS_DOMAIN", "skydns.local."), RoundRobin: true, NSRotate: true,
		ReadTimeout: 2 * time.Second, Priority: 10, TTL: 3600, MinTTL: 60, RCacheTTL: 60, Ndots: 2,
		PathPrefix: or("SKYDNS_PATH_PREFIX", "skydns"), Lameduck: 0,
		Etcd: etcdclient.Options{
			Endpoints: or("ETCD_MACHINES", "http://127.0.0.1:2379"),
			Username:  getenv("ETCD_USERNAME"), Password: getenv("ETCD_PASSWORD"),
			Cert: getenv("ETCD_TLSPEM"), Key: getenv("ETCD_TLSKEY"), CA: getenv("ETCD_CACERT"),
		},
	}
	if text := getenv("SKYDNS_NAMESERVERS"); text != "" {
		f.Nameservers = strings.Split(text, ",")
	}
	if n, err := strconv.Atoi(getenv("SKYDNS_NDOTS")); err == nil {
		f.Ndots = n
	}
	return f
}

// configKey returns the key of the configuration.
func (f Flags) configKey() string { return "/" + strings.Trim(f.PathPrefix, "/") + "/config" }

// stubKey returns the key below which stub zones are.
func (f Flags) stubKey() string {
	name, err := wire.ParseName("stub.dns." + f.Domain)
	if err != nil {
		return ""
	}
	return "/" + strings.Trim(f.PathPrefix, "/") + "/" + strings.Join(labelsFromTop(name), "/")
}

// labelsFromTop returns the labels of a name, top label first, in lower case.
func labelsFromTop(name wire.Name) (labels []string) {
	for rest := string(name); rest[0] != 0; rest = rest[1+int(rest[0]):] {
		labels = append([]string{strings.ToLower(rest[1 : 1+int(rest[0])])}, labels...)
	}
	return labels
}

// obsolete has the fields of SkyDNS's configuration that Seamark does not
// support.
type obsolete struct {
	Systemd bool   `json:"systemd"`
	DNSSEC  string `json:"dnssec"`
}

// Why two of SkyDNS's options are rejected.
const (
	NoDNSSEC  = "Seamark does not sign answers: let a signing server transfer the zone, or remove the keys"
	NoSystemd = "Seamark does not accept sockets from systemd: set the address with -addr"
)

// withConfig returns the flags with the values of the configuration in etcd.
func (f Flags) withConfig(text string) (Flags, error) {
	var old obsolete
	if err := json.Unmarshal([]byte(text), &old); err != nil {
		return f, err
	}
	if old.DNSSEC != "" {
		return f, errors.New("dnssec: " + NoDNSSEC)
	}
	if old.Systemd {
		return f, errors.New("systemd: " + NoSystemd)
	}
	f.Nameservers = append([]string(nil), f.Nameservers...) // Unmarshal would overwrite the caller's slice
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return f, err
	}
	return f, f.Check()
}

// Check returns all errors in the flags.
func (f Flags) Check() error {
	_, err := f.Corefile(nil, func(string) string { return "" })
	return err
}

// maxServers is the limit of the directive forward.
const maxServers = 15

// A Stub is a zone and its upstream servers.
type Stub struct {
	Zone    string   // without the final dot
	Servers []string // IP:PORT
}

// Corefile returns the Corefile of the flags, the stub zones and the environment.
func (f Flags) Corefile(stubs []Stub, getenv func(string) string) (string, error) {
	w := corefileWriter{Flags: f, getenv: getenv}
	w.write(stubs)
	return w.text.String(), errors.Join(w.errs...)
}

// A corefileWriter writes a Corefile and collects errors.
type corefileWriter struct {
	Flags
	getenv func(string) string
	text   strings.Builder
	errs   []error
}

func (w *corefileWriter) line(format string, args ...any) {
	fmt.Fprintf(&w.text, "    "+format+"\n", args...)
}

func (w *corefileWriter) fail(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

func (w *corefileWriter) write(stubs []Stub) {
	w.setDefaults()
	at, err := parseAddr(w.Addr)
	if err != nil {
		w.fail("-addr: want IP:PORT, got %q", w.Addr)
	}
	domain, err := wire.ParseName(w.Domain)
	if err != nil || domain == wire.Root || !isZone(w.Domain) {
		w.fail("-domain: want a name such as skydns.local., got %q", w.Domain)
	}
	if err := w.Etcd.Check(); err != nil {
		w.fail("etcd: %w", err)
	}
	if text := w.getenv("SKYDNS_NDOTS"); text != "" {
		if _, err := strconv.Atoi(text); err != nil {
			w.fail("SKYDNS_NDOTS: want a number, got %q", text)
		}
	}
	for _, n := range [...]struct {
		name         string
		value, limit int64
	}{
		{"-ndots", int64(w.Ndots), wire.MaxLabels}, {"-rcache", int64(w.RCache), math.MaxInt32}, {"-rcache-ttl", int64(w.RCacheTTL), math.MaxInt32},
		{"ttl", int64(w.TTL), math.MaxInt32}, {"min_ttl", int64(w.MinTTL), math.MaxInt32}, {"-nameservers", int64(len(w.Nameservers)), maxServers},
	} {
		if n.value < 0 || n.value > n.limit {
			w.fail("%s: want 0..%d, got %d", n.name, n.limit, n.value)
		}
	}
	if w.ReadTimeout < 10*time.Millisecond || w.ReadTimeout > time.Minute {
		w.fail("-rtimeout: want 10ms..1m, got %v", w.ReadTimeout)
	}
	if w.Lameduck < 0 || w.Lameduck > time.Hour {
		w.fail("-lameduck: want 0s..1h, got %v", w.Lameduck)
	}
	common := func() {
		if !at.Addr().IsUnspecified() {
			w.line("bind %s", at.Addr())
		}
		w.line("errors {\n        consolidate 30s . warning show_first\n    }")
		if w.Verbose {
			w.line("log")
		}
		w.metrics()
		if w.RoundRobin {
			w.line("loadbalance")
		}
		if w.RCache > 0 {
			w.line("cache %d {\n        success %d\n        denial %d\n    }", max(1, w.RCacheTTL), w.RCache, w.RCache)
		}
	}
	fmt.Fprintf(&w.text, ".:%d {\n", at.Port())
	common()
	w.line("chaos")
	if w.Lameduck > 0 {
		w.line("lameduck %s", w.Lameduck)
	}
	w.etcd(domain)
	w.forward()
	w.text.WriteString("}\n")
	for _, s := range stubs {
		fmt.Fprintf(&w.text, "%s:%d {\n", s.Zone, at.Port())
		common()
		w.line("forward . %s {\n        read_timeout %s\n    }", strings.Join(s.Servers, " "), w.ReadTimeout)
		w.text.WriteString("}\n")
	}
}

// setDefaults replaces values that SkyDNS treats as unset.
func (w *corefileWriter) setDefaults() {
	w.Hostmaster = strings.ReplaceAll(w.Hostmaster, "@", ".")
	w.RCache, w.Ndots = max(w.RCache, 0), max(w.Ndots, 0)
	w.ReadTimeout = cmp.Or(w.ReadTimeout, 2*time.Second)
	w.Priority, w.TTL, w.MinTTL = cmp.Or(w.Priority, 10), cmp.Or(w.TTL, 3600), cmp.Or(w.MinTTL, 60)
	w.RCacheTTL, w.Ndots = cmp.Or(w.RCacheTTL, 60), cmp.Or(w.Ndots, 2)
}

// parseAddr parses IP:PORT, or :PORT for all addresses.
func parseAddr(text string) (netip.AddrPort, error) {
	if strings.HasPrefix(text, ":") {
		text = "[::]" + text
	}
	at, err := netip.ParseAddrPort(text)
	if err == nil && at.Port() == 0 {
		err = errors.New("no port")
	}
	return at, err
}

func (w *corefileWriter) metrics() {
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
	w.line("skydns_metrics :%s %s {", port, w.word(path))
	for _, part := range [...]string{"namespace", "subsystem"} {
		if name := w.getenv("PROMETHEUS_" + strings.ToUpper(part)); name != "" {
			w.line("    %s %s", part, w.word(name))
		}
	}
	w.line("}")
}

func (w *corefileWriter) etcd(domain wire.Name) {
	w.line("etcd %s in-addr.arpa ip6.arpa {", domain)
	w.line("    path %s", w.word("/"+strings.Trim(w.PathPrefix, "/")))
	var endpoints []string
	for e := range strings.SplitSeq(w.Etcd.Endpoints, ",") {
		endpoints = append(endpoints, w.word(e))
	}
	w.line("    endpoint %s", strings.Join(endpoints, " "))
	if w.Etcd.Username != "" {
		w.line("    credentials %s %s", w.word(w.Etcd.Username), w.word(w.Etcd.Password))
	}
	switch {
	case w.Etcd.Cert != "" && w.Etcd.CA != "":
		w.line("    tls %s %s %s", w.word(w.Etcd.Cert), w.word(w.Etcd.Key), w.word(w.Etcd.CA))
	case w.Etcd.Cert != "":
		w.line("    tls %s %s", w.word(w.Etcd.Cert), w.word(w.Etcd.Key))
	case w.Etcd.CA != "":
		w.line("    tls %s", w.word(w.Etcd.CA))
	}
	w.line("    compatible skydns")
	w.line("    ttl %d", w.TTL)
	w.line("    priority %d", w.Priority)
	w.line("    negative_ttl %d", w.MinTTL)
	if w.Hostmaster != "" {
		w.name("-hostmaster", w.Hostmaster)
		w.line("    hostmaster %s", w.Hostmaster)
	}
	if w.Local != "" {
		w.name("-local", w.Local)
		w.line("    local %s", w.Local)
	}
	w.line("    fallthrough in-addr.arpa ip6.arpa")
	w.line("}")
}

func (w *corefileWriter) name(flag, text string) {
	if !isZone(text) {
		w.fail("%s: want a name, got %q", flag, text)
	}
}

// forward writes the upstream servers.
func (w *corefileWriter) forward() {
	if w.NoRec {
		// No name has as many labels: the answer is SERVFAIL, as in SkyDNS, not
		// REFUSED.
		w.line("screen {\n        least_labels %d\n    }", wire.MaxLabels)
		return
	}
	if w.Ndots > 1 {
		w.line("screen {\n        least_labels %d\n    }", w.Ndots)
	}
	to := "/etc/resolv.conf"
	if len(w.Nameservers) > 0 {
		var servers []string
		for _, text := range w.Nameservers {
			addr, ok := parseServer(text)
			if !ok {
				w.fail("-nameservers: want IP or IP:PORT, got %q", text)
			}
			servers = append(servers, addr)
		}
		to = strings.Join(servers, " ")
	}
	policy := "sequential"
	if w.NSRotate {
		policy = "round_robin"
	}
	w.line("forward . %s {\n        policy %s\n        read_timeout %s\n    }", to, policy, w.ReadTimeout)
}

// parseServer parses IP or IP:PORT.
func parseServer(text string) (string, bool) {
	text = strings.TrimSpace(text)
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip, 53).String(), ip.Zone() == ""
	}
	addr, err := netip.ParseAddrPort(text)
	return addr.String(), err == nil && addr.Port() != 0 && addr.Addr().Zone() == ""
}

// word quotes text for the Corefile.
func (w *corefileWriter) word(text string) string {
	written, err := corefile.Word(text)
	if err != nil {
		w.errs = append(w.errs, err)
	}
	return written
}
