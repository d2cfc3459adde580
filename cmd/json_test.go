package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// plan, resolvconf and convert write the objects that docs/reference/inspect-json.md describes.
func TestJSONWithoutServer(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), "example.org:1053 {\n log\n hosts {\n  192.0.2.1 a.example.org\n }\n whoami\n}\n")
	write(t, filepath.Join(dir, "node.conf"), "nameserver 192.0.2.1\nsortlist 192.0.2.0\n")
	page := read(t, "../docs/reference/inspect-json.md")
	for _, c := range []struct{ args, want string }{
		{"plan Corefile", `[{"address": "dns://:1053", "zone": "example.org.", "file": "Corefile", "line": 1, "handlers": [
			{"name": "hosts", "text": "answers at once", "edits": false},
			{"name": "whoami", "text": "never reached: hosts on line 3 answers before it (add fallthrough to hosts)", "edits": false, "hidden": "all"}
		], "seen_by": ["log"]}]`},
		{"resolvconf --node-file node.conf --cluster-dns 10.96.0.10 --cluster-domain k8s.example --dns-policy ClusterFirst",
			`{"nameservers": ["10.96.0.10"], "search": ["default.svc.k8s.example", "svc.k8s.example", "k8s.example"],
			"options": ["ndots:5"], "comments": ["node.conf:2: the kubelet ignores sortlist"]}`},
		{"resolvconf --node-file= --cluster-dns 10.96.0.10 --cluster-domain=",
			`{"nameservers": ["10.96.0.10"], "search": [], "options": ["ndots:5"], "comments": []}`},
		{"convert -- dnsmasq --conf-file= --cache-size=1000 --server=192.0.2.53 --user=nobody", `{"corefile": "", "sources": "a command line: dnsmasq",
			"notes": ["not part of a Corefile, since they affect the process or its log: --user=nobody"]}`},
	} {
		args := strings.Fields(c.args)
		out, stderr, code := run(t, dir, "", append([]string{args[0], "--output=json"}, args[1:]...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: got status %d and error output %q, want 0 and none", c.args, code, stderr)
		}
		got, want := decoded(t, out), decoded(t, c.want)
		if o, ok := got.(map[string]any); ok && args[0] == "convert" { // the text output is the Corefile
			text, _, _ := run(t, dir, "", args...)
			if o["corefile"] != text {
				t.Errorf("%s: got the Corefile %q, want %q", c.args, o["corefile"], text)
			}
			o["corefile"] = ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.args, out, c.want)
		}

		for _, member := range members(got) {
			if !strings.Contains(page, `"`+member+`"`) && !strings.Contains(page, "`"+member+"`") {
				t.Errorf("docs/reference/inspect-json.md lacks the member %q of %s", member, args[0])
			}
		}
		if _, stderr, code := run(t, dir, "", append([]string{args[0], "--output=yaml"}, args[1:]...)...); code != 2 || !strings.Contains(stderr, "--output: want text or json, got \"yaml\"") {
			t.Errorf("%s --output yaml: got status %d and error output %q, want 2 and the values", args[0], code, stderr)
		}
	}
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return value
}

// members returns the names of the members of a value, at all levels.
func members(value any) (names []string) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			names = append(names, members(element)...)
		}
	case map[string]any:
		for name, member := range v {
			names = append(append(names, name), members(member)...)
		}
	}
	return names
}
