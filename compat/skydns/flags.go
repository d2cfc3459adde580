// Package skydns translates SkyDNS's flags, environment, configuration in etcd and
// stub zones into a Corefile, and follows changes of the keys in etcd. The command
// skydns calls it; the directives that the Corefile names do the work.
package skydns

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/wire"
)

// Flags are the flags of SkyDNS. The JSON names are from its configuration in etcd.
// DefaultFlags returns the defaults.
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
	or := func(name, defaultValue string) string { return cmp.Or(getenv(name), defaultValue) }
	f := Flags{
		Addr: or("SKYDNS_ADDR", "127.0.0.1:53"), Domain: or("SKYDNS_DOMAIN", "skydns.local."),
		RoundRobin: true, NSRotate: true,
		ReadTimeout: 2 * time.Second, Priority: 10, TTL: 3600, MinTTL: 60, RCacheTTL: 60, Ndots: 2,
		PathPrefix: or("SKYDNS_PATH_PREFIX", "skydns"),
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

// stubKey returns the key below which stub zones are. The domain has passed Check.
func (f Flags) stubKey() string {
	labels := strings.Split("stub.dns."+strings.ToLower(strings.TrimSuffix(f.Domain, ".")), ".")
	slices.Reverse(labels)
	return "/" + strings.Trim(f.PathPrefix, "/") + "/" + strings.Join(labels, "/")
}

// Why two of SkyDNS's options are rejected.
const (
	NoDNSSEC = "this command does not sign answers: remove the keys, " +
		"or serve a Corefile with the directives etcd and dnssec"
	NoSystemd = "skydns does not accept sockets from systemd: set the address with -addr, or use seamark serve"
)

// withConfig returns the flags with the values of the configuration in etcd.
func (f Flags) withConfig(text string) (Flags, error) {
	var unsupported struct {
		Systemd bool   `json:"systemd"`
		DNSSEC  string `json:"dnssec"`
	}
	if err := json.Unmarshal([]byte(text), &unsupported); err != nil {
		return f, err
	}
	if unsupported.DNSSEC != "" {
		return f, errors.New("dnssec: " + NoDNSSEC)
	}
	if unsupported.Systemd {
		return f, errors.New("systemd: " + NoSystemd)
	}
	f.Nameservers = slices.Clone(f.Nameservers) // Unmarshal would overwrite the caller's slice
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
	w := writer{Flags: f, Writer: flags.Writer{Getenv: getenv}}
	w.write(stubs)
	return w.Writer.Corefile()
}

type writer struct {
	Flags
	flags.Writer
}

func (w *writer) write(stubs []Stub) {
	w.setDefaults()
	at, err := parseAddr(w.Addr)
	w.FailIf(err != nil, "-addr: want IP:PORT, got %q", w.Addr)
	domain, err := wire.ParseName(w.Domain)
	w.FailIf(err != nil || domain == wire.Root || !isZone(w.Domain),
		"-domain: want a name such as skydns.local., got %q", w.Domain)
	if err := w.Etcd.Check(); err != nil {
		w.Fail("etcd: %w", err)
	}
	if text := w.Getenv("SKYDNS_NDOTS"); text != "" {
		_, err := strconv.Atoi(text)
		w.FailIf(err != nil, "SKYDNS_NDOTS: want a number, got %q", text)
	}
	w.Add(
		flags.CheckRange("-ndots", w.Ndots, 0, wire.MaxLabels),
		flags.CheckRange("-rcache", w.RCache, 0, math.MaxInt32),
		flags.CheckRange("-rcache-ttl", w.RCacheTTL, 0, math.MaxInt32),
		flags.CheckRange("ttl", w.TTL, 0, math.MaxInt32),
		flags.CheckRange("min_ttl", w.MinTTL, 0, math.MaxInt32),
		flags.CheckRange("-nameservers", len(w.Nameservers), 0, maxServers),
		flags.CheckRange("-rtimeout", w.ReadTimeout, 10*time.Millisecond, time.Minute),
		flags.CheckRange("-lameduck", w.Lameduck, 0, time.Hour))

	w.Block(fmt.Sprintf(".:%d", at.Port()), func() {
		w.common(at)
		w.Directive("chaos")
		w.When(w.Lameduck > 0, "lameduck "+w.Lameduck.String())
		w.etcd(domain)
		w.forward()
	})
	for _, s := range stubs {
		w.Block(fmt.Sprintf("%s:%d", s.Zone, at.Port()), func() {
			w.common(at)
			w.Directive("forward . "+strings.Join(s.Servers, " "), w.readTimeout())
		})
	}
}

// common writes the directives of every block.
func (w *writer) common(at netip.AddrPort) {
	w.When(!at.Addr().IsUnspecified(), "bind "+at.Addr().String())
	w.Errors()
	w.When(w.Verbose, "log")
	w.Metrics()
	w.When(w.RoundRobin, "loadbalance")
	w.When(w.RCache > 0, fmt.Sprintf("cache %d", max(1, w.RCacheTTL)),
		fmt.Sprintf("success %d", w.RCache), fmt.Sprintf("denial %d", w.RCache))
}

func (w *writer) readTimeout() string { return "read_timeout " + w.ReadTimeout.String() }

// setDefaults replaces values that SkyDNS treats as unset.
func (w *writer) setDefaults() {
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

func (w *writer) etcd(domain wire.Name) {
	o := w.Etcd
	options := []string{
		"path " + w.Word("-path-prefix", "/"+strings.Trim(w.PathPrefix, "/")),
		w.words("endpoint", "-machines", strings.Split(o.Endpoints, ",")...),
	}
	if o.Username != "" {
		options = append(options, w.words("credentials", "-username, -password", o.Username, o.Password))
	}

	var files []string
	if o.Cert != "" {
		files = []string{o.Cert, o.Key}
	}
	if o.CA != "" {
		files = append(files, o.CA)
	}
	if len(files) > 0 {
		options = append(options, w.words("tls", "-tls-pem, -tls-key, -ca-cert", files...))
	}

	options = append(options, "compatible skydns",
		fmt.Sprintf("ttl %d", w.TTL), fmt.Sprintf("priority %d", w.Priority), fmt.Sprintf("negative_ttl %d", w.MinTTL))
	for _, o := range [...]struct{ name, value string }{{"hostmaster", w.Hostmaster}, {"local", w.Local}} {
		if o.value != "" {
			w.FailIf(!isZone(o.value), "-%s: want a name, got %q", o.name, o.value)
			options = append(options, o.name+" "+o.value)
		}
	}
	options = append(options, "fallthrough in-addr.arpa ip6.arpa")
	w.Directive(fmt.Sprintf("etcd %s in-addr.arpa ip6.arpa", domain), options...)
}

// words returns an option whose arguments are the values of flags.
func (w *writer) words(option, flags string, values ...string) string {
	for _, value := range values {
		option += " " + w.Word(flags, value)
	}
	return option
}

// forward writes the upstream servers.
func (w *writer) forward() {
	least := w.Ndots
	if w.NoRec {
		// No name has as many labels: the answer is SERVFAIL, as in SkyDNS, not
		// REFUSED.
		least = wire.MaxLabels
	}
	w.When(least > 1, "screen", fmt.Sprintf("least_labels %d", least))
	if w.NoRec {
		return
	}

	servers := []string{"/etc/resolv.conf"}
	if len(w.Nameservers) > 0 {
		servers = nil
	}
	for _, text := range w.Nameservers {
		addr, ok := parseServer(text)
		w.FailIf(!ok, "-nameservers: want IP or IP:PORT, got %q", text)
		servers = append(servers, addr)
	}
	policy := "policy sequential"
	if w.NSRotate {
		policy = "policy round_robin"
	}
	w.Directive("forward . "+strings.Join(servers, " "), policy, w.readTimeout())
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
