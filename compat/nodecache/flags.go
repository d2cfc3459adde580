// Package nodecache replaces node-cache, the program of NodeLocal DNSCache: it has its
// flags, makes a Corefile from Corefile.base and kube-dns's ConfigMap, and follows both.
// The command node calls it. Package node/capture configures the node's network.
package nodecache

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/spf13/pflag"
)

// The ways in which queries of pods reach the server: values of -capture.
const (
	// CaptureAuto is CaptureTCX if the kernel has it and there is a ClusterIP to capture,
	// CaptureClsact if the kernel has only that, and CaptureAddress otherwise.
	CaptureAuto = "auto"
	// CaptureTCX rewrites queries to a ClusterIP at the interfaces of pods, with BPF
	// programs. The other local addresses are as with CaptureAddress.
	CaptureTCX = "tcx"
	// CaptureClsact is the same by other means of the kernel, for those before Linux 6.6.
	CaptureClsact = "clsact"
	// CaptureAddress adds the local addresses to an interface and exempts their packets
	// from connection tracking.
	CaptureAddress = "address"
	// CaptureNone changes nothing on the node.
	CaptureNone = "none"
)

// MaxClusterIPs is how many ClusterIPs of each family CaptureTCX and CaptureClsact can capture: MaxPairs of node/tcx.
const MaxClusterIPs = 4

// The values of -sandbox.
const (
	// SandboxOn takes privileges from the process that answers queries, as far as possible.
	SandboxOn = "on"
	// SandboxRequired does so, or the process does not start.
	SandboxRequired = "required"
	SandboxOff      = "off"
)

// Flags are the flags of node-cache, those about the capture, -supervise and -sandbox.
type Flags struct {
	LocalIPs         string // IP,...; empty elements are ignored
	Capture          string
	PodInterfaces    string        // patterns of CaptureTCX and CaptureClsact
	CaptureForeign   bool          // on interfaces with BPF programs of others, too
	RepeatReplies    bool          // in the kernel, with CaptureTCX and CaptureClsact
	RepeatReached    time.Duration // since a reply of the server has reached a pod
	SetupInterface   bool
	SetupIptables    bool
	Interface        string
	SkipTeardown     bool
	SyncInterval     time.Duration
	Base             string // the template
	Corefile         string // the file that receives the generated Corefile
	Conf             string // the Corefile to serve; "" and Corefile: the generated one
	ConfigDir        string // kube-dns's ConfigMap, mounted
	UpstreamService  string
	Port, HealthPort uint16
	MetricsAddress   string // of the page with setup errors
	Prometheus       string // the value of __PROMETHEUS__ENDPOINT__
	ReloadWithSignal bool
	PIDFile          string
	Quiet            bool
	Supervise        bool // run the server in a child process
	Sandbox          string
	NFTSets          string // that the directive nftset may write to by the supervisor
}

// Sets returns the sets of NFTSets, which Check has checked.
func (f Flags) Sets() []nftables.Set {
	sets, _ := nftables.ParseSets(f.NFTSets)
	return sets
}

// DefaultFlags returns the defaults of node-cache.
func DefaultFlags() Flags {
	return Flags{
		Capture: CaptureAuto, SetupInterface: true, SetupIptables: true, Interface: "nodelocaldns",
		SyncInterval: time.Minute,
		Base:         "/etc/coredns/Corefile.base", Corefile: "/etc/Corefile", ConfigDir: "/etc/kube-dns",
		UpstreamService: "kube-dns", Port: 53, HealthPort: 8080, MetricsAddress: "0.0.0.0:9353", Prometheus: ":9253",
		Supervise: true, Sandbox: SandboxOn, RepeatReplies: true, RepeatReached: 10 * time.Second,
	}
}

