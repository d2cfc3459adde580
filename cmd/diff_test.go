package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// A group is a group of differences in the output of diff.
type group struct {
	Cause, Subject, Type, Reason string
	Count                        int
	Example                      struct {
		Name, Type         string
		Expected, Received []string
	}
}

type diffReport struct {
	Names, Queries, Same, Different, Documented int
	Groups                                      []group
}

// diffFolder compares a server with a Corefile with the folder of examples.
func diffFolder(t *testing.T, corefile string, args ...string) (report diffReport, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "Corefile"), strings.ReplaceAll(corefile, "EXAMPLES", examples))
	server := serve(t, dir, "", "-conf", "Corefile", "--listen", "127.0.0.1:0")
	defer server.stop()
	chaintest.Eventually(t, "the data are complete", func() bool {
		reply, err := ask("udp", server.ports[0], "web.shop.svc.cluster.local.", dns.TypeMX)
		return err == nil && reply.Rcode != dns.RcodeServerFailure
	})
	args = append([]string{"diff", "--against", "127.0.0.1:" + server.ports[0], "--manifests", examples, "-o", "json", "--quiet"}, args...)
	out, stderr, code := run(t, dir, "", args...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("seamark diff: error %v in output %q, error output %q, status %d, want JSON", err, out, stderr, code)
	}
	return report, stderr, code
}

// plain is the Corefile of a server whose answers are the expected ones.
const plain = `. {
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        manifests EXAMPLES
        pods insecure
        ttl 30
    }
}
`

func TestDiffSame(t *testing.T) {
	for _, transport := range []string{"udp", "tcp"} {
		report, stderr, code := diffFolder(t, plain, "--transport", transport)
		if code != 0 || !strings.HasPrefix(stderr, "Comparing with the options of kubeadm's Corefile, since a folder has no Corefile.") || report.Different+report.Documented != 0 || report.Same != report.Queries || report.Queries < 300 {
			t.Errorf("seamark diff over %s: got %+v, error output %q, status %d, want no differences", transport, report, stderr, code)
		}
	}
}

// Without --conf, the options of serve --manifests are recognized by their TTL.
func TestDiffServeManifests(t *testing.T) {
	report, stderr, code := diffFolder(t, strings.NewReplacer("        pods insecure\n", "", "        ttl 30\n", "").Replace(plain))
	if code != 0 || !strings.HasPrefix(stderr, "Comparing with the default options of the directive kubernetes (the server's SOA record has the TTL 5), since a folder has no Corefile.") || report.Different+report.Documented != 0 || report.Queries < 300 {
		t.Errorf("seamark diff: got %+v, error output %q, status %d, want no differences", report, stderr, code)
	}
}

// With compatible kube-dns, endpoints have the labels of kube-dns.
func TestDiffKubeDNS(t *testing.T) {
	long(t)
	t.Parallel()
	compatible := strings.Replace(plain, "ttl 30", "ttl 30\n        compatible kube-dns", 1)
	file := filepath.Join(t.TempDir(), "Corefile")
	write(t, file, compatible)
	report, stderr, code := diffFolder(t, compatible, "--conf", file)
	if code != 0 || stderr != "" || report.Same != report.Queries {
		t.Errorf("seamark diff of two servers with compatible kube-dns: got %+v, error output %q, status %d, want no differences", report, stderr, code)
	}
	report, _, code = diffFolder(t, plain, "--conf", file)
	if i := slices.IndexFunc(report.Groups, func(g group) bool {
		return g.Subject == "hash of a ClusterIP" && g.Cause == "NXDOMAIN instead of records"
	}); code != 1 || i < 0 {
		t.Errorf("seamark diff of a server without compatible kube-dns: got %+v, status %d, want differences of the hash of a ClusterIP", report, code)
	}
}

