package cmd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/freeport"
)

// The directive that the command writes from an audit passes check, and in place of the old one it allows
// what was queried, and nothing else.
func TestPolicyCommand(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "objects", "pod.yaml"), `{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop, labels: {app: web}}, status: {phase: Running, podIPs: [{ip: 127.0.0.1}]}}`)
	admin := freeport.Reserve(t)
	corefile := func(policy string, port string) string {
		return fmt.Sprintf(".:%s {\n bind 127.0.0.1\n admin 127.0.0.1:%s\n %s\n kubernetes cluster.local {\n pods verified\n manifests objects\n }\n"+
			" template ANY ANY {\n answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n }\n}\n", port, admin, policy)
	}
	ask := func(port, name string) string {
		t.Helper()
		m, err := mdns.Exchange(new(mdns.Msg).SetQuestion(name, mdns.TypeA), net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		return mdns.RcodeToString[m.Rcode]
	}

	port := freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), corefile("policy {\n audit\n group shop {\n namespaces shop\n deny *\n }\n group rest {\n unknown\n deny *\n }\n }", port))
	server := serve(t, dir, "", "-conf", "Corefile")
	out := commandShows(t, dir, "group shop {", "policy", "--admin=127.0.0.1:"+admin)
	if strings.Contains(out, "allow") || strings.Contains(out, "audit\n") {
		t.Errorf("before a query: got\n%s\nwant the groups without audit", out)
	}
	for _, name := range []string{"WWW.example.com.", "api.example.net."} {
		if got := ask(port, name); got != "NOERROR" {
			t.Errorf("%s with audit: got %s, want NOERROR", name, got)
		}
	}
	out = commandShows(t, dir, "allow api.example.net # 1", "policy", "--admin=127.0.0.1:"+admin)
	if !strings.Contains(out, "allow www.example.com # 1\n") || !strings.Contains(out, "group shop/shop/app=web {\n        namespaces shop\n        pods app=web\n") {
		t.Errorf("got\n%s\nwant a group of the workload with both names", out)
	}
	commandShows(t, dir, `"www.example.com": 1`, "policy", "-o", "json", "--admin=127.0.0.1:"+admin)
	server.stop()

	port = freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), corefile(out, port))
	if out, stderr, code := run(t, dir, "", "check", "Corefile"); code != 0 {
		t.Fatalf("check: got status %d and\n%s%s", code, out, stderr)
	}
	server = serve(t, dir, "", "-conf", "Corefile")
	defer server.stop()
	for name, want := range map[string]string{
		"www.example.com.": "NOERROR", "api.example.net.": "NOERROR", "other.example.net.": "NXDOMAIN",
	} {
		if got := ask(port, name); got != want {
			t.Errorf("%s with the written groups: got %s, want %s", name, got, want)
		}
	}
	if _, stderr, code := run(t, dir, "", "policy", "--admin=127.0.0.1:"+admin); code != 1 || stderr != "no server has groups of the directive policy that audit\n" {
		t.Errorf("without audit: got status %d and %q", code, stderr)
	}
}