// AddFlags adds the flags to set. Their defaults are the current values.
func (f *Flags) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&f.LocalIPs, "localip", "", "`IP,...` to serve, IPv4 and IPv6 (required)")
	set.StringVar(&f.Capture, "capture", f.Capture,
		"how queries reach the server: tcx or, before Linux 6.6, clsact (BPF programs at the interfaces of pods), "+
			"address (add the local addresses to the node), auto or none")
	set.StringVar(&f.PodInterfaces, "capture-interfaces", "",
		"`PATTERN,...` of the names of pods' interfaces for tcx and clsact, such as cali* "+
			"(default every veth to another network namespace)")
	set.BoolVar(&f.CaptureForeign, "capture-foreign", false,
		"with tcx and clsact, capture on interfaces that have BPF programs of others, such as Cilium's, too")
	set.BoolVar(&f.RepeatReplies, "repeat-replies", f.RepeatReplies,
		"with tcx and clsact, let the kernel repeat replies of the cache and of kubernetes to equal queries")
	set.DurationVar(&f.RepeatReached, "repeat-reached", f.RepeatReached,
		"how long the kernel repeats replies to a pod after the last reply of the server that has reached it")
	set.BoolVar(&f.Supervise, "supervise", f.Supervise,
		"answer queries in a child process, and start it again when it ends; the sockets stay open meanwhile")
	set.StringVar(&f.Sandbox, "sandbox", f.Sandbox,
		"take all capabilities but NET_BIND_SERVICE, and dangerous system calls, from the process that answers "+
			"queries: on (with a warning if that fails), required (do not start then) or off")
	set.StringVar(&f.NFTSets, "nftset", "",
		"`FAMILY/TABLE/SET,...` of nftables to which the supervisor adds addresses for the directive nftset")

	set.BoolVar(&f.SetupInterface, "setupinterface", f.SetupInterface, "add the local addresses to an interface")
	set.StringVar(&f.Interface, "interfacename", f.Interface, "`NAME` of the dummy interface for the local addresses")
	set.BoolVar(&f.SetupIptables, "setupiptables", f.SetupIptables,
		"exempt the local addresses from connection tracking, in an nftables table of this process; "+
			"iptables is not used")
	set.BoolVar(&f.SkipTeardown, "skipteardown", false,
		"leave the interface and its addresses at the end; the rules end with the process")
	set.Var((*interval)(&f.SyncInterval), "syncinterval",
		"`INTERVAL` of the checks of interface and rules, in seconds or with a unit; changes are also noticed at once")

	set.StringVar(&f.Base, "basecorefile", f.Base, "`FILE` with the Corefile's template")
	set.StringVar(&f.Corefile, "corefile", f.Corefile, "`FILE` to write the Corefile to; the server does not need it")
	set.StringVar(&f.Conf, "conf", "", "`FILE` with the Corefile to serve, if it is not the one from the template")
	set.StringVar(&f.ConfigDir, "kubednscm", f.ConfigDir,
		"`DIR` with kube-dns's ConfigMap, for stub domains and upstreams")
	set.StringVar(&f.UpstreamService, "upstreamsvc", f.UpstreamService,
		"`NAME` of the Service of the cluster's DNS servers")

	set.Var((*flags.Port)(&f.HealthPort), "health-port", "`PORT` of health, exempt from connection tracking")
	set.StringVar(&f.MetricsAddress, "metrics-listen-address", f.MetricsAddress,
		"`ADDRESS:PORT` of the metrics of setup errors")
	set.StringVar(&f.Prometheus, "prometheus-listen-address", f.Prometheus,
		"`ADDRESS:PORT` for __PROMETHEUS__ENDPOINT__ in the template")

	set.BoolVar(&f.ReloadWithSignal, "reloadwithsignal", false, "no effect: a change is always applied at once")
	set.StringVar(&f.PIDFile, "pidfile", "", "write the process ID to this `FILE`")
	set.BoolVar(&f.Quiet, "quiet", false, "do not print the zones and addresses at the start")
}

// Notes returns messages about flags that have another meaning than in node-cache.
func (f Flags) Notes() (notes []string) {
	if f.ReloadWithSignal {
		notes = append(notes, "-reloadwithsignal has no effect: "+
			"a change of the template or of the ConfigMap is applied at once, without a signal")
	}
	if !f.SetupIptables && f.Capture != CaptureNone {
		notes = append(notes, "-setupiptables=false: there are no rules in nftables, "+
			"so queries to a ClusterIP go to the cluster's DNS servers "+
			"unless other rules exempt it from connection tracking")
	}
	return notes
}

