package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/corefile-migration/migration"
)

// readTable returns the ranges of versions of each line of the table.
func readTable(t *testing.T) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/coredns.txt")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][][]string{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		n := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "1.") })
		name := strings.Join(words[:n], " ")
		table[name] = append(table[name], words[n:])
	}
	return table
}

func has(ranges [][]string, version string) bool {
	v := numbers(version)
	return slices.ContainsFunc(ranges, func(r []string) bool {
		return slices.Compare(numbers(r[0]), v) <= 0 && (len(r) == 1 || slices.Compare(v, numbers(r[1])) < 0)
	})
}

// kubeadm's library for the migration of Corefiles knows the plugins that clusters use, in the
// versions from 1.1.4 on.
func TestTableMigration(t *testing.T) {
	table := readTable(t)
	// Here the library differs from CoreDNS's sources: it has these options in versions that
	// lack them, and proxy's protocol, which lost only one value.
	known := func(name, plugin, version string) bool {
		before := func(limit string) bool { return slices.Compare(numbers(version), numbers(limit)) < 0 }
		switch name {
		case "hosts no_reverse", "hosts reload", "hosts ttl":
			return before("1.3.1")
		case "forward failfast_all_unhealthy_upstreams":
			return version == "1.12.0"
		case "proxy protocol":
			return true
		}
		return plugin == "proxy" && version == "1.5.0" // removed with its options
	}
	versions := migration.ValidVersions()
	slices.SortFunc(versions, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	compared := 0
	for name, ranges := range table {
		plugin, option, _ := strings.Cut(name, " ")
		corefile := fmt.Sprintf(".:53 {\n    %s {\n        %s\n    }\n}\n", plugin, option)
		for i, v := range versions[1:] {
			unsupported, err := migration.Unsupported(versions[i], v, corefile)
			if err != nil {
				t.Fatal(err)
			}
			notices, err := migration.Deprecated(versions[i], v, corefile)
			if err != nil {
				t.Fatal(err)
			}
			removed := slices.ContainsFunc(notices, func(n migration.Notice) bool {
				return n.Plugin == plugin && n.Option == option && n.Severity == migration.SevRemoved
			})
			if len(unsupported) > 0 && !removed || known(name, plugin, v) {
				continue
			}
			compared++
			if got := has(ranges, v); got == removed {
				t.Errorf("%s in CoreDNS %s: the table has %v, and the library's statement is that it exists: %v", name, v, ranges, !removed)
			}
		}
	}
	if compared < 1000 {
		t.Errorf("compared %d times, want 1000 or more", compared)
	}
}

// The preflight checks of kubeadm upgrade stop at an image of another server: see
// docs/how-to/platforms.md.
func TestKubeadmOtherImage(t *testing.T) {
	const corefile = ".:53 {\n    forward . /etc/resolv.conf\n}\n"
	for _, tag := range []string{"0.1.0", "latest", ""} {
		_, unsupported := migration.Unsupported(tag, "1.14.2", corefile)
		_, deprecated := migration.Deprecated(tag, "1.14.2", corefile)
		if _, migrate := migration.Migrate(tag, "1.14.2", corefile, false); unsupported == nil || migrate == nil || deprecated == nil {
			t.Errorf("an image with the tag %q: got the errors %v, %v and %v, want three", tag, unsupported, migrate, deprecated)
		}
	}
}

// A version between two different ones is read, unless it cannot be.
func TestRead(t *testing.T) {
	sources := map[string]features{
		"1.0.0": {"a": true, "a x": true}, "1.0.1": {"a": true, "a x": true}, "1.1.0": {"a": true, "b": true},
		"1.2.0": {"a": true, "b": true}, "1.2.1": {"a": true, "a x": true}, "1.3.0": {"a": true, "a x": true, "c": true},
	}
	versions := []string{"1.0.0", "1.0.1", "1.0.2", "1.1.0", "1.2.0", "1.2.1", "1.2.2", "1.3.0"}
	h, err := read(versions, func(v string) (features, error) {
		if f, ok := sources[v]; ok {
			return f, nil
		}
		return nil, os.ErrNotExist
	})
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(h.table(versions), "tools.\n")
	// 1.0.2 may have b, and 1.2.2 c.
	want := "a 1.0.0\na x 1.0.0 1.1.0\na x 1.2.1\nb 1.0.2 1.2.1\nc 1.2.2\n"
	if got != want {
		t.Errorf("table: got\n%s\nwant\n%s", got, want)
	}
}

func TestReadSource(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"plugin.cfg":             "# comment:x\na:aa\nb:b\nother:example.org/other\n",
		"plugin/aa/setup.go":     "package aa\nconst size = \"size\"\nfunc parse(c *caddy.Controller) {\n for c.NextBlock() {\n  switch c.Val() {\n  case \"one\", \"two\":\n   args := c.RemainingArgs()\n   switch args[0] {\n   case \"argument\":\n   }\n  case size:\n  }\n }\n}\n",
		"plugin/b/setup.go":      "package b\nfunc parse(c *caddy.Controller) {\n what := strings.ToLower(c.Val())\n if what == \"three\" || c.Val() != \"}\" {\n }\n switch x := c.Val(); x {\n case \"four\":\n }\n}\n",
		"plugin/b/setup_test.go": "package b\nfunc parse(c *caddy.Controller) { if c.Val() == \"test\" {} }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := readSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(f.sorted(), ";"), "a;a one;a size;a two;b;b four;b three;other"; got != want {
		t.Errorf("readSource: got %q, want %q", got, want)
	}
}

