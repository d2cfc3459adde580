package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckFromCluster(t *testing.T) {
	corefile := `{"data":{"Corefile":".:53 {\n errors\n whoami\n import /etc/coredns/custom/*.override\n hosts /etc/coredns/NodeHosts {\n  fallthrough\n }\n}\nimport /etc/coredns/custom/*.server\n","NodeHosts":"192.0.2.1 n\n"}}`
	for _, c := range []struct {
		name        string
		objects     map[string]string
		args        string
		out, stderr string
		code        int
	}{
		{"valid", map[string]string{"coredns": corefile}, "", "/etc/coredns/Corefile: OK\n", "", 0},
		{"custom", map[string]string{"coredns": corefile, "coredns-custom": `{"data":{"a.override":"log\n","b.server":"b.example {\n whoam\n}\n"}}`}, "",
			"", "/etc/coredns/custom/b.server:2: unknown directive; did you mean", 1},
		{"custom not imported", map[string]string{"coredns": `{"data":{"Corefile":".:53 {\n whoami\n}\n"}}`, "coredns-custom": `{"data":{"a.override":"log\n"}}`}, "",
			"/etc/coredns/Corefile: OK\n", "warning: the ConfigMap kube-system/coredns-custom exists, but the Corefile does not import it\n", 0},
		{"custom not imported, strict", map[string]string{"coredns": `{"data":{"Corefile":".:53 {\n whoami\n}\n"}}`, "coredns-custom": `{"data":{"a.override":"log\n"}}`}, "--strict",
			"", "the ConfigMap kube-system/coredns-custom exists", 1},
		{"kube-dns", map[string]string{"kube-dns": `{"data":{"stubDomains":"{\"a.example\": [\"192.0.2.1\"]}"}}`}, "", "configmap kube-system/kube-dns: OK\n", "", 0},
		{"kube-dns invalid", map[string]string{"kube-dns": `{"data":{"stubDomains":"x"}}`}, "", "", "configmap kube-system/kube-dns: stubDomains: ", 1},
		{"none", nil, "", "", "the namespace kube-system has no ConfigMap coredns or kube-dns\n", 1},
		{"forbidden", map[string]string{"coredns": "403"}, "", "", "from the API server: the account may not read this\n", 1},
		{"key", map[string]string{"coredns": `{"data":{"Corefile":"","../x":""}}`}, "", "", "\"../x\" cannot be the key of a ConfigMap\n", 1},
		{"JSON", map[string]string{"coredns": `{"data":{"Corefile":".:53 {\n whoam\n}\n"}}`}, "-o json", `"file": "/etc/coredns/Corefile",`, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			objects := map[string]string{}
			for name, object := range c.objects {
				objects[configMaps+name] = object
			}
			args := append([]string{"check", "--from-cluster", "--kubeconfig", fakeAPI(t, objects)}, strings.Fields(c.args)...)
			out, stderr, code := run(t, t.TempDir(), "", args...)
			if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.stderr) || code != c.code || c.out == "" && out != "" || strings.Contains(out+stderr, "seamark-check") {
				t.Errorf("seamark %s: got %q, error output %q, status %d, want %q, %q, status %d", strings.Join(args, " "), out, stderr, code, c.out, c.stderr, c.code)
			}
		})
	}
}

func TestCheckCoreDNS(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "old"), ".:53 {\n    proxy . 192.0.2.1\n    kubernetes cluster.local {\n        upstream\n        resyncperiod 1m\n    }\n}\n")
	write(t, filepath.Join(dir, "own"), ".:53 {\n    kubernetes cluster.local {\n        manifests .\n        wildcards\n    }\n    handover /run/x\n    etcd skydns.local {\n        watch on\n    }\n}\n")
	write(t, filepath.Join(dir, "new"), ".:53 {\n    forward . 192.0.2.1 {\n        max_connect_attempts 2\n    }\n    timeouts {\n        read 3s\n    }\n}\n")
	write(t, filepath.Join(dir, "good"), ".:53 {\n    kubernetes cluster.local {\n        endpoint http://192.0.2.1 http://192.0.2.2\n    }\n}\n")
	for _, c := range []struct {
		args, stderr string
		code         int
	}{
		{"--coredns 1.3.1 old", "", 1}, // Seamark's own errors
		{"--coredns 1.4.0 old", "warning: old:2: proxy: CoreDNS 1.4.0: deprecated: use forward (1.4.0)\n", 1},
		{"--coredns v1.5 old", "old:2: proxy: CoreDNS 1.5.0: removed: use forward (1.5.0)\n", 1},
		{"--coredns 1.6.9 old", "warning: old:5: kubernetes: resyncperiod: CoreDNS 1.6.9: ignored (1.6.0)\n", 1},
		{"--coredns 1.15.0 old", "old:4: kubernetes: upstream: CoreDNS 1.15.0: removed (1.7.0)\n", 1},
		{"--coredns 1.15.0 own", "own:6: handover: CoreDNS 1.15.0: it has no such plugin\n", 1},
		{"--coredns 1.15.0 own", "own:4: kubernetes: wildcards: CoreDNS 1.15.0: it has no such option\n", 1},
		{"--coredns 1.10.0 new", "new:5: timeouts: CoreDNS 1.10.0: not before 1.10.1\n", 1},
		{"--coredns 1.10.1 new", "new:3: forward: max_connect_attempts: CoreDNS 1.10.1: not before 1.13.2\n", 1},
		{"--coredns 1.13.2 new", "", 0},
		{"--coredns 1.6.2 own", "own:8: etcd: watch: CoreDNS 1.6.2: it has no such option\n", 1},
		{"--coredns v1.11.1-eksbuild.4 good", "warning: good:3: kubernetes: endpoint: CoreDNS 1.11.1: only the first URL is used (1.4.0)\n", 0},
		{"--coredns 1.11.1 --strict good", "good:3: kubernetes: endpoint: CoreDNS 1.11.1: only the first URL is used (1.4.0)\n", 1},
		{"--coredns 1.99 good", "seamark: --coredns: the changes of CoreDNS are known up to version 1.15.0, got \"1.99\"\n", 2},
		{"--coredns x good", "seamark: --coredns: want a version such as 1.15.0, got \"x\"\n", 2},
		{"--from-cluster good", "seamark: want no arguments, got \"good\"", 2},
		{"--kubeconfig x good", "seamark: --kubeconfig and --context are for --from-cluster\n", 2},
	} {
		if _, stderr, code := run(t, dir, "", append([]string{"check"}, strings.Fields(c.args)...)...); !strings.Contains(stderr, c.stderr) || code != c.code {
			t.Errorf("seamark check %s: got error output %q, status %d, want %q, status %d", c.args, stderr, code, c.stderr, c.code)
		}
	}
}

// A Corefile of 100 MB is rejected before it is read completely.
func TestCheckHugeCorefile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "huge")
	write(t, file, "")
	if err := os.Truncate(file, 100<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", file}, {"diff", "--against", "127.0.0.1", "--manifests", "../examples", "--conf", file}} {
		out, stderr, code := run(t, ".", "", args...)
		if out != "" || !strings.Contains(stderr, "larger than 64 MB") || code == 0 {
			t.Errorf("seamark %s: got %q, error output %q, status %d, want an error with \"larger than 64 MB\"", strings.Join(args, " "), out, stderr, code)
		}
	}
}
