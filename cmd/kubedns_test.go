package cmd_test

import (
	"os"
	"strings"
	"testing"
)

// The flags of kubernetes' own manifest are understood, and what they mean is a
// Corefile that can be planned.
func TestKubeDNSCorefile(t *testing.T) {
	dir := t.TempDir()
	out, errs, code := run(t, dir, "", "kube-dns", "--domain=cluster.local.", "--dns-port=10053", "--config-dir=/kube-dns-config", "--v=2",
		"--logtostderr=true", "-config_period=5s", "--print-corefile")
	if code != 0 || !strings.HasPrefix(out, ".:10053 {\n") {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	if err := os.WriteFile(dir+"/Corefile", []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := run(t, dir, "", "check", "Corefile"); code != 0 {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

func TestKubeDNSFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--dns-port=65536", `invalid argument "65536" for "--dns-port" flag: want a port of 0..65535`},
		{"--domain=a_b. --dns-bind-address=x", "--dns-bind-address: want an IP address, got \"x\"\n--domain: want a name of DNS-1123 labels"},
		{"--config-map=a --config-dir=b", "--config-map and --config-dir: want one of them"},
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"word", `unknown command "word"`},
	} {
		_, errs, code := run(t, t.TempDir(), "", append([]string{"kube-dns"}, strings.Fields(c.args)...)...)
		if code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s", c.args, code, errs)
		}
	}
}
