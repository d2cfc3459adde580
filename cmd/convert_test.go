package cmd_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/program"
)

func TestConvertCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	stock := read(t, "../deploy/kube-dns/three-container/deployment.yaml")
	write(t, filepath.Join(dir, "stock.yaml"), stock)
	write(t, filepath.Join(dir, "map.yaml"), "kind: ConfigMap\nmetadata: {name: other, namespace: x}\ndata: {upstreamNameservers: '[\"9.9.9.9\"]'}\n")
	write(t, filepath.Join(dir, "bad.yaml"), "kind: ConfigMap\nmetadata: {name: kube-dns}\ndata: {upstreamNameservers: '[\"$$$$\"]', federations: x}\n")
	if err := os.Mkdir(filepath.Join(dir, "mount"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "mount", "upstreamNameservers"), `["8.8.4.4"]`)
	write(t, filepath.Join(dir, "mount", "more"), "x")
	if err := os.Mkdir(filepath.Join(dir, "broken"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "broken", "federations"), "\xff")
	const base = "convert "
	for _, c := range []struct {
		args, in, out, err string // what they contain
		code               int
	}{
		{base + "--help", "", "--config-map [NAMESPACE/]NAME", "", 0},
		{base + "stock.yaml", "", "kubedns_config /kube-dns-config {", "", 0},
		{base + "-", stock, "# Converted by seamark convert from Deployment kube-system/kube-dns: kubedns (kube-dns), dnsmasq (dnsmasq-nanny), sidecar.\n", "", 0},
		{base + "stock.yaml mount", "", "    forward . 8.8.4.4:53 {\n", "", 0},
		{base + "--follow stock.yaml mount", "", "kubedns_config /kube-dns-config {", "", 0},
		{base + "mount", "", "# Converted by seamark convert from the defaults of kube-dns's flags, without a pod: kube-dns; and mount.\n# - mount: kube-dns ignores the key \"more\"\n", "", 0},
		{base + "--follow mount", "", "kubedns_config ./mount {\n", "", 0},
		{base + "--config-map other map.yaml", "", "    forward . 9.9.9.9:53 {\n", "", 0},
		{base + "--config-map x/other --follow map.yaml", "", "kubedns_config x/other {\n", "", 0},
		{base + "map.yaml -- kube-dns -config_map=other", "", "    forward . 9.9.9.9:53 {\n", "", 0},
		{base + "map.yaml -- kube-dns --config-map=kube-dns", "", "kubedns_config kube-system/kube-dns {\n", "", 0},
		{base + "-- kube-dns --dns-port=1053", "", ".:1053 {\n", "", 0},
		{base + "-- /usr/bin/seamark kube-dns -v=2", "", "# - not part of a Corefile, since they affect the process or its log: --v\n", "", 0},
		{base + "-- dnsmasq -k -p 1053 --pid-file=/x", "", "# - dnsmasq: --pid-file: use the flag -pidfile of seamark\n# - not part of a Corefile, since they affect the process or its log: -k\n.:1053 {\n", "", 0},
		{base + "-- dnsmasq-nanny -logInterval=1s -- --all-servers", "", "# - dnsmasq-nanny: --all-servers: ", "", 0},
		{base + "mount -- dnsmasq-nanny -- --no-resolv -S 192.0.2.1", "", "    forward . 192.0.2.1:53 8.8.4.4:53 {\n", "", 0},

		{"convert", "", "", "want a file, - for standard input, or a command line after --", 2},
		{"convert --", "", "", "want a command line after --", 2},
		{base + "--nonsense", "", "", "unknown flag: --nonsense", 2},
		{base + "nowhere bad", "", "", "open nowhere: no such file or directory\nopen bad: no such file or directory\n", 1},
		{base + "map.yaml", "", "", "neither a pod with kube-dns or dnsmasq nor a ConfigMap kube-dns in the input\n", 1},
		{base + "--config-map z stock.yaml map.yaml", "", "", "no ConfigMap z in the input\n", 1},
		{base + "stock.yaml -- kube-dns", "", "", "the input has both Deployment kube-system/kube-dns and a command line: remove one of them\n", 1},
		{base + "-- named -g", "", "", "named answers no queries: want kube-dns, dnsmasq-nanny or dnsmasq after --\n", 1},
		{base + "-- sidecar", "", "", "sidecar answers no queries: want kube-dns", 1},
		{base + "-- kube-dns --nonsense", "", "", "kube-dns: unknown flag: --nonsense\n", 1},
		{base + "-- kube-dns word", "", "", "kube-dns: unknown word \"word\"\n", 1},
		{base + "-- kube-dns --domain=a..b --dns-bind-address=x", "", "", "kube-dns: --dns-bind-address: want an IP address, got \"x\"\nkube-dns: --domain: want", 1},
		{base + "-- dnsmasq-nanny -k", "", "", "dnsmasq-nanny: unknown shorthand flag: 'k' in -k\n", 1},
		{base + "-- dnsmasq-nanny -syncInterval=0s", "", "", "dnsmasq-nanny: -syncInterval: want 10ms..24h0m0s, got 0s\n", 1},
		{base + "bad.yaml", "", "", "ConfigMap kube-dns: federations: want NAME=DOMAIN,NAME=DOMAIN, got \"x\"\nConfigMap kube-dns: upstreamNameservers: want IP", 1},
		{base + "broken", "", "", "broken: federations: want UTF-8, got \"\\xff\"\n", 1},
		{base + "-", "a: b\n", "", "(standard input): not a Kubernetes object: no kind\n", 1},
		{base + "-", strings.Replace(stock, "- --v=2", "- --nonsense", 1), "", "kubedns (kube-dns): unknown flag: --nonsense\n", 1},
		{base + "-", strings.Replace(stock, "- -k", "- --dnssec", 1), "", "dnsmasq (dnsmasq-nanny): --dnssec: not served", 1},
	} {
		out, stderr, code := run(t, dir, c.in, strings.Fields(c.args)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nwant %s\nerr %s\nwant %s", c.args, code, c.code, out, c.out, stderr, c.err)
			continue
		}
		if code == 0 && strings.Contains(out, " {\n") {
			write(t, filepath.Join(dir, "Corefile"), out)
			if _, stderr, code := run(t, dir, "", "check", "Corefile"); code != 0 {
				t.Errorf("%s: check of the output: got %s, want no errors\n%s", c.args, stderr, out)
			}
		}
	}
}

