package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// set sets up the hosts directives of a block in example.test.
func set(t testing.TB, text string, log *chaintest.Log) (*config.Block, *Handler, error) {
	t.Helper()
	b, err := chaintest.Setup("example.test {\n"+text+"\n}\n", log.Logger(), config.Directive{Name: "hosts", Setup: Setup})
	if b == nil {
		t.Fatal(err)
	}
	handlers := config.Find[*Handler](b)
	if len(handlers) != 1 {
		return b, nil, err
	}
	return b, handlers[0], err
}

func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ directive, want string }{
		{"hosts\nhosts", `Corefile:3: hosts: already given at Corefile:2, and can be given once in a server block`},
		{`hosts ""`, `Corefile:2: hosts: want a file or a directory, got ""`},
		{"hosts file a..b fe80::1", `Corefile:2: hosts: not a zone: "a..b": empty label` + "\n" +
			`Corefile:2: hosts: "fe80::1" is not a zone: want a name or a CIDR like fd00::/8`},
		{"hosts {\n fallthroug\n}", `Corefile:3: hosts: unknown option "fallthroug"; did you mean "fallthrough"?`},
		{"hosts {\n web 10.0.0.1\n}", `Corefile:3: hosts: unknown option "web"`},
		{"hosts {\n 10.0.0.256 web\n}", `Corefile:3: hosts: want an IP address and names, got "10.0.0.256"`},
		{"hosts {\n fd00::g web\n}", `Corefile:3: hosts: want an IP address and names, got "fd00::g"`},
		{"hosts {\n 10.0.0.1\n}", `Corefile:3: hosts: want names after 10.0.0.1`},
		{"hosts {\n 10.0.0.1 a..b ok *c\n}", `Corefile:3: hosts: "a..b" is not a name: a label is empty` + "\n" +
			`Corefile:3: hosts: "*c" is not a name: * can only be the whole first label`},
		{"hosts {\n ttl\n}", `Corefile:3: hosts: ttl: got no arguments, usage: ttl SECONDS`},
		{"hosts {\n ttl -1\n}", `Corefile:3: hosts: ttl: want 0..2147483647, got "-1"`},
		{"hosts {\n ttl 2147483648\n}", `Corefile:3: hosts: ttl: want 0..2147483647, got "2147483648"`},
		{"hosts {\n no_reverse yes\n}", `Corefile:3: hosts: no_reverse: want no argument, got 1`},
		{"hosts {\n reload\n}", `Corefile:3: hosts: reload: got no arguments, usage: reload DURATION`},
		{"hosts {\n reload 5\n}", `Corefile:3: hosts: reload: want a duration of 0s..8760h, got "5"`},
		{"hosts {\n reload -1s\n}", `Corefile:3: hosts: reload: want a duration of 0s..8760h, got "-1s"`},
		{"hosts {\n fallthrough a..b\n}", `Corefile:3: hosts: fallthrough: not a zone: "a..b": empty label`},
		{"hosts {\n fallthrough\n fallthrough_unsupported example.test\n}", `Corefile:4: hosts: fallthrough_unsupported: want no argument, got 1`},
		{"hosts {\n ttl 5\n fallthrough_unsupported\n}", `Corefile:2: hosts: fallthrough_unsupported on line 4 needs fallthrough`},
		{"hosts setup_test.go/hosts", `Corefile:2: hosts: reading setup_test.go/hosts: not a directory`},
		{"hosts {\n file\n}", `Corefile:3: hosts: file: got no arguments, usage: file PATH...`},
		{"hosts {\n file a \"\" b\n}", `Corefile:3: hosts: file: want files and directories, got ""`},
		{"hosts {\n domain a b\n}", `Corefile:3: hosts: domain: got 2 arguments, usage: domain NAME`},
		{"hosts {\n domain a..b\n}", `Corefile:3: hosts: domain: want a name such as example.org, got "a..b"`},
		{"hosts {\n domain .\n localise yes\n}", `Corefile:3: hosts: domain: want a name such as example.org, got "."` + "\n" +
			`Corefile:4: hosts: localise: want no argument, got 1`},
		{"hosts {\n configmap dns/custom\n}", `Corefile:3: hosts: configmap: got 1 argument, usage: configmap NAMESPACE/NAME KEY`},
		{"hosts {\n configmap custom hosts\n}", `Corefile:2: hosts: configmap: want NAMESPACE/NAME, got "custom"`},
		{"hosts {\n configmap dns/Custom hosts\n}", `Corefile:2: hosts: configmap: want NAMESPACE/NAME, got "dns/Custom"`},
		{"hosts {\n endpoint http://localhost:8001\n}", `Corefile:2: hosts: endpoint, tls, kubeconfig and manifests need configmap`},
		{"hosts {\n configmap dns/custom hosts\n endpoint localhost\n}", `Corefile:2: hosts: endpoint: want a URL such as https://10.0.0.1:6443, got "localhost"`},
		{"hosts {\n configmap dns/custom hosts\n endpoint\n}", `Corefile:4: hosts: endpoint: got no arguments, usage: endpoint URL`},
		{"hosts {\n configmap dns/custom hosts\n tls cert key\n}", `Corefile:4: hosts: tls: got 2 arguments, usage: tls CERT KEY CA`},
		{"hosts {\n configmap dns/custom hosts\n tls cert key ca\n}", `Corefile:2: hosts: tls: is for an endpoint, and none is given`},
		{"hosts {\n configmap dns/custom hosts\n kubeconfig a b c\n}", `Corefile:4: hosts: kubeconfig: got 3 arguments, usage: kubeconfig FILE [CONTEXT]`},
		{"hosts {\n configmap dns/custom hosts\n manifests\n}", `Corefile:4: hosts: manifests: got no arguments, usage: manifests DIR`},
		{"hosts {\n configmap dns/custom hosts\n manifests dir\n kubeconfig file\n}", `Corefile:2: hosts: manifests: a folder takes the place of an API server, so endpoint and kubeconfig do not go with it`},
	} {
		_, _, err := set(t, c.directive, new(chaintest.Log))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directive, err, c.want)
		}
	}
}

