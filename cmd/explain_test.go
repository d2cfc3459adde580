package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/internal/explain"
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
