package cmd_test

import (
	"strings"
	"testing"
)

func TestKube2skyCommandLine(t *testing.T) {
	for _, c := range []struct {
		args, out, err string // what they contain
		code           int
	}{
		{"kube2sky --help", "--path-prefix", "", 0},
		{"kube2sky --version -logtostderr -v=2 --etcd-server=http://a:1 --etcd_servers=http://b:2", "Seamark-test\nlinux/", "", 0},
		{"kube2sky --version --etcd-quorum-read=true --kube_master_url=http://a", "Seamark-test\n", "", 0},
		{"kube2sky --domain=a..b", "", `--domain: want a name such as cluster.local, got "a..b"`, 2},
		{"kube2sky --domain=10.0.0.1", "", "--domain: want a name", 2},
		{"kube2sky --path-prefix=/skydns", "", `--path-prefix: want words separated by slashes`, 2},
		{"kube2sky --path-prefix=seamark/names", "", `not seamark as the first`, 2},
		{"kube2sky --etcd-servers=ftp://a", "", `want a URL such as https://10.0.0.1:2379`, 2},
		{"kube2sky --etcd-servers=http://a:1 --etcd-cafile=ca", "", "tls needs https:// endpoints", 2},
		{"kube2sky --etcd-servers=https://a:1 --etcd-certfile=a", "", "a certificate needs its key", 2},
		{"kube2sky --etcd-password=a", "", "a password needs a user", 2},
		{"kube2sky --etcd-mutation-timeout=0s", "", "--etcd-mutation-timeout: want a duration such as 10s, got 0s", 2},
		{"kube2sky --lease-duration=1s", "", "--lease-duration: want 2s to 1h, got 1s", 2},
		{"kube2sky --lease-duration=2500ms", "", "--lease-duration: want whole seconds, got 2.5s", 2},
		{"kube2sky --kubecfg-file=a --kube-master-url=http://b", "", "set only one", 2},
		{"kube2sky --kube-master-url=b", "", "want a URL such as https://10.0.0.1:6443", 2},
		{"kube2sky --healthz-port=70000", "", "want a port of 0..65535", 2},
		{"kube2sky cluster.local", "", "seamark: want no arguments, got \"cluster.local\"", 2},
	} {
		out, stderr, code := run(t, t.TempDir(), "", strings.Fields(c.args)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nerr %s", c.args, code, c.code, out, stderr)
		}
	}
}
