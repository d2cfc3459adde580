package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCheckOutput(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good"), ".:0 {\n bind 127.0.0.1\n whoami\n}\n")
	write(t, filepath.Join(dir, "bad"), ".:0 {\n whoam\n kubernetes {\n  ttl x\n }\n}\n")
	write(t, filepath.Join(dir, "doubtful"), ".:0 {\n bind 127.0.0.1\n cache 30s\n forward . 192.0.2.1\n}\n")
	for _, c := range []struct {
		args, out string
		code      int
	}{
		{"--output json good", "{\n  \"findings\": []\n}\n", 0},
		{"--output json nowhere", `{"findings": [{"file": "nowhere", "level": "error", "message": "reading the Corefile: open nowhere: no such file or directory"}]}`, 1},
		{"--output json bad", `{"findings": [
			{"file": "bad", "line": 2, "level": "error", "message": "unknown directive \"whoam\"; did you mean \"whoami\"?"},
			{"file": "bad", "line": 4, "level": "error", "directive": "kubernetes: ttl", "message": "want 0..3600, got \"x\""}]}`, 1},
		{"--output github bad", "::error file=bad,line=2::unknown directive \"whoam\"; did you mean \"whoami\"?\n::error file=bad,line=4::kubernetes: ttl: want 0..3600, got \"x\"\n", 1},
		{"-o sarif good doubtful", `{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [{
			"tool": {"driver": {"name": "seamark", "version": "test"}},
			"results": [{"ruleId": "cache", "level": "warning", "message": {"text": "cache: 30s is a zone here, not a TTL: write a TTL as seconds without a unit"},
				"locations": [{"physicalLocation": {"artifactLocation": {"uri": "doubtful"}, "region": {"startLine": 3}}}]}]}]}`, 0},
		{"--strict -o json doubtful", `{"findings": [{"file": "doubtful", "line": 3, "level": "error", "directive": "cache", "message": "30s is a zone here, not a TTL: write a TTL as seconds without a unit"}]}`, 1},
	} {
		out, stderr, code := run(t, dir, "", append([]string{"check"}, strings.Fields(c.args)...)...)
		if got, want := normal(out), normal(c.out); !reflect.DeepEqual(got, want) || code != c.code {
			t.Errorf("seamark check %s: got\n%s\n%s, status %d; want\n%s\nstatus %d", c.args, out, stderr, code, c.out, c.code)
		}
	}
	if _, stderr, code := run(t, dir, "", "check", "--output", "xml", "good"); code != 2 || !strings.Contains(stderr, `--output: want text, json, sarif or github, got "xml"`) {
		t.Errorf("seamark check --output xml: got %q, status %d", stderr, code)
	}
}

// normal returns text, parsed if it is JSON.
func normal(text string) any {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	return value
}
