package archtest

import (
	"fmt"
	"strings"
)

// A row says what the packages of one pattern may import besides the standard
// library.
type row struct {
	own   []string // packages of ours and those below them; anyHandler, anything
	third []string // modules or packages of others, and those below them
	noNet bool     // package net itself is refused: the package opens no socket
}

const (
	anyHandler = "*" // as a pattern: a top-level directory that has no row
	anything   = "..."
)

// Handlers meet each other, the server and the sockets only through a chain.
var handlerImports = []string{"config", "corefile", "dns", "wire", "zone", "metrics", "web", "watch"}

// Certificates, zone files, hosts: what an operator edits under us.
var watchesFiles = []string{"github.com/fsnotify/fsnotify"}

// table is the architecture: package → what it may import. A pattern also
// covers the packages below it, which may import each other; the longest
// pattern that fits counts.
var table = map[string]row{
	// The bottom: bytes and counters, for anyone, upon nothing.
	"wire":    {},
	"metrics": {},

	// The text of a Corefile; the lexer is the grammar's own.
	"corefile": {third: []string{"github.com/coredns/caddy/caddyfile"}},

	// The core. Neither config nor a handler nor a socket is known here.
	"zone": {own: []string{"wire"}},
	"dns":  {own: []string{"wire", "metrics"}},

	// The contract between a Corefile's word and a handler.
	// Zones are names in wire form from here on.
	"config": {own: []string{"corefile", "dns", "wire", "metrics"}},

	// The only package that knows Kubernetes' API types and clients.
	"cluster": {
		own:   []string{"metrics"},
		third: []string{"k8s.io", "go.yaml.in/yaml/v2", "github.com/fsnotify/fsnotify"},
	},

	// Handlers: every top-level directory that has no row of its own.
	anyHandler: {own: handlerImports, third: watchesFiles, noNet: true},
	// Signs that files have changed, for the handlers that read them again.
	"watch": {third: watchesFiles, noNet: true},
	// RRs as text, in an operator's files and templates: a parser's job.
	"zonefile": {own: []string{"wire"}, third: []string{"github.com/miekg/dns"}},
	"file":     {own: append([]string{"zonefile"}, handlerImports...), noNet: true},
	"template": {own: append([]string{"zonefile", "expression"}, handlerImports...), noNet: true},
	"records":  {own: append([]string{"zonefile"}, handlerImports...), noNet: true},
	// The expressions of view and template, over one query.
	"expression": {own: []string{"dns", "wire"}, third: []string{"github.com/expr-lang/expr"}},
	"handler":    {own: append([]string{"expression"}, handlerImports...), third: watchesFiles, noNet: true},

	// forward talks to upstreams, which is what it is for.
	"forward": {own: handlerImports, third: watchesFiles},
	// These answer from the cluster.
	"kube":  {own: append([]string{"cluster"}, handlerImports...), noNet: true},
	"hosts": {own: append([]string{"cluster"}, handlerImports...), noNet: true},
	// The only package that knows etcd.
	"skydns": {
		own:   append([]string{"etcd"}, handlerImports...),
		third: []string{"go.etcd.io/etcd"},
		noNet: true,
	},

	// The client, for those two; the logger is what it is told to keep quiet with.
	"etcd": {third: []string{"go.etcd.io/etcd", "go.uber.org/zap", "google.golang.org/grpc"}},
	// It writes the cluster's names into etcd; answering has no part in it.
	"kube2sky": {own: []string{"cluster", "etcd", "metrics"}, third: []string{"go.etcd.io/etcd"}},

	// It produces blocks, which the server plans as if it had read them. The
	// ConfigMap may be a mounted directory, whose changes tell themselves.
	"kubedns": {own: []string{"config", "corefile", "cluster", "metrics", "watch", "wire"}, noNet: true},

	// It makes a Corefile of what others run kube-dns with: texts in, a text out.
	"convert": {own: []string{"corefile", "kubedns"}, third: []string{"go.yaml.in/yaml/v2"}, noNet: true},

	// The addresses of probes and scrapes, which are not those of clients:
	// health, ready and prometheus put their pages there.
	"web": {own: []string{"config"}},

	// It asks the DNS servers of a kube-dns pod as a client of theirs; answering
	// has no part in it, so a library for messages may.
	"sidecar": {own: []string{"metrics"}, third: []string{"github.com/miekg/dns"}},

	// It runs commands and shows whether they succeed; one of them is a question to
	// a DNS server, put as a client.
	"healthz": {third: []string{"github.com/miekg/dns"}},

	// dnsmasq's options as a Corefile: texts, and the files that they name.
	"dnsmasq": {own: []string{"corefile"}, noNet: true},

	// The only package that opens sockets to clients.
	"transport": {
		own:   []string{"dns", "wire", "metrics"},
		third: []string{"golang.org/x/sys"},
	},

	// The list of directives: it meets every handler so that server need not.
	"builtin": {own: []string{anyHandler, "handler", "file", "template", "records", "forward", "kube", "hosts", "kubedns", "skydns", "config"}},
	"server": {
		own:   []string{"config", "corefile", "dns", "transport", "metrics"},
		third: watchesFiles,
	},

	// A kubelet's rules, and pods as people write them: no part of a server.
	"resolvconf": {third: []string{"go.yaml.in/yaml/v2"}, noNet: true},

	// Flags and subcommands.
	"cmd": {
		own:   []string{"server", "builtin", "config", "corefile", "dns", "cluster", "etcd", "kubedns", "convert", "skydns", "sidecar", "healthz", "kube2sky", "dnsmasq", "metrics", "resolvconf"},
		third: []string{"github.com/spf13/cobra"},
	},

	// The load and the peers: it meets servers by their sockets alone.
	"bench": {third: []string{"github.com/miekg/dns", "golang.org/x/sys"}},

	// Test helpers: imported by _test.go files and by kubetest only.
	"internal/dnstest": {
		own:   []string{anything},
		third: []string{"github.com/miekg/dns", "golang.org/x/tools/txtar", "sigs.k8s.io/yaml"},
	},
	"internal/archtest": {},
}