// Check returns all mistakes in the flags.
func (f Flags) Check() error {
	_, err := f.Addresses()
	errs := flags.Errors{
		err,
		flags.CheckRange("-dns.port", f.Port, 1, math.MaxUint16),
		flags.CheckRange("-health-port", f.HealthPort, 1, math.MaxUint16),
		flags.CheckRange("-syncinterval", f.SyncInterval, time.Second, 24*time.Hour),
		flags.CheckRange("-repeat-reached", f.RepeatReached, 100*time.Millisecond, time.Hour),
	}

	clusterIPs := f.Capture == CaptureTCX || f.Capture == CaptureClsact // are needed
	errs.If(clusterIPs && err == nil && len(f.ClusterIPs()) == 0,
		"-capture=%s: want a ClusterIP in -localip, got %s", f.Capture, f.LocalIPs)
	many := f.TooManyClusterIPs()
	errs.If(clusterIPs && many != nil, "-capture=%s: %v", f.Capture, many)
	errs.If(!isCapture(f.Capture), "-capture: want %s, %s, %s, %s or %s, got %q",
		CaptureAuto, CaptureTCX, CaptureClsact, CaptureAddress, CaptureNone, f.Capture)
	errs.If(f.Sandbox != SandboxOn && f.Sandbox != SandboxRequired && f.Sandbox != SandboxOff,
		"-sandbox: want %s, %s or %s, got %q", SandboxOn, SandboxRequired, SandboxOff, f.Sandbox)
	errs.If(f.Sandbox == SandboxRequired && !f.Supervise && f.Capture != CaptureNone,
		"-sandbox=%s: want -supervise, without which the process that answers queries needs its privileges", f.Sandbox)
	_, err = nftables.ParseSets(f.NFTSets)
	errs.If(err != nil, "-nftset: %v", err)
	for p := range strings.SplitSeq(f.PodInterfaces, ",") {
		_, err := path.Match(p, "")
		errs.If(err != nil || p == "" && f.PodInterfaces != "",
			"-capture-interfaces: want patterns of names such as veth*,cali*, got %q", p)
	}

	n := len(f.Interface)
	errs.If(n == 0 || n > 15 || strings.ContainsAny(f.Interface, "/ \t\n:"),
		"-interfacename: want 1 to 15 characters without / and :, got %q", f.Interface)
	const noPath = "%s: want a path, got none"
	errs.If(f.Base == "", noPath, "-basecorefile")
	errs.If(f.Corefile == "", noPath, "-corefile")
	errs.If(f.ConfigDir == "", noPath, "-kubednscm")
	return errs.Join()
}

// Addresses returns the local addresses.
func (f Flags) Addresses() (addrs []netip.Addr, err error) {
	for text := range strings.SplitSeq(f.LocalIPs, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue // the manifest leaves an empty element without a ClusterIP
		}
		addr, err := netip.ParseAddr(text)
		switch {
		case isVariable(text):
			return nil, fmt.Errorf("-localip: %s is a variable of the manifest: replace it by an address, or remove it",
				text)
		case err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast():
			return nil, fmt.Errorf("-localip: want IP addresses such as 169.254.20.10,fd00:90::10, got %q", text)
		case !slices.Contains(addrs, addr.Unmap()):
			addrs = append(addrs, addr.Unmap())
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("-localip: want the addresses to serve, such as 169.254.20.10")
	}
	return addrs, nil
}

// ClusterIPs returns the local addresses that are not link-local: the addresses of a Service.
func (f Flags) ClusterIPs() (addrs []netip.Addr) {
	all, _ := f.Addresses() // Check reports the error
	return slices.DeleteFunc(all, netip.Addr.IsLinkLocalUnicast)
}

// TooManyClusterIPs returns an error if there are more ClusterIPs than CaptureTCX and CaptureClsact can capture.
func (f Flags) TooManyClusterIPs() error {
	ips := f.ClusterIPs()
	n4 := len(slices.DeleteFunc(slices.Clone(ips), netip.Addr.Is6))
	n6 := len(ips) - n4
	if max(n4, n6) <= MaxClusterIPs {
		return nil
	}
	return fmt.Errorf("want at most %d ClusterIPs of each family in -localip, got %d of IPv4 and %d of IPv6",
		MaxClusterIPs, n4, n6)
}

// FirstLinkLocal reports whether the first local address, at which pages such as health
// are, is link-local.
func (f Flags) FirstLinkLocal() bool {
	all, err := f.Addresses()
	return err == nil && all[0].IsLinkLocalUnicast()
}

// An interval is a duration, or a number of seconds as node-cache documents it.
type interval time.Duration

// Set implements pflag.Value.
func (i *interval) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, notNumber := strconv.ParseUint(text, 10, 31); notNumber == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil {
		return errors.New("want seconds such as 60, or a duration such as 60s")
	}
	*i = interval(d)
	return nil
}

func (i *interval) String() string { return time.Duration(*i).String() }

// Type implements pflag.Value.
func (i *interval) Type() string { return "interval" }
