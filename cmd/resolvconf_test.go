package cmd_test

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/program"
)

func TestResolvconf(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "node.conf"), "nameserver 192.0.2.1\nsearch node.example\n")
	write(t, filepath.Join(dir, "odd.conf"), "nameserver 192.0.2.1\nsortlist 192.0.2.0\n")
	write(t, filepath.Join(dir, "bad.conf"), "search a\nnameserver\n")
	write(t, filepath.Join(dir, "none.json"), `{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"dnsPolicy": "None"}}`)
	write(t, filepath.Join(dir, "bad.yaml"), "kind: Job\nspec:\n  dnsPolicy: Default\n  template:\n    spec: {hostNetwork: 1}\n")
	const (
		host    = "nameserver 192.0.2.1\nsearch node.example\n"
		cluster = "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local node.example\noptions ndots:5\n"
		pod     = "kind: CronJob\nmetadata: {namespace: shop}\nspec: {jobTemplate: {spec: {template: {spec: {hostNetwork: false}}}}}\n"
	)
	for _, c := range []struct {
		args, in, out, err string // out in full; what err contains
		code               int
	}{
		{"--node-file node.conf --cluster-dns 10.96.0.10", "", cluster, "", 0},
		{"--node-file node.conf -cluster-dns 10.96.0.10", "", cluster, "", 0},
		{"--node-file node.conf --cluster-dns 10.96.0.10 --dns-policy Default", "", host, "", 0},
		{"--node-file node.conf --cluster-dns 10.96.0.10 --dns-policy ClusterFirstWithHostNet --host-network", "", cluster, "", 0},
		{"--node-file node.conf --cluster-dns 10.96.0.10 --host-network", "", host, "# hostNetwork changes dnsPolicy ClusterFirst to Default", 0},
		{"--node-file= --cluster-dns 10.96.0.10,fd00::a --cluster-dns 10.96.0.11 --cluster-domain K8s.example. --namespace a", "",
			"nameserver 10.96.0.10\nnameserver fd00::a\nnameserver 10.96.0.11\nsearch a.svc.K8s.example. svc.K8s.example. K8s.example.\noptions ndots:5\n", "", 0},
		{"--node-file node.conf --cluster-dns 10.96.0.10 --cluster-domain=", "", "nameserver 10.96.0.10\nsearch node.example\noptions ndots:5\n", "", 0},
		{"--node-file= --cluster-dns 10.96.0.10 --host-network --pod -", pod,
			"nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
			"# --host-network true is ignored: CronJob shop/(no name) sets false\n", 0},
		{"--node-file odd.conf --dns-policy Default", "", "nameserver 192.0.2.1\n", "# odd.conf:2: the kubelet ignores sortlist\n", 0},

		{"--node-file node.conf --pod -", "", "", "(standard input): no pod or pod template, only no objects: want", 1},
		{"--node-file node.conf --pod none.json", "", "", "none.json:1: Pod a: dnsPolicy None needs a dnsConfig with at least one nameserver\n", 1},
		{"--node-file node.conf --dns-policy None", "", "", "dnsPolicy None needs a dnsConfig with at least one nameserver: set a manifest", 1},
		{"--node-file bad.conf --pod bad.yaml", "", "", "# bad.yaml:3: spec.dnsPolicy is ignored: the pod's field is spec.template.spec.dnsPolicy\n" +
			"bad.yaml:5: Job (no name): spec.template.spec.hostNetwork: want true or false, got the number 1\n" +
			"bad.conf:2: nameserver without an address: ", 1},
		{"--node-file node.conf --pod nowhere", "", "", "reading the manifest: open nowhere: no such file or directory\n", 1},
		{"--node-file nowhere", "", "", "reading the resolv.conf: open nowhere: no such file or directory: set another file with --node-file, or none with --node-file=\n", 1},
		{"--node-file .", "", "", "reading the resolv.conf: read .: is a directory\n", 1},

		{"--cluster-dns 10.96.0.10,x --cluster-dns fe80::1%eth0 --dns-policy None_ --namespace A --cluster-domain a..b", "", "",
			"seamark: --cluster-domain: want a domain name of a-z, 0-9, - and _, got \"a..b\"\n" +
				"--cluster-dns: want an IP address, got \"x\"\n" +
				"--cluster-dns: want an IP address, got \"fe80::1%eth0\"\n" +
				"--namespace: want the name of a namespace: at most 63 characters a-z, 0-9 and -, got \"A\"\n" +
				"--dns-policy: want ClusterFirst, ClusterFirstWithHostNet, Default or None, got \"None_\"\n" +
				"See seamark resolvconf --help.\n", 2},
		{"web.yaml", "", "", "seamark: want no arguments, got \"web.yaml\"", 2},
	} {
		out, stderr, code := run(t, dir, c.in, append([]string{"resolvconf"}, strings.Fields(c.args)...)...)
		if out != c.out || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nwant %s\nerr %s\nwant %s", c.args, code, c.code, out, c.out, stderr, c.err)
		}
	}
}

// The examples of the reference page: a block that begins with a file name is that
// file, and a command is followed by its whole output.
func TestResolvconfReferenceExamples(t *testing.T) {
	dir := t.TempDir()
	named := regexp.MustCompile(`^# (\S+)\n`)
	ran := 0
	for _, block := range regexp.MustCompile("(?ms)^```(yaml|conf|console)\n(.*?)^```$").FindAllStringSubmatch(read(t, "../docs/reference/resolvconf.md"), -1) {
		language, text := block[1], block[2]
		if language != "console" {
			name := named.FindStringSubmatch(text)
			if name == nil {
				t.Fatalf("got a file without a name:\n%s", text)
			}
			write(t, filepath.Join(dir, name[1]), text)
			continue
		}
		line, want, _ := strings.Cut(text, "\n")
		args, ok := strings.CutPrefix(line, "$ seamark ")
		if !ok {
			t.Fatalf("got command %q, want $ seamark …", line)
		}
		var both bytes.Buffer
		c := program.Command(t, dir, strings.Fields(args)...)
		c.Stdout, c.Stderr = &both, &both
		err := c.Run()
		if got := both.String(); got != want {
			t.Errorf("%s: got error %v and\n%s\nwant, as on the page,\n%s", line, err, got, want)
		}
		ran++
	}
	if ran < 3 {
		t.Errorf("ran %d commands of the page, want at least 3", ran)
	}
}