// tests is what every _test.go file may import besides its package's row. The
// oracle of another DNS library stays out of the server's code.
var tests = row{
	own:   []string{anything},
	third: []string{"github.com/miekg/dns", "golang.org/x/tools/txtar"},
}

// vague names say where code is kept and not what it is.
var vague = []string{"pkg", "util", "utils", "common", "types", "helpers", "helper", "base", "misc", "shared", "lib"}

// pattern gives the key of the row for a package of ours, "" if it has none.
func pattern(pkg string) string {
	for p := pkg; p != ""; p = p[:max(strings.LastIndexByte(p, '/'), 0)] {
		if _, ok := table[p]; ok {
			return p
		}
	}
	top, _, _ := strings.Cut(pkg, "/")
	if top == "" || top == "." || top == "internal" {
		return ""
	}
	return anyHandler
}

// imports checks one module's packages against the table. Modules below the
// root (kubetest) have dependencies of their own and are left alone.
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

// refuses says why a package in dir may not import path, "" if it may.
func (r row) refuses(dir, path string, test bool) string {
	own, isOwn := strings.CutPrefix(path, modulePath+"/")
	switch {
	case isOwn:
		if pattern(own) == pattern(dir) && top(own) == top(dir) {
			return ""
		}
		if test && covers(tests.own, own) || covers(r.own, own) {
			return ""
		}
		return "its row in the import table names " + list(r.own)
	case standard(path):
		if path == "net" && r.noNet && !test {
			return "a handler opens no socket"
		}
		return ""
	default:
		if test && within(tests.third, path) || within(r.third, path) {
			return ""
		}
		return "its row in the import table names " + list(r.third)
	}
}

func covers(allowed []string, own string) bool {
	for _, a := range allowed {
		if a == anything || a == anyHandler && pattern(own) == anyHandler || within([]string{a}, own) {
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

// standard reports whether path is of the standard library: its first element
// has no dot.
func standard(path string) bool { return !strings.Contains(top(path), ".") }