// Setup accepts the directives that CoreDNS accepts.
func TestSetup(t *testing.T) {
	for _, directive := range []string{
		"hosts", "hosts {\n}", "hosts /etc/hosts", "hosts /etc/hosts example.org 10.0.0.0/8",
		"hosts {\n 10.0.0.1 example.org www.example.org.\n ::1 localhost\n fallthrough\n}",
		"hosts custom.hosts {\n fe80::1%eth0 scoped\n ttl 1\n no_reverse\n reload 0s\n fallthrough in-addr.arpa ip6.arpa\n fallthrough_unsupported\n}",
		"hosts {\n ttl 65535\n reload 300ms\n}",
	} {
		if _, h, err := set(t, directive, new(chaintest.Log)); err != nil || h == nil {
			t.Errorf("%s: %v", directive, err)
		}
	}
}

// started sets up and starts a directive. It is stopped when the test ends.
func started(t testing.TB, text string, log *chaintest.Log, old *config.Start) (*config.Block, *Handler, *config.Start) {
	t.Helper()
	b, h, err := set(t, text, log)
	if err != nil {
		t.Fatal(err)
	}
	s := config.NewStart(t.Context(), old)
	if err := b.Started(s); err != nil {
		t.Fatal(err)
	}
	if old == nil {
		t.Cleanup(s.Stop)
	} else {
		s.Commit()
		t.Cleanup(s.Stop)
	}
	return b, h, s
}

// The default file is /etc/hosts unless there is another source.
func TestSetupPath(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ directive, root, want string }{
		{"hosts {\n reload 0\n}", "", "/etc/hosts"},
		{"hosts {\n 10.0.0.1 a.example.test\n reload 0\n}", "/nowhere", "/etc/hosts"},
		{"hosts list {\n reload 0\n}", dir, filepath.Join(dir, "list")},
		{"hosts /list {\n reload 0\n}", dir, "/list"},
		{"hosts {\n configmap dns/custom hosts\n manifests " + dir + "\n}", "", ""},
		{"hosts {\n file list /more/ list\n file /last list\n reload 0\n}", dir, filepath.Join(dir, "list") + " /more /last"},
		{"hosts /first {\n file /more /first\n reload 0\n}", dir, "/first /more"},
		{"hosts {\n configmap dns/custom hosts\n file /list\n manifests " + dir + "\n}", "", "/list"},
		{"hosts list {\n configmap dns/custom hosts\n manifests " + dir + "\n}", dir, filepath.Join(dir, "list")},
	} {
		servers, err := corefile.Parse("Corefile", []byte(".:53 {\n"+c.directive+"\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		b := &config.Block{Zones: []wire.Name{wire.Root}, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Chain: new(dns.Chain)}
		if c.root != "" {
			b.Offer(root(c.root))
		}
		if err := Setup(b, servers[0].Directives); err != nil {
			t.Fatal(err)
		}
		s := config.NewStart(context.Background(), nil)
		if err := b.Started(s); err != nil {
			t.Fatal(err)
		}
		if got := config.Find[*Handler](b)[0].table.paths; strings.Join(got, " ") != c.want {
			t.Errorf("%s: the file is %q, want %q", c.directive, got, c.want)
		}
		s.Stop()
	}
}

// A reload keeps the table if the lines come from the same sources. With reload 0
// only a reload reads the file again, so it does not keep the table.
func TestReloadKeepsTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "10.0.0.1 a.example.test\n")
	log := new(chaintest.Log)
	for _, c := range []struct {
		before, after string
		same          bool
	}{
		{"ttl 30", "ttl 30", true},
		{"ttl 30", "ttl 60", true},
		{"ttl 30", "ttl 30\n fallthrough\n fallthrough_unsupported", true},
		{"ttl 30", "no_reverse", false},
		{"ttl 30", "reload 2s", false},
		{"ttl 30", "localise", true},
		{"localise", "localise", true},
		{"ttl 30", "domain example.test", false},
		{"ttl 30", "file " + file + "2", false},
		{"ttl 30", "10.0.0.2 b.example.test", false},
		{"reload 0", "reload 0", false},
	} {
		_, before, s := started(t, "hosts "+file+" {\n "+c.before+"\n}", log, nil)
		_, after, _ := started(t, "hosts "+file+" {\n "+c.after+"\n}", log, s)
		if (before.table == after.table) != c.same {
			t.Errorf("from %q to %q: kept the table: %t, want %t", c.before, c.after, !c.same, c.same)
		}
		newAsker(t, after).check(t, "a.example.test.", "A", c.after == "ttl 60", "10.0.0.1")
	}
}

