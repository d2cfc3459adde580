package cmd_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// An error of the command node names the flag, the file or the line.
func TestNodeErrors(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "Corefile.base")
	write(t, base, ".:53 {\n    forward . __PILLAR__CLUSTER__DNS__\n}\n")
	captured := filepath.Join(dir, "Corefile")
	write(t, captured, ".:53 {\n    whoami\n    capture tcx\n}\n")
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"node"}, "-localip: want the addresses to serve", 2},
		{[]string{"-localip", "169.254.20.10", "-basecorefile", dir + "/none", "-corefile", dir + "/none"}, "reading the template " + dir + "/none: file does not exist", 1},
		{[]string{"-localip=169.254.20.10", "-basecorefile", base}, base + ":2: __PILLAR__CLUSTER__DNS__: the environment variable KUBE_DNS_SERVICE_HOST has no address", 1},
		{[]string{"node", "-localip=169.254.20.10", "-capture=none", "-conf", captured}, captured + ":3: capture: want none, the value of the flag -capture, got tcx", 1},
		{[]string{"-localip=169.254.20.10", "-conf", captured}, "-capture=tcx: want a ClusterIP in -localip", 2},
		{[]string{"-conf", captured}, captured + ":3: capture: only seamark node captures queries of pods: remove the line", 1},
		{[]string{"check", "--strict", captured}, captured + ":3: capture: only seamark node accepts it", 1},
		{[]string{"node-cache", "-localip=x"}, "-localip: want IP addresses", 2},
	} {
		if _, errs, code := run(t, dir, "", c.args...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: got exit status %d and %q, want %d and %q", c.args, code, errs, c.code, c.want)
		}
	}
}
