package archtest

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree returns the file system that a text in txtar's format describes.
func tree(text string) fstest.MapFS {
	fsys := fstest.MapFS{}
	var name string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(strings.TrimSpace(rest), " --")
			fsys[name] = &fstest.MapFile{}
			continue
		}
		fsys[name].Data = append(fsys[name].Data, line...)
	}
	return fsys
}

// expect compares findings with the expected ones. Each wanted text is a part of
// one finding.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, w) }) {
			t.Errorf("no finding contains %q", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d findings, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

func TestRules(t *testing.T) {
	long := strings.Repeat("// line\n", maxLines+1)
	tests := []struct {
		name, rule, src string
		want            []string
	}{
		{"lower floors", "imports", `
-- wire/a.go --
package wire
import (
	"net"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire/grpcmessage"
	"github.com/miekg/dns"
)
-- wire/a_test.go --
package wire
import (
	"net"
	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/dnstest"
	"github.com/spf13/cobra"
)
-- dns/a.go --
package dns
import ("github.com/seamark/seamark/zone"; "github.com/seamark/seamark/config"; "github.com/seamark/seamark/wire")
-- server/a.go --
package server
import ("github.com/seamark/seamark/directive/kubernetes"; "github.com/seamark/seamark/transport"; "github.com/seamark/seamark/test/freeport")
-- compat/nanny/a.go --
package nanny
import ("github.com/seamark/seamark/compat/dnsmasq"; "github.com/seamark/seamark/directive/kubedns"; "github.com/seamark/seamark/cmd")
-- test/dnstest/a.go --
package dnstest
import ("github.com/seamark/seamark/cmd"; "github.com/seamark/seamark/test/freeport")
`, []string{
			"wire/a.go:3: wire must not import net: ",
			"wire/a.go:4: wire must not import github.com/seamark/seamark/metrics: metrics is not below wire",
			"wire/a.go:7: wire must not import github.com/miekg/dns",
			"wire/a_test.go:6: wire must not import github.com/spf13/cobra",
			"dns must not import github.com/seamark/seamark/zone",
			"dns must not import github.com/seamark/seamark/config",
			"server must not import github.com/seamark/seamark/directive/kubernetes",
			"server must not import github.com/seamark/seamark/test/freeport",
			"compat/nanny must not import github.com/seamark/seamark/cmd",
		}},
		{"closed doors", "imports", `
-- directive/cache/a.go --
package cache
import (
	"net"
	"net/netip"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport/streams"
	"github.com/seamark/seamark/observe/web"
)
-- directive/cache/a_test.go --
package cache
import (
	"net"
	"github.com/seamark/seamark/server"
)
-- directive/cache/shard/a.go --
package shard
import "github.com/seamark/seamark/directive/cache"
-- directive/a.go --
package directive
import "github.com/seamark/seamark/directive/cache"
-- directive/forward/a.go --
package forward
import "net"
-- builtin/a.go --
package builtin
import ("github.com/seamark/seamark/directive/kubernetes"; "github.com/seamark/seamark/server"; "github.com/seamark/seamark/node/tcx")
-- operate/diff/a.go --
package diff
import ("github.com/seamark/seamark/server"; "github.com/seamark/seamark/node/tcx")
`, []string{
			"directive/cache/a.go:3: directive/cache must not import net: ",
			"directive/cache must not import github.com/seamark/seamark/directive/forward: directives do not",
			"directive/cache/a.go:8: directive/cache must not import github.com/seamark/seamark/server: directive does not know",
			"directive/cache must not import github.com/seamark/seamark/transport/streams",
			"directive must not import github.com/seamark/seamark/directive/cache",
			"builtin must not import github.com/seamark/seamark/server",
			"builtin must not import github.com/seamark/seamark/node/tcx",
			"operate/diff must not import github.com/seamark/seamark/node/tcx",
		}},
		{"other modules", "imports", `
-- cluster/apiserver/a.go --
package apiserver
import ("k8s.io/client-go/kubernetes"; "github.com/seamark/seamark/cluster"; "k8s.io/apimachinery/pkg/watch")
-- cluster/manifests/a.go --
package manifests
import ("go.yaml.in/yaml/v2"; "k8s.io/client-go/rest")
-- cluster/a_test.go --
package cluster
import "github.com/spf13/cobra"
-- directive/etcd/a.go --
package etcd
import ("go.etcd.io/etcd/client/v3"; "k8s.io/client-go/rest"; "k8s.io/apimachinery/pkg/util/validation")
-- transport/a.go --
package transport
import ("golang.org/x/sys/unix"; "net"; "example.com/new")
-- server/a.go --
package server
import "golang.org/x/sys/unix"
-- cmd/seamark/a.go --
package main
import ("github.com/spf13/cobra"; "github.com/seamark/seamark/builtin"; "github.com/coredns/caddy/caddyfile")
`, []string{
			"cluster/manifests must not import k8s.io/client-go/rest",
			"cluster must not import github.com/spf13/cobra",
			"directive/etcd must not import k8s.io/client-go/rest: only cluster/apiserver may",
			"directive/etcd must not import k8s.io/apimachinery/pkg/util/validation",
			"transport must not import example.com/new: no package may import this module",
			"server must not import golang.org/x/sys/unix",
			"cmd/seamark must not import github.com/coredns/caddy/caddyfile",
		}},
		{"on no floor", "imports", `
-- internal/stuff/a.go --
package stuff
-- a.go --
package seamark
-- nested/go.mod --
module github.com/seamark/seamark/nested
-- nested/a.go --
package nested
import "go.etcd.io/etcd/server/v3"
`, []string{"internal/stuff: package is on no floor", ".: package is on no floor"}},

		{"none", "docs", "-- a/a.go --\npackage a\n", []string{"a: package has no doc comment"}},
		{"two", "docs", "-- a/a.go --\n// Package a is.\npackage a\n-- a/b.go --\n// Package a was.\npackage a\n", []string{"several doc comments: a/a.go, a/b.go"}},
		{"odd", "docs", "-- a/a.go --\n// This is a.\npackage a\n", []string{`does not begin with "Package a"`}},
		{"good", "docs", "-- a/a.go --\n// Package a is.\npackage a\n-- a/b.go --\n//go:build linux\n\npackage a\n-- cmd/c/c.go --\n// C is a command.\npackage main\n", nil},

		{"vague", "names", "-- kube/util/a.go --\npackage util\n-- pkg/a.go --\npackage pkg\n-- kube/a.go --\npackage kube\n", []string{`kube/util: "util"`, `pkg: "pkg"`}},

		{"long", "sizes", "-- a/a.go --\npackage a\n" + long + "-- a/a_test.go --\npackage a\n" + long, []string{"a/a.go: 502 lines"}},

		{"dense", "paragraphs", "-- a/a.go --\npackage a\nfunc dense() {\n" + strings.Repeat("\tdense()\n", 41) + "}\nfunc breathes() {\n" +
			strings.Repeat(strings.Repeat("\tif true {\n\t\tdense()\n\t}\n", 7)+"\n", 2) + "}\nfunc table() []int {\n\treturn []int{\n" +
			strings.Repeat("\t\t1,\n", 50) + "\t}\n}\n-- a/a_test.go --\npackage a\nfunc test() {\n" + strings.Repeat("\tdense()\n", 41) + "}\n",
			[]string{"a/a.go:2: dense has more than 30 lines"}},

		{"init", "inits", "-- a/a.go --\npackage a\nfunc init() {}\ntype t int\nfunc (t) init() {}\n-- a/a_windows.go --\npackage a\n\nfunc init() {}\n", []string{"a/a.go:2: func init", "a/a_windows.go:3: func init"}},

		{"value", "context-values", `
-- a/a.go --
package a
import c "context"
var _ = c.WithValue(nil, 1, 2)
-- b/b.go --
package b
import "context"
var _ = context.WithCancelCause
-- nested/go.mod --
module nested
-- nested/a.go --
package nested
import "context"
var _ = context.WithValue(nil, 1, 2)
`, []string{"a/a.go:3: context.WithValue"}},
		{"clocks", "a Unix time", `
-- go.mod --
module example.com/a
-- a/a.go --
package a
import "time"
var past = time.Unix(1, 0)
func age(t int64) int64 { return time.Now().UnixNano() - t }
-- a/a_test.go --
package a
import "time"
func now() int64 { return time.Now().Unix() }
-- metrics/process.go --
package metrics
import "time"
func now() int64 { return time.Now().Unix() }
`, []string{"a/a.go:4: UnixNano"}},
	}
	for _, tc := range tests {
		t.Run(tc.rule+"/"+tc.name, func(t *testing.T) {
			m, err := load(tree(strings.TrimPrefix(tc.src, "\n")))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if r.name == tc.rule {
					expect(t, r.check(m), tc.want)
				}
			}
		})
	}
}

