package cmd_test

import (
	"strings"
	"testing"
)

// Values out of range are rejected before a kubeconfig is read.
func TestCanaryFlagRanges(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"status --max-servfail NaN", "--max-servfail: want 0..1, got NaN"},
		{"status --max-servfail -0.1", "--max-servfail: want 0..1, got -0.1"},
		{"promote --max-errors 1.1", "--max-errors: want 0..1, got 1.1"},
		{"promote --max-errors nan", "--max-errors: want 0..1, got NaN"},
		{"status --max-slowdown 0", "--max-slowdown: want more than 0 and at most 1000, got 0"},
		{"status --max-slowdown inf", "--max-slowdown: want more than 0 and at most 1000, got +Inf"},
		{"status --min-p99 -1ms", "--min-p99: want 0s..1m, got -1ms"},
		{"status --interval 0s", "--interval: want 1ms..24h, got 0s"},
		{"status --min-queries 0", "--min-queries: want 1 or more, since without queries there is nothing to compare, got 0"},
		{"status --metrics-port 65536", "--metrics-port: want 0..65535, got 65536"},
		{"start --image registry.invalid/seamark:1 --replicas -1", "--replicas: want 0..1000, got -1"},
		{"rollback --timeout 0s", "--timeout: want 1s..24h, got 0s"},
		{"status --namespace a/b", "--namespace: \"a/b\": "},
		{"status --service ../b", "--service: \"../b\": "},
		{"status --deployment a?b", "--deployment: \"a?b\": "},
		{"start --image registry.invalid/seamark:1 --name A", "--name: \"A\": "},
	} {
		out, stderr, code := run(t, t.TempDir(), "", append([]string{"canary"}, strings.Fields(c.args+" --kubeconfig none")...)...)
		_, text, _ := strings.Cut(stderr, "seamark: ")
		if out != "" || code != 2 || !strings.HasPrefix(text, c.want) {
			t.Errorf("seamark canary %s: got %q, error output %q, status %d, want %q, status 2", c.args, out, stderr, code, c.want)
		}
	}
}
