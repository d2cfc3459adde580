package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// floors are the top-level directories of the module, from the lowest to the highest. A
// package imports packages of lower floors and of its own directory; test stands beside the
// house, and only tests import it.
var floors = [][]string{
	{"sys"},
	{"wire", "corefile", "metrics"},
	{"zone", "dns", "cluster"},
	{"config", "transport"},
	{"server", "observe"},
	{"directive"},
	{"node"},
	{"builtin"},
	{"operate"},
	{"compat"},
	{"cmd"},
	{"test"},
}

// closed lists packages of lower floors that a directory must not import all the same.
var closed = map[string][]string{
	// A directive is configured and called. It does not know by which server, or from which socket.
	"directive": {"server", "transport"},
	// The index of a cluster's names knows no query.
	"directive/kubernetes/index": {"dns", "config", "observe"},
	// The programs of a node's cache and the list of directives stand beside each other.
	"builtin": {"server", "transport", "node"},
	"operate": {"node"},
	"compat":  {"node"},
}

// modules lists the packages that may import another module, with the packages below them. A
// key covers the packages of its module that begin with it; the longest key decides. Tests may
// import testModules, too.
var modules = map[string][]string{
	// DNS messages of clients, and records as text. The server has packages wire and zone.
	"github.com/miekg/dns": {"cmd", "compat/healthz", "compat/sidecar", "directive/admin", "observe/explain", "observe/inventory", "operate", "test/chaintest", "test/demo", "test/dnstest", "zone/signing", "zone/zonefile"},

	// The objects of a cluster.
	"k8s.io":              {"cluster/apiserver"},
	"k8s.io/api":          {"cluster/api", "cluster/apiserver", "test/simulation"},
	"k8s.io/apimachinery": {"cluster", "test/simulation"},
	// The names that Kubernetes accepts.
	"k8s.io/apimachinery/pkg/util/validation": {"cluster", "cmd", "directive/kubedns/kubednsconfig", "operate/resolvconf"},
	"go.yaml.in/yaml/v2":                      {"cluster/document", "cluster/manifests"},
	"sigs.k8s.io/yaml":                        {"operate/canary", "test/dnstest"},

	// etcd. zap and gRPC are imported to silence its client's logging.
	"go.etcd.io/etcd":        {"cluster/etcdclient", "compat/kube2sky", "directive/etcd"},
	"go.uber.org/zap":        {"cluster/etcdclient"},
	"google.golang.org/grpc": {"cluster/etcdclient"},

	// Files, sockets and interfaces.
	"github.com/fsnotify/fsnotify": {"sys/watch"},
	"github.com/coreos/go-systemd": {"server"},
	"github.com/cilium/ebpf":       {"node/tcx"},
	"github.com/mdlayher/netlink":  {"node"},
	"golang.org/x/net/idna":        {"config"},
	// The names below which everyone may have domains, such as co.uk.
	"golang.org/x/net/publicsuffix": {"observe/audit"},
	"golang.org/x/sys":              {"node", "sys", "transport"},
	"golang.org/x/term":             {"sys/terminal"},

	// Protocols and formats.
	"github.com/quic-go/quic-go":                    {"directive/forward", "transport/streams"},
	"github.com/farsightsec/golang-framestream":     {"observe/dnstap"},
	"google.golang.org/protobuf/encoding/protowire": {"directive/trace", "observe/dnstap", "wire/grpcmessage", "wire/protobuf"},
	"github.com/oschwald/maxminddb-golang/v2":       {"directive/geoip"},

	// The text of Corefiles, expressions and the command line.
	"github.com/coredns/caddy/caddyfile":      {"corefile"},
	"github.com/expr-lang/expr":               {"directive/internal/expression"},
	"github.com/spf13/cobra":                  {"cmd"},
	"github.com/spf13/pflag":                  {"cmd", "compat"},
	"github.com/rogpeppe/go-internal/diff":    {"cmd"},
	"github.com/cpuguy83/go-md2man/v2/md2man": {"cmd/manual"},
	"golang.org/x/tools/txtar":                {"test/dnstest"},
}