// The report has what a version has and the table and the page lack, and what has gone.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"plugin.cfg":        "a:a\nb:b\n",
		"plugin/a/setup.go": "package a\nfunc parse(c *caddy.Controller) {\n switch c.Val() {\n case \"one\", \"two\":\n }\n}\n",
		"plugin/b/setup.go": "package b\n",
		"plugin/b/metrics.go": "package b\nconst subsystem = \"b\"\nvar (\n x = promauto.NewCounterVec(prometheus.CounterOpts{Namespace: plugin.Namespace, Subsystem: subsystem, Name: \"new_total\", Help: \"x\"}, []string{\"to\", subsystem})\n" +
			" y = promauto.NewGauge(prometheus.GaugeOpts{Namespace: plugin.Namespace, Name: \"old\"})\n z = other.NewGauge(other.GaugeOpts{Name: \"none\"})\n" +
			" v = promauto.NewHistogramVec(prometheus.HistogramOpts{Namespace: plugin.Namespace, Name: \"kind\"}, []string{\"b\", \"a\"})\n" +
			" w = promauto.NewGaugeVec(prometheus.GaugeOpts{Namespace: plugin.Namespace, Name: \"labels\"}, []string{\"b\", \"a\"})\n)\n",
		"plugin/b/README.md": "`coredns_old{}`, `coredns_kind_bucket` and `coredns_earlier_count_total`, but `coredns_listed`.\n",
		"man/coredns-b.7":    "coredns_manual{to}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const page = "- `coredns_old`: x\n- `coredns_kind{a,b}`: x\n- `coredns_labels{b}`: x\n| `coredns_listed` |\n"
	var got strings.Builder
	if err := report(&got, dir, "# Comment.\n\na 1.0.0\na one 1.0.0\na two 1.0.0 1.1.0\na three 1.2.0\n", page); err != nil {
		t.Fatal(err)
	}
	want := "new option: two of a\nnew plugin: b\nremoved: a three\nnew metric: counter coredns_b_new_total{b,to}\n" +
		"other metric: histogram coredns_kind{a,b}, and the page has gauge coredns_kind{a,b}\n" +
		"other metric: gauge coredns_labels{a,b}, and the page has gauge coredns_labels{b}\n" +
		"metric of a document: coredns_earlier_count_total\nmetric of a document: coredns_manual\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// Seamark knows all of the version that make test-coredns compares it with, and each of its metrics has a sentence.
func TestReportKnownVersion(t *testing.T) {
	dir, err := download("1.15.0")
	if err != nil {
		if os.Getenv("SEAMARK_TEST_COMPLETE") != "" {
			t.Fatal(err)
		}
		t.Skipf("no sources of CoreDNS, which are downloaded: %v", err)
	}
	table, err := os.ReadFile("../../cmd/coredns.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := report(&got, dir, string(table), string(page)); err != nil {
		t.Fatal(err)
	}
	if got.String() != "" {
		t.Errorf("CoreDNS 1.15.0: got a report, want none\n%s", got.String())
	}

	metrics, err := readMetrics(dir)
	if err != nil || len(metrics) < 50 {
		t.Errorf("metrics of CoreDNS 1.15.0: got %d and error %v, want 50 or more", len(metrics), err)
	}
	sentences, err := os.ReadFile("../../testdata/coredns/sentences.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range metrics {
		if !strings.Contains(string(sentences), name+" ") && !strings.Contains(string(sentences), name+",") {
			t.Errorf("%s: sentences.txt has no line about it", name)
		}
	}
}
