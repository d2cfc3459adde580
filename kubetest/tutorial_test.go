package kubetest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A block of commands. The lines after a command are its expected output.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// TestClusterTutorial performs docs/tutorials/cluster.md. The commands kind and make are
// not run: the cluster is the test's, in which Seamark answers for CoreDNS's pods, too.
func TestClusterTutorial(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	add(t, d.k.CoreV1().Namespaces(), namespace("kube-system"))
	d.coredns("kube-system")
	s := serve(t, ". {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  kubeconfig "+d.file+"\n  pods insecure\n  ttl 30\n }\n}\n")
	d.set(func() { d.forwards = map[string]string{"coredns": s.at, "seamark": s.at} })
	page := string(must(os.ReadFile("../docs/tutorials/cluster.md"))(t))
	n := 0
	for _, block := range console.FindAllStringSubmatch(page, -1) {
		for _, command := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			n++
			line, want, _ := strings.Cut(command, "\n")
			d.tutorialCommand(line, strings.TrimSuffix(strings.TrimSpace(want), "\n..."))
		}
	}
	if want := 19; n != want {
		t.Errorf("docs/tutorials/cluster.md: got %d commands, want %d", n, want)
	}
	if got, want := d.endpoints("kube-system"), "coredns:2"; got != want {
		t.Errorf("after the last command: got endpoints %s, want %s", got, want)
	}
}

// tutorialCommand runs a command, whose output must begin with want.
func (d *dnsCluster) tutorialCommand(line, want string) {
	d.Helper()
	line = strings.ReplaceAll(strings.ReplaceAll(line, "VERSION", "1"), "--interval 5s", "--interval 1ms")
	args := strings.Fields(line)
	switch {
	case args[0] == "kind", args[0] == "make", strings.HasPrefix(line, "kubectl -n kube-system get "):
	case strings.HasPrefix(line, "kubectl create namespace "):
		add(d.T, d.k.CoreV1().Namespaces(), namespace(args[3]))
	case strings.HasPrefix(line, "kubectl -n shop create service clusterip "):
		web := service(args[6], "10.0.0.7")
		web.Namespace = args[2]
		add(d.T, d.k.CoreV1().Services(args[2]), web)
	case args[0] == "seamark":
		if args[1] == "canary" && args[2] == "promote" && !strings.Contains(line, "--interval") {
			args = append(args, "--interval=1ms")
		}
		out, err := d.command(args[0], args[1:]...)
		if err != nil || !strings.HasPrefix(out, want) {
			d.Fatalf("%s: got %v and\n%s\nwant output that begins with %q", line, err, out, want)
		}
	default:
		d.Fatalf("the test cannot run %q", line)
	}
}
