package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/observe/explain"
)

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	folder, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "Corefile"), "example.org:53 {\n whoami\n health :99999\n}\n")
	write(t, filepath.Join(dir, "bad"), "example.org:53 {\n nosuch\n}\n")
	for _, c := range []struct {
		args, out, err string
		code           int
	}{
		{"web.shop.svc.cluster.local --manifests EXAMPLES", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.10.10\n    web.shop.svc.cluster.local. 5 IN A 10.96.10.10\n", "", 0},
		{"wbe.shop.svc.cluster.local --manifests EXAMPLES", "  did you mean web.shop.svc.cluster.local.\n", "", 1},
		{"_http._tcp.web.shop.svc.cluster.local srv --manifests EXAMPLES", "NOERROR by kubernetes", "", 0},
		{"www.example.org", "NODATA by whoami", "", 1}, // the Corefile of the directory; its health opens no port
		{"www.example.org --server dns://:54", "", "no such server: \"dns://:54\"; the servers are dns://:53", 1},
		{"www.example.org --conf bad", "", "bad:2: unknown directive \"nosuch\"", 1},
		{"www.example.org --conf bad --manifests EXAMPLES", "", "set only one of --manifests and --conf", 2},
		{"www.example.org --manifests nosuch", "", "nosuch", 1},
		{"a..example.org", "", "want a domain name: \"a..example.org\": empty label", 2},
		{"www.example.org NONE", "", "want a record type such as SRV or TYPE65, got \"NONE\"", 2},
		{"www.example.org --client x", "", "--client: want an IP address, got \"x\"", 2},
		{"www.example.org --pod x", "", "--pod: want NAMESPACE/NAME, got \"x\"", 2},
		{"www.example.org --timeout 0s", "", "--timeout: want a positive duration, got 0s", 2},
	} {
		args := strings.ReplaceAll(c.args, "EXAMPLES", folder)
		out, errors, code := run(t, dir, "", append([]string{"explain"}, strings.Fields(args)...)...)
		if !strings.Contains(out, c.out) || !strings.Contains(errors, c.err) || code != c.code {
			t.Errorf("explain %s: got status %d and\n%s%s, want %d, %q and %q", c.args, code, out, errors, c.code, c.out, c.err)
		}
	}
	out, _, _ := run(t, dir, "", "explain", "web.shop.svc.cluster.local", "-o", "json", "--manifests", folder)
	var results []explain.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 1 || results[0].RCode != "NOERROR" {
		t.Errorf("json: got %s and error %v, want one result", out, err)
	}
}

// With --pod the names of the pod's search path are explained, from the pod's address.
func TestExplainPod(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "objects", "all.yaml"), `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec: {template: {spec: {containers: [{name: c}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: other}
spec: {containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop}
spec: {containers: [{name: c}]}
status: {podIP: 10.1.0.5}
---
apiVersion: v1
kind: Pod
metadata: {name: literal, namespace: shop}
spec: {containers: [{name: c}], dnsConfig: {options: [{name: ndots, value: "1"}]}}
`)
	write(t, filepath.Join(dir, "objects", "broken.yaml"), "kind: [")
	write(t, filepath.Join(dir, "Corefile"), ". {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  manifests objects\n }\n}\n")
	for _, c := range []struct {
		args string
		want []string // the first lines of the explanations, and the summaries
		code int
		err  string
	}{
		{"web --pod shop/cart", []string{
			"web.shop.svc.cluster.local. A from 10.1.0.5 at dns://:53", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10",
		}, 0, ""},
		{"web.shop --pod shop/cart", []string{
			"web.shop.shop.svc.cluster.local. A from 10.1.0.5 at dns://:53", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named shop",
			"web.shop.svc.cluster.local. A from 10.1.0.5 at dns://:53", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10",
		}, 0, ""},
		{"web --pod other/cart --client 10.1.0.6", []string{
			"web.other.svc.cluster.local. A from 10.1.0.6 at dns://:53", "NXDOMAIN by kubernetes in zone .: namespace other has no Service named web",
			"web.svc.cluster.local. A from 10.1.0.6 at dns://:53", "NXDOMAIN by kubernetes in zone .: namespace web does not exist, and no Service is in it",
			"web.cluster.local. A from 10.1.0.6 at dns://:53", "NXDOMAIN by kubernetes in zone .: the zone has only names below svc and pod",
			"web. A from 10.1.0.6 at dns://:53",
		}, 1, ""},
		{"web.shop.svc.cluster.local. --pod shop/cart", []string{
			"web.shop.svc.cluster.local. A from 10.1.0.5 at dns://:53", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10",
		}, 0, ""},
		{"web.shop --pod shop/literal", []string{ // with ndots:1 the name itself is first
			"web.shop. A from 127.0.0.1 at dns://:53",
			"web.shop.shop.svc.cluster.local. A from 127.0.0.1 at dns://:53", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named shop",
			"web.shop.svc.cluster.local. A from 127.0.0.1 at dns://:53", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10",
		}, 0, ""},
		{"web --pod shop/none", nil, 1, "objects has no Pod shop/none"},
	} {
		for _, source := range []string{"--manifests objects", "--conf Corefile"} {
			out, errors, code := run(t, dir, "", append(strings.Fields("explain "+source), strings.Fields(c.args)...)...)
			var got []string
			for line := range strings.Lines(out) {
				if line = strings.TrimSpace(line); strings.Contains(line, " at dns://:53") || strings.Contains(line, " by kubernetes in zone ") {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, c.want) || code != c.code || !strings.Contains(errors, c.err) {
				t.Errorf("explain %s %s: got status %d, %q and\n%s\nwant %d, %q and\n%s", source, c.args, code, errors, strings.Join(got, "\n"), c.code, c.err, strings.Join(c.want, "\n"))
			}
		}
	}
}

// A Pod is found in a folder that is a link, as ..data of a mounted ConfigMap, and beside links to nothing and the files
// of editors, which the server ignores, too.
func TestExplainPodOfLinkedFolder(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "..2026")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	pod := func(address string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: cart, namespace: shop}\nspec: {containers: [{name: c}]}\nstatus: {podIP: " + address + "}\n"
	}
	write(t, filepath.Join(folder, "pods.yaml"), pod("10.1.0.5"))
	for _, old := range []string{".pods.yaml", "#pods.yaml", "~pods.yaml"} {
		write(t, filepath.Join(folder, old), pod("10.1.0.6"))
	}
	for link, to := range map[string]string{
		filepath.Join(folder, ".#pods.yaml"): "user@host.1234:5678", filepath.Join(folder, "nothing.yaml"): "none.yaml",
		filepath.Join(dir, "objects"): "..2026",
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}

	write(t, filepath.Join(dir, "Corefile"), ". {\n kubernetes cluster.local {\n  manifests objects\n }\n}\n")
	out, stderr, _ := run(t, dir, "", "explain", "--conf", "Corefile", "web.shop.svc.cluster.local.", "--pod", "shop/cart")
	if !strings.HasPrefix(out, "web.shop.svc.cluster.local. A from 10.1.0.5 at ") {
		t.Errorf("got %q and\n%s\nwant an explanation for 10.1.0.5", stderr, out)
	}
}
