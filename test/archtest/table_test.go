package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// A row lists the imports allowed to packages that match a pattern, besides the
// standard library and packages of the same unit.
type row struct {
	own   []string // packages of this module and the packages below them
	third []string // modules or packages of other projects, and the packages below them
	noNet bool     // package net is rejected: the package opens no socket
}

const anything = "..."

// everywhere is a package that any package may import: it stands in for functions of the
// standard library.
const everywhere = "sys/order"

// chain lists the packages that every directive may import. Directives do not
// import each other, the server or package transport.
var chain = []string{"config", "corefile", "dns", "wire", "zone", "metrics", "sys/clock", "observe/web", "sys/watch"}

// watchesFiles is for packages that watch certificates, zone files or hosts
// files.
var watchesFiles = []string{"github.com/fsnotify/fsnotify"}

// table maps patterns to allowed imports. A pattern covers a package and the
// packages below it; "directive/*" covers every directory of directive without a
// row of its own. The longest matching pattern applies.
//
// Packages may also import packages of their own unit: the top-level directory,
// or one directory below it in directive, compat and internal. So directives do
// not import each other, and only cmd imports packages of compat.
var table = map[string]row{
	// Bytes and counters. Any package may import them.
	"wire":    {},
	"metrics": {},

	// The parser of Corefiles; it uses the lexer of the original grammar.
	"corefile": {third: []string{"github.com/coredns/caddy/caddyfile"}},

	// The core, which knows neither directives nor sockets.
	"zone": {own: []string{"wire"}},
	"dns":  {own: []string{"wire", "metrics", "sys/clock"}},
	// Records in zone files and templates need a parser.
	"zone/zonefile": {third: []string{"github.com/miekg/dns"}, own: []string{"wire"}},

	// Keys in files, and signatures.
	"zone/signing": {third: []string{"github.com/miekg/dns"}, own: []string{"wire", "zone", "zone/zonefile"}},

	// The contract between directives and the server. Zones are names in wire
	// form.
	"config": {own: []string{"corefile", "dns", "wire", "metrics"}},

	// The objects of a cluster, and their two sources. Only cluster/apiserver opens
	// connections and imports client-go. Tests of cluster/api compare it with the types
	// of k8s.io/api.
	"cluster":           {own: []string{"metrics", "sys/clock"}, third: []string{"k8s.io/apimachinery"}, noNet: true},
	"cluster/api":       {third: []string{"k8s.io/apimachinery", "k8s.io/api"}, noNet: true},
	"cluster/protobuf":  {third: []string{"google.golang.org/protobuf/encoding/protowire"}, noNet: true},
	"cluster/apiserver": {own: []string{"metrics", "sys/clock"}, third: []string{"k8s.io"}},
	"cluster/manifests": {own: []string{"sys/watch"}, third: []string{"k8s.io/apimachinery", "go.yaml.in/yaml/v2"}, noNet: true},
	// The options that directives with a cluster share are here, too.
	"cluster/sources": {own: []string{"corefile", "metrics"}, noNet: true},

	// Directives of one file, and directives with a package of their own.
	"directive":          {own: append([]string{"sys/cgroup", "observe/dnstap", "directive/internal/expression", "sys/processgroup", "observe/status"}, chain...), third: watchesFiles, noNet: true},
	"directive/*":        {own: chain, third: watchesFiles, noNet: true},
	"directive/file":     {own: append([]string{"zone/signing", "zone/zonefile"}, chain...), noNet: true},
	"directive/dnssec":   {own: append([]string{"zone/signing"}, chain...), noNet: true},
	"directive/template": {own: append([]string{"zone/zonefile", "directive/internal/expression"}, chain...), noNet: true},
	"directive/records":  {own: append([]string{"zone/zonefile"}, chain...), noNet: true},
	"directive/geoip":    {own: chain, third: []string{"github.com/oschwald/maxminddb-golang/v2"}, noNet: true},
	// admin answers queries of operators, and asks the API server about them.
	"directive/admin": {own: append([]string{"cluster", "observe/explain", "observe/inventory", "observe/traffic"}, chain...), third: []string{"github.com/miekg/dns"}},
	// trace sends requests to a collector.
	"directive/trace": {own: chain, third: []string{"google.golang.org/protobuf/encoding/protowire"}},
	"directive/tsig":  {own: append([]string{"directive/internal/tsig"}, chain...), noNet: true},
	// transfer opens sockets to the servers that it notifies.
	"directive/transfer": {own: append([]string{"directive/internal/tsig"}, chain...)},
	// secondary opens connections to primary servers.
	"directive/secondary": {own: append([]string{"sys/heap", "directive/internal/tsig"}, chain...)},
	// forward opens sockets to upstreams.
	"directive/forward": {own: append([]string{"wire/grpcmessage"}, chain...), third: []string{"github.com/quic-go/quic-go"}},
	// These directives answer from the cluster.
	"directive/kubernetes": {own: append([]string{"cluster"}, chain...), noNet: true},
	"directive/hosts":      {own: append([]string{"cluster"}, chain...), noNet: true},
	// This directive answers from etcd.
	"directive/etcd": {
		own:   append([]string{"cluster/etcdclient"}, chain...),
		third: []string{"go.etcd.io/etcd"},
		noNet: true,
	},
	// The directive kubedns_config returns server blocks, which the server plans
	// like those of a Corefile.
	"directive/kubedns": {own: append([]string{"cluster", "directive/kubedns/kubednsconfig"}, chain...), noNet: true},

	// Commands that replace older programs. Only cmd imports them.
	"compat/convert": {
		own:   []string{"corefile", "compat/dnsmasq", "compat/kubedns", "compat/nanny", "directive/kubedns", "cluster/document", "compat/flags", "directive/kubedns/kubednsconfig"},
		third: []string{"github.com/spf13/pflag"},
		noNet: true,
	},
	"compat/nanny": {
		own:   []string{"corefile", "compat/dnsmasq", "directive/kubedns", "compat/flags", "directive/kubedns/kubednsconfig", "metrics"},
		third: []string{"github.com/spf13/pflag"},
	},
	"compat/dnsmasq":  {own: []string{"corefile", "compat/flags", "wire"}, noNet: true},
	"compat/healthz":  {own: []string{"sys/processgroup", "operate/query", "observe/status"}, third: []string{"github.com/miekg/dns"}},
	"compat/kubedns":  {own: []string{"compat/flags", "directive/kubedns/kubednsconfig"}, third: []string{"github.com/spf13/pflag"}, noNet: true},
	"compat/kube2sky": {own: []string{"cluster", "cluster/etcdclient", "observe/status", "metrics"}, third: []string{"go.etcd.io/etcd"}},
	"compat/nodecache": {
		own:   []string{"corefile", "directive/kubedns", "compat/flags", "directive/kubedns/kubednsconfig", "sys/watch", "metrics"},
		third: []string{"github.com/spf13/pflag"},
		noNet: true,
	},
	"compat/skydns":  {own: []string{"corefile", "cluster/etcdclient", "compat/flags", "wire"}, noNet: true},
	"compat/sidecar": {own: []string{"metrics", "operate/query", "observe/status"}, third: []string{"github.com/miekg/dns"}},

	// The only package that opens sockets to DNS clients.
	"transport": {
		own:   []string{"dns", "wire", "metrics", "sys/cgroup"},
		third: []string{"golang.org/x/sys"},
	},
	// The same for HTTPS, gRPC and QUIC.
	"transport/streams": {own: []string{"dns", "transport", "wire", "metrics", "wire/grpcmessage"}, third: []string{"github.com/quic-go/quic-go"}},

	// The list of directives. Package server does not import it.
	"builtin": {own: []string{"config", "directive"}},
	"server": {
		own:   []string{"config", "corefile", "dns", "transport", "metrics"},
		third: append([]string{"github.com/coreos/go-systemd/v22/activation"}, watchesFiles...),
	},

	// Subcommands and flags.
	"cmd": {
		own:   []string{"server", "builtin", "config", "corefile", "dns", "cluster", "metrics", "directive/kubedns", "compat", "operate/adminclient", "operate/canary", "node/capture", "sys/cgroup", "cluster/etcdclient", "compat/flags", "directive/kubedns/kubednsconfig", "operate/diff", "operate/doctor", "observe/explain", "sys/filepages", "observe/inventory", "operate/query", "observe/dnstap", "operate/resolvconf", "operate/shadow", "observe/status", "operate/stub", "node/supervisor", "observe/traffic", "transport", "wire"},
		third: []string{"github.com/miekg/dns", "github.com/rogpeppe/go-internal/diff", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/apimachinery/pkg/util/validation"},
	},

	// Shared by some directives and commands.
	"sys/clock": {noNet: true},
	"sys/order": {noNet: true},
	// Bodies of gRPC requests and responses.
	"wire/grpcmessage": {own: []string{"wire"}, third: []string{"google.golang.org/protobuf/encoding/protowire"}, noNet: true},
	"compat/flags":     {own: []string{"corefile"}, third: []string{"github.com/spf13/pflag"}, noNet: true},
	"observe/status":   {own: []string{"metrics"}},
	"operate/query":    {third: []string{"github.com/miekg/dns"}},
	"observe/web":      {own: []string{"config", "observe/status"}},
	"sys/watch":        {third: watchesFiles, noNet: true},
	// The addresses and nftables rules of a node's cache.
	"node/capture": {third: []string{"github.com/mdlayher/netlink", "golang.org/x/sys/unix"}},
	// The programs at the interfaces of pods, and the links between both.
	// Its Replies are a dns.Repeater.
	"node/tcx": {own: []string{"dns"}, third: []string{"github.com/cilium/ebpf", "github.com/mdlayher/netlink", "golang.org/x/sys/unix"}},
	// The parent process of a node's cache. It passes sockets as servers do that replace
	// each other.
	"node/supervisor": {own: []string{"sys/filepages", "sys/heap", "server/handover"}, third: []string{"golang.org/x/sys/unix"}},
	// Commands, for exec-healthz and on.
	"sys/processgroup": {noNet: true},
	"sys/cgroup":       {noNet: true},
	"sys/heap":         {noNet: true},
	"sys/filepages":    {third: []string{"golang.org/x/sys/unix"}, noNet: true},
	// It opens sockets to receivers, and for them.
	"observe/dnstap": {
		own:   []string{"dns", "metrics"},
		third: []string{"github.com/farsightsec/golang-framestream", "google.golang.org/protobuf/encoding/protowire"},
	},
	"directive/internal/tsig": {own: []string{"config", "corefile", "wire"}, noNet: true},
	// It runs a server in the process, and queries another one.
	"operate/diff": {
		own:   []string{"cluster", "config", "corefile", "directive/kubernetes", "dns", "operate/query", "metrics", "server", "transport", "wire"},
		third: []string{"github.com/miekg/dns"},
	},
	// It answers captured queries, in the process or by another server.
	"operate/shadow": {
		own:   []string{"config", "dns", "operate/diff", "observe/dnstap", "operate/query", "wire"},
		third: []string{"github.com/miekg/dns"}, noNet: true,
	},
	"observe/explain": {own: []string{"config", "dns", "wire"}, third: []string{"github.com/miekg/dns"}},
	"operate/local":   {own: []string{"cluster", "config", "corefile", "dns", "observe/explain", "observe/inventory", "metrics", "server", "transport"}},
	"observe/traffic": {own: []string{"wire"}, noNet: true},
	// It connects to a running server.
	"operate/adminclient":             {own: []string{"observe/explain", "observe/inventory", "observe/traffic"}},
	"observe/inventory":               {own: []string{"wire", "zone"}, third: []string{"github.com/miekg/dns"}, noNet: true},
	"operate/doctor":                  {own: []string{"cluster"}, noNet: true},
	"directive/internal/expression":   {own: []string{"dns", "wire"}, third: []string{"github.com/expr-lang/expr"}},
	"directive/kubedns/kubednsconfig": {third: []string{"k8s.io/apimachinery/pkg/util/validation"}, noNet: true},
	"cluster/document":                {third: []string{"go.yaml.in/yaml/v2"}, noNet: true},
	// It writes the manual pages of a release.
	"cmd/manual":         {own: []string{"builtin", "cmd"}, third: []string{"github.com/cpuguy83/go-md2man/v2/md2man", "github.com/spf13/cobra"}},
	"operate/canary":     {own: []string{"cluster"}, third: []string{"sigs.k8s.io/yaml"}, noNet: true},
	"operate/stub":       {own: []string{"operate/query", "operate/resolvconf"}, third: []string{"github.com/miekg/dns"}},
	"operate/resolvconf": {own: []string{"cluster/document"}, third: []string{"k8s.io/apimachinery/pkg/util/validation"}, noNet: true},
	// zap and gRPC are imported to silence the client's logging.
	"cluster/etcdclient": {third: []string{"go.etcd.io/etcd", "go.uber.org/zap", "google.golang.org/grpc"}},

	// Test helpers: imported by _test.go files and by kubetest only.
	"test/dnstest": {
		own:   []string{anything},
		third: []string{"github.com/miekg/dns", "golang.org/x/tools/txtar", "sigs.k8s.io/yaml"},
	},
	"test/archtest": {},
	"test/chromium": {},
	"test/freeport": {},
	// The simulation has no code but tests. Its API server has the types of the API.
	"test/simulation": {third: []string{"k8s.io/api", "k8s.io/apimachinery"}},
}

// tests lists what every _test.go file may import besides its package's row. Only
// tests may import the libraries that they use to check replies and messages of dnstap, to
// write databases for geoip, to attach BPF programs, and for system calls with which they restrict themselves.
var tests = row{
	own:   []string{anything},
	third: []string{"github.com/cilium/ebpf", "github.com/farsightsec/golang-framestream", "github.com/google/nftables", "github.com/maxmind/mmdbwriter", "github.com/miekg/dns", "github.com/quic-go/quic-go", "go.opentelemetry.io/proto/otlp", "golang.org/x/sys/unix", "golang.org/x/tools/txtar", "google.golang.org/grpc", "google.golang.org/protobuf/encoding/protowire", "google.golang.org/protobuf/proto"},
}

// vague lists package names that do not describe what the package provides.
var vague = []string{"pkg", "util", "utils", "common", "types", "helpers", "helper", "base", "misc", "shared", "lib"}

// pattern returns the key of the row for the package in dir, "" if it has none.
func pattern(dir string) string {
	for p := dir; p != ""; p = parent(p) {
		if _, ok := table[p]; ok && (p == dir || unit(p) == unit(dir)) {
			return p
		}
		if _, ok := table[parent(p)+"/*"]; ok {
			return parent(p) + "/*"
		}
	}
	return ""
}

// rooms are the directories whose packages are units of their own.
var rooms = []string{"directive", "compat", "internal", "sys", "observe", "node", "operate", "test"}

// unit returns the directory whose packages may import each other.
func unit(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	switch {
	case len(parts) > 1 && slices.Contains(rooms, parts[0]):
		return parts[0] + "/" + parts[1]
	default:
		return parts[0]
	}
}

func parent(dir string) string { return dir[:max(strings.LastIndexByte(dir, '/'), 0)] }

// imports checks a module's packages against the table. Nested modules (bench,
// kubetest) have their own dependencies and are not checked.
func imports(m *module) (bad []string) {
	for _, p := range m.packages {
		if p.nested {
			continue
		}
		key := pattern(p.dir)
		if key == "" {
			bad = append(bad, fmt.Sprintf("%s: package has no row in the import table", p.dir))
			continue
		}
		for _, f := range p.files {
			for _, spec := range f.syntax.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if why := table[key].refuses(p.dir, path, f.test); why != "" {
					bad = append(bad, fmt.Sprintf("%s: %s must not import %s: %s", m.at(spec), p.dir, path, why))
				}
			}
		}
	}
	return bad
}