func TestVariables(t *testing.T) {
	tests := []struct {
		name, src string
		want      []string
	}{
		{"what does not change", `
import ("embed"; "errors"; "regexp"; "strings")
type row struct{ name string; aliases []string }
func (r *row) called(s string) bool { return r.name == s }
type T struct{}
var (
	ErrGone = errors.New("gone")
	word    = regexp.MustCompile("^a+$")
	files   embed.FS
	clean   = strings.NewReplacer("a", "b")
	table   = map[string]int{"a": 1}
	rows    = []row{{name: "a"}}
	hexits  = [16]byte{'0'}
	version = "dev"
	find    = func(s string) bool { return word.MatchString(s) }
	_ interface{} = (*T)(nil)
)
func length(rs []row) int { rs = rs[:1]; return len(rs) }
func get(s string) int {
	table := map[string]int{}
	table[s] = 2
	for i := range rows {
		r := &rows[i]
		if r.called(s) { return length(rows) }
	}
	var rows []row
	rows = append(rows, row{})
	dst := append([]byte(nil), hexits[1:3]...)
	dst[0] = 1
	return rows[0].count(table)
}
func (r row) count(m map[string]int) int { r.name = version; return m[r.name] + int(hexits[0]) }
`, nil},
		{"assigned", `
var count int
var name, other = "a", "b"
var pair struct{ left int }
var key int
func f() {
	count++
	name = other
	pair.left += 1
	for key = range 3 {}
}
`, []string{"variable count is assigned to", "a.go:9: package variable name", "variable pair", "variable key"}},
		{"written through", `
import ("slices"; "sort")
var (
	m1 = map[string]int{}
	m2 = map[string]int{}
	s1 = []int{1}
	s2 = []int{1}
	s3 = []int{1}
	s4 = []int{1}
	s5 = []int{1}
	p  = &struct{ n int }{}
)
func f() {
	m1["a"] = 1
	delete(m2, "a")
	s1[0] = 2
	copy(s2, s1)
	s3 = append(s3[:0], 1)
	sort.Ints(s4)
	slices.SortFunc(s5, func(a, b int) int { return a - b })
	p.n = 1
}
`, []string{"m1 is assigned", "m2 is changed by delete", "s1 is", "s2 is changed by copy", "s3 is assigned", "s3 is changed by append", "s4 is changed by Ints", "s5 is changed by SortFunc", "p is assigned"}},
		{"by another name", `
import "bytes"
type list struct{ items []int; buf bytes.Buffer }
func (l *list) add(n int)   { l.items = append(l.items, n) }
func (l *list) twice(n int) { l.add(n); l.add(n) }
func (l *list) size() int   { return len(l.items) }
var (
	value   list
	pointer = &list{}
	read    = &list{}
	buffer  bytes.Buffer
	handed  = map[string]int{}
	table   = []list{{}}
	given   int
)
func fill(m map[string]int) { fillMore(m) }
func fillMore(m map[string]int) { m["a"] = 1 }
func f() *int {
	value.twice(1)
	pointer.twice(read.size())
	buffer.WriteByte('a')
	fill(handed)
	e := &table[0]
	e.items = nil
	return &given
}
`, []string{"value is changed by twice", "pointer is changed by twice", "buffer is changed by WriteByte", "handed is changed by fill", "table is assigned", "given has its address taken"}},
		{"types made for change", `
import ("log"; "sync"; "sync/atomic"; "text/template")
type shard struct{ mu sync.RWMutex }
var (
	mu     sync.Mutex
	hits   atomic.Int64
	ch     = make(chan int)
	shards [4]*shard
	flag   = new(bool)
	out    = log.Default()
	page   = template.Must(template.New("").Parse(""))
)
`, []string{"mu holds a sync.Mutex", "hits holds a sync/atomic.Int64", "ch holds a channel", "shards holds a sync.RWMutex", "flag is a pointer to a bool", "out holds a sync"}},
		{"third-party types", `
import "k8s.io/apimachinery/pkg/runtime"
var scheme = runtime.NewScheme()
var other runtime.Scheme
func f() { other = *scheme }
`, []string{"other is assigned"}},
	}
	std := newStdlib()
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			expect(t, variablesOf(t, std, "-- a/a.go --\npackage a\n"+tc.src), tc.want)
		})
	}
}

func TestVariablesAcrossPackages(t *testing.T) {
	expect(t, variablesOf(t, newStdlib(), `-- a/a.go --
package a
var Port = 53
var hosts = 1
-- a/a_test.go --
package a
var update = false
func f() { hosts = 2; update = true }
-- b/b.go --
package b
import "github.com/seamark/seamark/a"
func f() { a.Port = 1053 }
`), []string{"b/b.go:3: package variable Port is assigned to"})
}

func variablesOf(t *testing.T, std *stdlib, src string) []string {
	t.Helper()
	return variables(checked(t, std, src))
}

// checked returns the type-checked sources.
func checked(t *testing.T, std *stdlib, src string) *checker {
	t.Helper()
	m, err := load(tree(src))
	if err != nil {
		t.Fatal(err)
	}
	c, err := check(m, std)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUnexplained(t *testing.T) {
	mod := `module m
require example.com/one v1.0.0
require (
	example.com/two v1.0.0
	example.com/three v1.0.0
	example.com/four v1.0.0 // indirect
)
tool example.com/five/cmd/five
`
	got := unexplained("go.mod", mod, "* `example.com/two`: for its looks\n")
	expect(t, got, []string{"example.com/one:", "example.com/three:", "example.com/five/cmd/five:"})
}