// TestDiffPlanted runs servers with one difference each from the Corefile of --conf.
func TestDiffPlanted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Corefile")
	write(t, file, plain)
	with := func(options string) string {
		return strings.Replace(plain, "    kubernetes", options+"\n    kubernetes", 1)
	}
	for _, c := range []struct{ name, corefile, subject, cause string }{
		{"other address", with("hosts {\n 192.0.2.1 web.shop.svc.cluster.local\n fallthrough\n}"), "Service", "other records"},
		{"name missing", with("template IN A web.shop.svc.cluster.local {\n rcode NXDOMAIN\n}"), "Service", "NXDOMAIN instead of records"},
		{"failure", with("template IN AAAA web.shop.svc.cluster.local {\n rcode SERVFAIL\n}"), "Service", "SERVFAIL instead of NODATA"},
		{"refused", with("acl web.shop.svc.cluster.local {\n block type SRV\n}"), "Service", "REFUSED instead of records"},
		{"TTL", strings.Replace(plain, "ttl 30", "ttl 60", 1), "Service", "TTL 60 instead of 30"},
		{"no pods", strings.Replace(plain, "pods insecure", "pods disabled", 1), "pod address", "NXDOMAIN instead of records"},
		{"no endpoints", strings.Replace(plain, "ttl 30", "ttl 30\nnoendpoints", 1), "endpoint", "NXDOMAIN instead of records"},
		{"answer of every name", with("template IN A shop.svc.cluster.local {\n match ^seamark\n answer \"{{ .Name }} 30 IN A 192.0.2.1\"\n fallthrough\n}"), "name that does not exist", "records instead of NXDOMAIN"},
		{"lower TTL", strings.Replace(plain, "ttl 30", "ttl 5", 1), "all names", "TTL 5 instead of 30"},
		{"port", with("template IN SRV web.shop.svc.cluster.local {\n answer \"{{ .Name }} 30 IN SRV 0 100 81 web.shop.svc.cluster.local.\"\n}"), "Service", "other SRV ports"},
		{"PTR", with("template IN PTR 10.10.96.10.in-addr.arpa {\n answer \"{{ .Name }} 30 IN PTR x.shop.svc.cluster.local.\"\n}"), "reverse name of a Service", "other records"},
		{"AA", with("header {\n response clear aa\n}"), "Service", "no AA flag"},
		{"owner name", with("template IN A web.shop.svc.cluster.local {\n answer \"x.cluster.local. 30 IN A 10.96.10.10\"\n}"), "Service", "other owner names"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			report, stderr, code := diffFolder(t, c.corefile, "--conf", file)
			for _, g := range report.Groups {
				if first, _, _ := strings.Cut(g.Type, ","); g.Example.Type != first {
					t.Errorf("%s: got an example of the type %s, want the first of %s", g.Cause, g.Example.Type, g.Type)
				}
			}
			i := slices.IndexFunc(report.Groups, func(g group) bool { return g.Subject == c.subject && g.Cause == c.cause && g.Reason == "" })
			if code != 1 || stderr != "" || i < 0 {
				t.Errorf("seamark diff: got %+v, error output %q, status %d, want %s: %s", report, stderr, code, c.subject, c.cause)
			}
		})
	}
}

// The commands in the how-to guides have flags that exist.
func TestGuideCommands(t *testing.T) {
	for _, page := range []string{"compare.md", "check-a-corefile.md"} {
		commands := regexp.MustCompile("(?m)(?:\\$ |`)seamark ((?:diff|doctor|check|plan|fmt)[^`|\\n]*)").FindAllStringSubmatch(read(t, "../docs/how-to/"+page), -1)
		if len(commands) < 4 {
			t.Errorf("%s: got the commands %q, want at least four", page, commands)
		}
		for _, c := range commands {
			if _, stderr, code := run(t, t.TempDir(), "", append(strings.Fields(c[1]), "--help")...); code != 0 {
				t.Errorf("%s: seamark %s: got %q, status %d", page, c[1], stderr, code)
			}
		}
	}
}

func TestDiffUsage(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), plain)
	write(t, filepath.Join(dir, "empty"), ". {\n    whoami\n}\n")
	ending := fakeAPI(t, map[string]string{systemPods + "k8s-app=kube-dns": `{"items":[{"metadata":{"name":"a","namespace":"kube-system","deletionTimestamp":"2026-11-30T00:00:00Z"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`})
	for _, c := range []struct {
		args, stderr string
	}{
		{"", "seamark: want --against HOST[:PORT]\n"},
		{"--against 127.0.0.1 --transport tls", "seamark: --transport: want udp, tcp or port-forward, got \"tls\"\n"},
		{"--against 127.0.0.1 --fail-on x", "seamark: --fail-on: want diff, all or none, got \"x\"\n"},
		{"--against 127.0.0.1 --timeout 1h", "seamark: --timeout: want 1ms..1m, got 1h0m0s\n"},
		{"--transport port-forward --manifests .", "seamark: --transport port-forward needs an API server"},
		{"--transport port-forward --against 127.0.0.1 --kubeconfig none", "seamark: --against: want NAMESPACE/POD[:PORT]"},
		{"--transport port-forward --against a/b:0 --kubeconfig none", "seamark: --against: want a port of 1..65535"},
		{"--transport port-forward --kubeconfig " + ending, "seamark: no ready pod has the label k8s-app=kube-dns"},
		{"--transport port-forward --kubeconfig none", "seamark: reading kubeconfig none: open none: no such file"},
		{"--against 127.0.0.1 --rate 0", "seamark: --rate: want 1..1000000, got 0\n"},
		{"--against 127.0.0.1 --manifests none", "seamark: --manifests: open none: no such file or directory\n"},
		{"--against 127.0.0.1:70000 --manifests .", "seamark: --against: want HOST[:PORT] with a port of 1..65535, got \"127.0.0.1:70000\"\n"},
		{"--against :53 --manifests .", "seamark: --against: want HOST[:PORT]"},
		{"--against 127.0.0.1 --manifests . --conf none", "seamark: reading the Corefile: open none: no such file or directory\n"},
		{"--against 127.0.0.1 --manifests . --conf empty", "seamark: empty: no kubernetes directive\n"},
		{"--against 127.0.0.1 --manifests . --conf Corefile", "seamark: the cluster has no Service to compare\n"},
		{"--against 127.0.0.1 --manifests . --kubeconfig x", "seamark: set only one of --manifests and --kubeconfig\n"},
	} {
		if out, stderr, code := run(t, dir, "", append([]string{"diff"}, strings.Fields(c.args)...)...); out != "" || !strings.Contains(stderr, c.stderr) || code != 2 {
			t.Errorf("seamark diff %s: got output %q, error output %q, status %d, want %q, status 2", c.args, out, stderr, code, c.stderr)
		}
	}
}