// testModules may be imported by every test: to check replies and messages, to write
// databases, to attach BPF programs, to serve port forwards, and for system calls that restrict the
// test.
var testModules = []string{
	"github.com/cilium/ebpf",
	"github.com/farsightsec/golang-framestream",
	"github.com/google/nftables",
	"github.com/maxmind/mmdbwriter",
	"github.com/miekg/dns",
	"github.com/quic-go/quic-go",
	"go.opentelemetry.io/proto/otlp",
	"golang.org/x/sys/unix",
	"golang.org/x/tools/txtar",
	"google.golang.org/grpc",
	"google.golang.org/protobuf/encoding/protowire",
	"google.golang.org/protobuf/proto",
	"k8s.io/streaming",
}

// sockets lists the packages that may import package net, because they open sockets or are
// given them. All others have addresses only, of package netip.
var sockets = []string{
	"cluster/apiserver", "cluster/etcdclient", "cmd", "compat/healthz", "compat/nanny", "compat/sidecar", "config",
	"directive/admin", "directive/forward", "directive/secondary", "directive/transfer", "node/capture",
	"observe/dnstap", "observe/status", "observe/web", "operate/adminclient", "operate/diff", "operate/query",
	"server", "test", "transport",
}

// vague lists package names that do not describe what the package provides.
var vague = []string{"pkg", "util", "utils", "common", "types", "helpers", "helper", "base", "misc", "shared", "lib"}

// floor returns the floor of the top-level directory of a package, -1 if it has none.
func floor(dir string) int {
	return slices.IndexFunc(floors, func(dirs []string) bool { return slices.Contains(dirs, top(dir)) })
}

// imports checks a module's packages against the floors. Nested modules (bench, kubetest)
// have their own dependencies and are not checked.
func imports(m *module) (bad []string) {
	for _, p := range m.packages {
		if p.nested {
			continue
		}
		if floor(p.dir) < 0 {
			bad = append(bad, fmt.Sprintf("%s: package is on no floor", p.dir))
			continue
		}

		for _, f := range p.files {
			for _, spec := range f.syntax.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if why := refuses(p.dir, path, f.test); why != "" {
					bad = append(bad, fmt.Sprintf("%s: %s must not import %s: %s", m.at(spec), p.dir, path, why))
				}
			}
		}
	}
	return bad
}

// refuses returns the reason why a package in dir may not import path, "" if it may. Tests may
// import every package of this module.
func refuses(dir, path string, test bool) string {
	own, isOwn := strings.CutPrefix(path, modulePath+"/")
	switch {
	case isOwn && test:
		return ""
	case isOwn:
		return refusesOwn(dir, own)
	case path == "net" && !test && !within(sockets, dir):
		return "it opens no socket"
	case standard(path), test && within(testModules, path):
		return ""
	}

	key := ""
	for k := range modules {
		if within([]string{k}, path) && len(k) > len(key) {
			key = k
		}
	}
	if key == "" {
		return "no package may import this module"
	}
	if !within(modules[key], dir) {
		return "only " + strings.Join(modules[key], ", ") + " may"
	}
	return ""
}

// refusesOwn returns the reason why a package in dir may not import the package own of this
// module, "" if it may.
func refusesOwn(dir, own string) string {
	switch {
	case top(dir) == "directive" && top(own) == "directive":
		// A directive does not know another one, but for what all share.
		if directiveOf(dir) != directiveOf(own) && directiveOf(own) != "internal" {
			return "directives do not import each other"
		}
		return ""
	case top(dir) == top(own):
		return ""
	case floor(own) >= floor(dir):
		return top(own) + " is not below " + top(dir)
	}
	for tree, packages := range closed {
		if within([]string{tree}, dir) && within(packages, own) {
			return tree + " does not know " + top(own)
		}
	}
	return ""
}

// directiveOf returns the directory in directive that a package belongs to, "" for directive itself.
func directiveOf(dir string) string {
	_, below, _ := strings.Cut(dir, "/")
	return top(below)
}

// within reports whether path is one of trees, or below one of them.
func within(trees []string, path string) bool {
	for _, t := range trees {
		if path == t || strings.HasPrefix(path, t+"/") {
			return true
		}
	}
	return false
}

func top(path string) string {
	t, _, _ := strings.Cut(path, "/")
	return t
}

// standard reports whether path is in the standard library: its first element has
// no dot.
func standard(path string) bool { return !strings.Contains(top(path), ".") }