// refuses returns the reason why a package in dir may not import path, "" if it
// may.
func (r row) refuses(dir, path string, test bool) string {
	own, isOwn := strings.CutPrefix(path, modulePath+"/")
	switch {
	case isOwn:
		if unit(own) == unit(dir) || own == everywhere {
			return ""
		}
		if test && covers(tests.own, own) || covers(r.own, own) {
			return ""
		}
		return "its row in the import table lists " + list(r.own)
	case standard(path):
		if path == "net" && r.noNet && !test {
			return "the package opens no socket"
		}
		return ""
	default:
		if test && within(tests.third, path) || within(r.third, path) {
			return ""
		}
		return "its row in the import table lists " + list(r.third)
	}
}

func covers(allowed []string, own string) bool {
	for _, a := range allowed {
		if a == anything || within([]string{a}, own) {
			return true
		}
	}
	return false
}

func within(trees []string, path string) bool {
	for _, t := range trees {
		if path == t || strings.HasPrefix(path, t+"/") {
			return true
		}
	}
	return false
}

func list(names []string) string {
	if len(names) == 0 {
		return "only the standard library here"
	}
	return strings.Join(names, ", ")
}

func top(path string) string {
	t, _, _ := strings.Cut(path, "/")
	return t
}

// standard reports whether path is in the standard library: its first element has
// no dot.
func standard(path string) bool { return !strings.Contains(top(path), ".") }
