package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Commands find the kubeconfig, and name it in errors.
func TestKubeconfigs(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	const config = `apiVersion: v1
kind: Config
current-context: %s
clusters: [{name: %s, cluster: {server: "https://127.0.0.1:%d"}}]
contexts: [{name: %[2]s, context: {cluster: %[2]s}}]
`
	write(t, filepath.Join(dir, "a"), fmt.Sprintf(config, "b", "a", 1))
	write(t, filepath.Join(dir, "b"), fmt.Sprintf(config, "", "b", 2))
	write(t, filepath.Join(dir, "empty"), "")
	write(t, filepath.Join(dir, "certificate"), strings.Replace(fmt.Sprintf(config, "a", "a", 1), `:1"`, `:1", certificate-authority-data: Zm9v`, 1))
	t.Setenv("HOME", dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	const refused = ": dial tcp 127.0.0.1:%d: connect: connection refused\n"
	for _, c := range []struct{ files, args, err string }{
		{"", "", "no kubeconfig found: set --kubeconfig; that of k3s is /etc/rancher/k3s/k3s.yaml\n"},
		{"none:none2", "", "the file of KUBECONFIG does not exist: none:none2\n"},
		{"none", "--kubeconfig none2", "reading kubeconfig none2: open none2: no such file or directory\n"},
		{"none:a", "--context a", "connecting to the API server https://127.0.0.1:1 of kubeconfig a" + fmt.Sprintf(refused, 1)},
		{"none:a", "", "reading kubeconfig a: invalid configuration: "},
		{"a:b", "", "connecting to the API server https://127.0.0.1:2 of kubeconfig b" + fmt.Sprintf(refused, 2)},
		{"b:a", "--context a", "connecting to the API server https://127.0.0.1:1 of kubeconfig a" + fmt.Sprintf(refused, 1)},
		{"a:b", "--context c", "no context \"c\" in the kubeconfigs a, b\n"},
		{"empty", "", "reading kubeconfig empty: it has no current context, or that context has no cluster\n"},
		{"certificate", "", "reading kubeconfig certificate: unable to load root certificates"},
	} {
		t.Setenv("KUBECONFIG", strings.ReplaceAll(c.files, ":", string(os.PathListSeparator)))
		for _, command := range []string{"doctor", "check --from-cluster", "canary status", "diff --against 127.0.0.1", "query web --pod a/b"} {
			_, stderr, code := run(t, dir, "", strings.Fields(command+" "+c.args)...)
			if got := strings.TrimPrefix(stderr, "seamark: "); !strings.HasPrefix(got, c.err) || code == 0 {
				t.Errorf("KUBECONFIG=%s seamark %s %s: got %q, status %d, want %q", c.files, command, c.args, stderr, code, c.err)
			}
		}
	}
}