// A missing file is a warning of Setup, which check reports as an error. The server does not log
// it again.
func TestSetupMissingFile(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "hosts"), new(chaintest.Log)
	b, _, _ := started(t, "hosts "+file, log, nil)
	want := "Corefile:2: hosts: stat " + file + ": no such file or directory"
	if got := b.Warnings(); len(got) != 1 || got[0].Error() != want {
		t.Errorf("got the warnings %v, want %s", got, want)
	}
	if log.Count("WARN") != 0 {
		t.Errorf("want no warning in the log, logged\n%s", log)
	}
}

// The metrics count the present entries.
func TestMetrics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "10.0.0.1 a.example.test b.example.test\nfd00::1 a.example.test\n10.0.0.1 a.example.test\n10.0.0.2 *.example.test\n")
	b, _, s := started(t, "hosts "+file, new(chaintest.Log), nil)
	text := func() string {
		var out strings.Builder
		if err := b.Metrics.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// Four addresses of names, three names of addresses.
	series := "\ncoredns_hosts_entries{hostsfile=\"" + file + "\"} "
	if got := text(); !strings.Contains(got, series+"7\n") || !strings.Contains(got, "\ncoredns_hosts_reload_timestamp_seconds ") {
		t.Errorf("want%s7 and a timestamp, got\n%s", series, got)
	}
	write(t, file, "10.0.0.1 a.example.test\n")
	chaintest.Eventually(t, "two entries", func() bool { return strings.Contains(text(), series+"2\n") })
	s.Stop()
	if got := text(); strings.Contains(got, "coredns_hosts") {
		t.Errorf("metrics after Stop: want no coredns_hosts, got\n%s", got)
	}
}

// If a ConfigMap cannot be read, the first start serves the other lines; negative
// answers are SERVFAIL.
func TestConfigMapMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not-there")
	text := "hosts {\n 10.0.0.1 a.example.test\n configmap dns/custom hosts\n manifests " + dir + "\n}"
	_, h, _ := started(t, text, new(chaintest.Log), nil)
	if h.Ready() {
		t.Error("Ready without the ConfigMap: got true, want false")
	}
	a := newAsker(t, h)
	a.check(t, "a.example.test.", "A", false, "10.0.0.1")
	for _, q := range []string{"b.example.test. A", "a.example.test. AAAA", "example.test. A"} {
		name, qtype, _ := strings.Cut(q, " ")
		if got := a.digest(t, name, qtype); got != "SERVFAIL" {
			t.Errorf("%s: got %s, want SERVFAIL", q, got)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	chaintest.Eventually(t, "an empty folder", h.Ready)
	if got := a.digest(t, "b.example.test.", "A"); got != "NXDOMAIN aa" {
		t.Errorf("b.example.test. A with the ConfigMap: got %s, want NXDOMAIN aa", got)
	}
}

// A reload fails if a new ConfigMap cannot be read.
func TestConfigMapReloadFails(t *testing.T) {
	b, _, s := started(t, "hosts {\n 10.0.0.1 a.example.test\n}", new(chaintest.Log), nil)
	missing := cluster.Options{ConfigMap: "dns/custom", Manifests: filepath.Join(t.TempDir(), "not-there")}
	p := plan{timeout: 50 * time.Millisecond, settings: []cluster.Options{missing}, keys: []string{"hosts"}}
	d := corefile.Directive{Token: corefile.Token{Text: "hosts", File: "Corefile", Line: 2}, Path: "hosts"}
	next := config.NewStart(t.Context(), s)
	_, err := p.start(next, d, b)
	next.Abort()
	const want = "Corefile:2: hosts: waiting for configmap dns/custom hosts: no answer from the API server within 50ms"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.timeout = time.Hour
	next = config.NewStart(ctx, s)
	_, err = p.start(next, d, b)
	next.Abort()
	if err != context.Canceled {
		t.Errorf("a canceled start: got %v, want %v", err, context.Canceled)
	}
}

// A root is the directory of relative paths, as the directive root offers it.
type root string

func (r root) Root() string { return string(r) }

// The memory that reading an inline line allocates is proportional to its names: ten times as
// many need about ten times as much.
func TestInlineLineLinear(t *testing.T) {
	allocated := func(names int) uint64 {
		var line strings.Builder
		for i := range names {
			fmt.Fprintf(&line, " host-%d.zone.test", i)
		}
		text := ".:53 {\nhosts {\n10.0.0.1" + line.String() + "\n}\n}\n"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "hosts", Setup: Setup}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(2000), allocated(20_000); many > 25*few {
		t.Errorf("20,000 names: allocated %d bytes, 2,000 names %d; want a tenth of that", many, few)
	}
}