// A command line after -- uses the environment of convert, a container its own.
func TestConvertEnvironment(t *testing.T) {
	stock := read(t, "../deploy/kube-dns/three-container/deployment.yaml")
	for _, c := range []struct {
		in, want string
		args     []string
	}{
		{"", "skydns_metrics :7 /metrics\n", []string{"convert", "--", "kube-dns"}},
		{stock, "skydns_metrics :10055 /metrics\n", []string{"convert", "-"}},
	} {
		p := program.Command(t, t.TempDir(), c.args...)
		p.Env = append(p.Env, "PROMETHEUS_PORT=7")
		p.Stdin = strings.NewReader(c.in)
		if out, err := p.Output(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: got error %v and\n%s\nwant %s", c.args, err, out, c.want)
		}
	}
}

var update = flag.Bool("update", false, "write docs/reference/convert.md, metrics.md and commands.md; review the difference")

// The examples of the reference page: a block that begins with a file name is that
// file, and a command is followed by its whole output.
func TestConvertReferenceExamples(t *testing.T) {
	dir := t.TempDir()
	named := regexp.MustCompile(`^# (\S+)\n`)
	const page = "../docs/reference/convert.md"
	text, ran := read(t, page), 0
	for _, block := range regexp.MustCompile("(?ms)^```(yaml|console)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if block[1] == "yaml" {
			write(t, filepath.Join(dir, named.FindStringSubmatch(block[2])[1]), block[2])
			continue
		}
		line, want, _ := strings.Cut(block[2], "\n")
		args, ok := strings.CutPrefix(line, "$ seamark ")
		if !ok {
			continue // it needs a cluster
		}
		var both bytes.Buffer
		c := program.Command(t, dir, strings.Fields(args)...)
		c.Stdout, c.Stderr = &both, &both
		err := c.Run()
		if got := both.String(); got != want && *update {
			text = strings.Replace(text, block[0], "```console\n"+line+"\n"+got+"```", 1)
		} else if got != want {
			t.Errorf("%s: got error %v and\n%s\nwant, as on the page,\n%s", line, err, got, want)
		}
		ran++
		if err == nil {
			write(t, filepath.Join(dir, "Corefile"), both.String())
			if _, stderr, code := run(t, dir, "", "check", "Corefile"); code != 0 {
				t.Errorf("%s: check of the output: got %s, want no errors", line, stderr)
			}
		}
	}
	if *update {
		write(t, page, text)
	}
	if ran < 2 {
		t.Errorf("ran %d commands of the page, want at least 2", ran)
	}
	for _, flag := range []string{"config-map", "follow"} {
		if help, _, _ := run(t, dir, "", "convert", "--help"); !strings.Contains(help, "--"+flag) || !strings.Contains(text, "- `--"+flag) {
			t.Errorf("--%s: want it in the help and on the page", flag)
		}
	}
}

func TestConvertConfigMapName(t *testing.T) {
	for _, name := range []string{"a/b/c", "/b", "a/", "a/..", "A"} {
		out, stderr, code := run(t, t.TempDir(), "", "convert", "--config-map", name, "--", "dnsmasq", "--cache-size=1000")
		if want := "--config-map: want [NAMESPACE/]NAME, got \"" + name + "\"\n"; out != "" || code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("seamark convert --config-map %s: got %q, error output %q, status %d, want %q, status 2", name, out, stderr, code, want)
		}
	}
}
