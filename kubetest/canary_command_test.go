package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/test/chaintest"
)

const canaryPage = "../docs/how-to/canary.md"

// command runs the binary by a name and returns its output.
func (d *dnsCluster) command(name string, args ...string) (output string, err error) {
	d.Helper()
	c := exec.CommandContext(d.Context(), must(os.Executable())(d.T), args...)
	c.Args[0] = name
	c.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1", "KUBECONFIG="+d.file)
	out, err := c.CombinedOutput()
	return string(out), err
}

// The commands of the documentation go to the last stage and back.
func TestCanaryDocumentedCommands(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	d.coredns("kube-system")
	page := string(must(os.ReadFile(canaryPage))(t))
	stages := []string{"coredns:2", "coredns:2", "coredns:2 seamark-canary:1", "coredns:2 seamark:2", "seamark:2"}
	stage := 0
	for i, line := range regexp.MustCompile(`(?m)^\$ seamark (canary .*)$`).FindAllStringSubmatch(page, -1) {
		args := strings.Fields(strings.ReplaceAll(line[1], "REGISTRY/seamark:TAG", "registry.invalid/seamark:1"))
		switch dry := slices.Contains(args, "--dry-run"); {
		case args[1] == "start", args[1] == "promote":
			args = append(args, "--compare=none")
			if !dry {
				stage++
			}
		case args[1] == "rollback":
			stage = 0
		}
		if args[1] == "promote" || args[1] == "status" {
			args = append(args, "--interval=1ms")
		}
		name := []string{"seamark", "/usr/local/bin/kubectl-seamark"}[i%2]
		out, err := d.command(name, args...)
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, args, err, out)
		}
		chaintest.Eventually(t, fmt.Sprintf("%s: endpoints %s", args, stages[stage]), func() bool { return d.endpoints("kube-system") == stages[stage] })
	}
	if got, want := d.endpoints("kube-system"), "coredns:2"; got != want || !strings.Contains(page, "rollback --delete") {
		t.Errorf("after the last command: got endpoints %s, want %s after rollback --delete", got, want)
	}
}

// The Role of the documentation has what the commands check.
func TestCanaryRole(t *testing.T) {
	t.Parallel()
	page := string(must(os.ReadFile(canaryPage))(t))
	text := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page)[1]
	role := decode[rbacv1.Role](t, must(yaml.YAMLToJSON([]byte(text)))(t))
	var documented []string
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				documented = append(documented, strings.Join([]string{verb, rule.APIGroups[0], resource}, " "))
			}
		}
	}
	d := newDNSCluster(t)
	d.coredns("kube-system")
	d.set(func() { d.denied = "deployments" })
	if out, err := d.command("seamark", "canary", "start", "--image=registry.invalid/seamark:1"); err == nil {
		t.Errorf("start without a permission: got no error and\n%s", out)
	}
	d.set(func() {
		d.reviewed = slices.DeleteFunc(d.reviewed, func(p string) bool { // of the comparison, in all namespaces
			return slices.Contains([]string{"list  namespaces", "watch  namespaces", "list  services", "watch  services", "watch discovery.k8s.io endpointslices"}, p)
		})
		slices.Sort(documented)
		slices.Sort(d.reviewed)
		if got := slices.Compact(d.reviewed); !slices.Equal(got, documented) {
			t.Errorf("checked permissions: got\n%s\nwant the ones of the documentation\n%s", strings.Join(got, "\n"), strings.Join(documented, "\n"))
		}
	})
}

// The command compares a pod of each server through the API server. Differences stop a
// promotion.
func TestCanaryCompares(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	add(t, d.k.CoreV1().Namespaces(), namespace("kube-system"))
	d.coredns("kube-system")
	same := serve(t, ". {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  kubeconfig "+d.file+"\n  pods insecure\n  ttl 30\n }\n}\n")
	other := serve(t, ". {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  manifests ../examples\n  pods insecure\n  ttl 30\n }\n}\n")
	d.set(func() { d.forwards = map[string]string{"coredns": same.at, "seamark": other.at} })
	out, err := d.command("seamark", "canary", "start", "--image=registry.invalid/seamark:1")
	if err == nil || !strings.Contains(out, "without a documented reason") {
		t.Errorf("start: got %v and\n%s\nwant differences", err, out)
	}
	out, err = d.command("seamark", "canary", "promote", "--interval=1ms")
	if err == nil || !strings.Contains(out, "answers of seamark-") {
		t.Errorf("promote: got %v and\n%s\nwant differences of a pod of Seamark", err, out)
	}
	if got := d.endpoints("kube-system"); got != "coredns:2" {
		t.Errorf("after differences: got endpoints %s, want coredns:2", got)
	}
	d.set(func() { d.forwards["seamark"] = same.at })
	if out, err = d.command("seamark", "canary", "promote", "--interval=1ms"); err != nil || !strings.Contains(out, "# Answers of seamark-") {
		t.Errorf("promote with equal answers: got %v and\n%s", err, out)
	}
	chaintest.Eventually(t, "the pod of stage 2", func() bool { return d.endpoints("kube-system") == "coredns:2 seamark-canary:1" })
}

// kubectl runs the program by this name for the completion of its plugin.
func TestCanaryPluginCompletion(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	if out, err := d.command("/usr/local/bin/kubectl_complete-seamark", "canary", "r"); err != nil || !strings.HasPrefix(out, "rollback\t") {
		t.Errorf("completion of kubectl seamark canary r: got %q and %v, want rollback", out, err)
	}
}

// Invalid flags change nothing.
func TestCanaryInvalidFlags(t *testing.T) {
	t.Parallel()
	d := newDNSCluster(t)
	for _, c := range []struct{ args, want string }{
		{"start", "--image: want REGISTRY/NAME:TAG"},
		{"start --image seamark:1", "host name of the registry"},
		{"start --image seamark/seamark:1", "host name of the registry"},
		{"start --image registry.invalid/seamark", "want a tag or a digest"},
		{"start --image registry.invalid:5000/seamark", "want a tag or a digest"},
		{"start --image registry.invalid/seamark:1", "namespace kube-system has no Service kube-dns"},
		{"promote --compare maybe", "--compare: want port-forward, direct or none"},
		{"promote --force=", "--force: want the reason"},
		{"status --output xml", "--output: want text or json"},
		{"strat", `want start, status, promote or rollback, got "strat"`},
		{"rollback --context none", "context was not found for specified context: none"},
	} {
		out, err := d.command("seamark", append([]string{"canary"}, strings.Fields(c.args)...)...)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("seamark canary %s: got %v and %s, want %s", c.args, err, out, c.want)
		}
	}
}
