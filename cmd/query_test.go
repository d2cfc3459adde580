package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestQuery(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "resolv.conf"), "nameserver 192.0.2.1\nsearch shop.svc.cluster.local svc.cluster.local\noptions ndots:5\n")
	server := serve(t, "..", "", "serve", "--manifests", "examples", "--listen", "127.0.0.1:0")
	server.until("  dig @127.0.0.1") // it waits for the data
	defer server.stop()
	address := "127.0.0.1:" + server.ports[0]
	query := func(args string) (string, string, int) {
		return run(t, dir, "", append([]string{"query", "--resolv-conf", "resolv.conf", "--server", address}, strings.Fields(args)...)...)
	}
	out, stderr, code := query("web")
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[0], "web.shop.svc.cluster.local. A: NOERROR from "+address+" in ") ||
		lines[1] != "    web.shop.svc.cluster.local. 5 IN A 10.96.10.10" || !strings.HasPrefix(lines[2], "web.shop.svc.cluster.local. AAAA: NODATA from ") {
		t.Errorf("seamark query web: got %q, %q, status %d", out, stderr, code)
	}
	write(t, filepath.Join(dir, "domain.conf"), "nameserver\ndomain shop.svc.cluster.local\n") // of a machine, not of a node
	if out, stderr, code := query("web A --resolv-conf domain.conf"); code != 0 || stderr != "" || !strings.HasPrefix(out, "web.shop.svc.cluster.local. A: NOERROR") {
		t.Errorf("seamark query web with a line domain: got %q, %q, status %d", out, stderr, code)
	}
	out, stderr, code = query("none.shop SRV -o json")
	var got struct {
		Name  string
		Ndots int
		Found bool
		Steps []struct{ Name, Type, RCode string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Name != "none.shop" || got.Ndots != 5 || got.Found || len(got.Steps) < 3 || got.Steps[1].Name != "none.shop.svc.cluster.local." || got.Steps[1].RCode != "NXDOMAIN" {
		t.Errorf("seamark query none.shop SRV -o json: got %q, error %v", out, err)
	}
	if code != 1 || !strings.HasPrefix(stderr, `"none.shop": `) {
		t.Errorf("seamark query none.shop SRV: got %q, status %d", stderr, code)
	}
	for _, c := range []struct {
		args, err string
		code      int
	}{
		{"web FOO", `seamark: want a record type such as SRV or TYPE65, got "FOO"`, 2},
		{"web TYPE65536", `seamark: want a record type such as SRV or TYPE65, got "TYPE65536"`, 2},
		{"web.shop.svc.cluster.local. TYPE65", `"web.shop.svc.cluster.local.": no such name, or no records of the type`, 1},
		{"web -o yaml", `seamark: --output: want text or json, got "yaml"`, 2},
		{"web --pod a", `seamark: --pod: want NAMESPACE/NAME, got "a"`, 2},
		{"web --pod a/b/c", `seamark: --pod: want NAMESPACE/NAME, got "a/b/c"`, 2},
		{"web --pod a/..", `seamark: --pod: want NAMESPACE/NAME, got "a/.."`, 2},
		{"web --pod a/b?watch=1 --kubeconfig none", `seamark: --pod: want NAMESPACE/NAME, got "a/b?watch=1"`, 2},
		{"web. --server fe80::1%none", `"web.": querying [fe80::1%none]:53: `, 1},
		{"web. --server [fe80::1%none]:5300", `"web.": querying [fe80::1%none]:5300: `, 1},
		{"web --server a.example", `seamark: --server: want IP or IP:PORT, got "a.example"`, 2},
		{"web --resolv-conf none", "reading the resolv.conf: ", 1},
		{"a..b", `"a..b": not a domain name: want labels of 1 to 63 bytes`, 1},
		{"a\ab", `"a\ab": not a domain name: a control character is written as`, 1},
		{"web --pod a/b --kubeconfig none", "reading kubeconfig none: ", 1},
	} {
		if _, stderr, code := query(c.args); code != c.code || !strings.HasPrefix(stderr, c.err) {
			t.Errorf("seamark query %s: got %q, status %d, want %q, status %d", c.args, stderr, code, c.err, c.code)
		}
	}
}

// An empty --server is as none: without the Service kube-dns the error says what to set.
func TestQueryEmptyServer(t *testing.T) {
	kubeconfig := fakeAPI(t, map[string]string{"/api/v1/namespaces/shop/pods/web": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"web"}]}}`})
	for _, args := range []string{"", " --server="} {
		_, stderr, code := run(t, t.TempDir(), "", strings.Fields("query web --pod shop/web --kubeconfig "+kubeconfig+args)...)
		if want := ": set --server\n"; code != 1 || !strings.HasSuffix(stderr, want) {
			t.Errorf("seamark query web --pod shop/web%s: got %q, status %d, want %q at the end, status 1", args, stderr, code, want)
		}
	}
}
