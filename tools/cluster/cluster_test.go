//go:build linux

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCluster starts a cluster, queries it from its pods and from the machine, and ends it. It
// runs with SEAMARK_CLUSTER, which has the flags of the command up, such as "-nodes 3" or " "
// for none. The programs of bin/cluster are used and completed.
func TestCluster(t *testing.T) {
	dir, program, flags := clusterProgram(t)
	command := func(name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "KUBECONFIG="+filepath.Join(dir, "run", "kubeconfig"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	before := traces(t)
	up := append([]string{"up", "-dir", dir, "-source", "../.."}, flags...)
	out, err := command(program, up...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer exec.Command(program, "down", "-dir", dir).Run()
	t.Log(out)

	kubectl := filepath.Join(dir, "run", "bin", "kubectl")
	for _, test := range []struct {
		command []string
		want    string
	}{
		{[]string{kubectl, "get", "pods", "-A", "-o", "wide"}, "coredns-"},
		{[]string{kubectl, "exec", "deploy/client-glibc", "--", "dig", "+short", "+search", "kubernetes.default"},
			"10.96.0.1\n"},
		{[]string{kubectl, "exec", "deploy/client-glibc", "--", "getent", "hosts", "kubernetes.default"}, "10.96.0.1 "},
		{[]string{kubectl, "exec", "deploy/client-musl", "--", "/resolve", "kubernetes.default"}, "10.96.0.1\n"},
		{[]string{kubectl, "exec", "deploy/client-glibc", "--", "dig", "+short", "example.com"}, "192.0.2.1\n"},
		{[]string{program, "exec", "-dir", dir,
			"dig", "+short", "@10.96.0.10", "kubernetes.default.svc.cluster.local"},
			"10.96.0.1\n"},
	} {
		out, err := command(test.command[0], test.command[1:]...)
		if err != nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: got %v\n%s\nwant %q", strings.Join(test.command, " "), err, out, test.want)
		}
	}

	if out, err := command(program, up...); err == nil || !strings.Contains(out, "runs already") {
		t.Errorf("a second start: got %v\n%s\nwant an error that a cluster runs already", err, out)
	}
	if out, err := command(program, "down", "-dir", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkTraces(t, before)
}

// checkTraces checks that the traces on the machine are as before.
func checkTraces(t *testing.T, before []string) {
	t.Helper()
	for i, after := range traces(t) {
		if after != before[i] {
			t.Errorf("after the end: got\n%s\nwant as before\n%s", after, before[i])
		}
	}
}

// clusterProgram builds the program into the directory of clusters, and returns both with the flags of the
// command up.
func clusterProgram(t *testing.T) (dir, program string, flags []string) {
	text, ok := os.LookupEnv("SEAMARK_CLUSTER")
	if !ok {
		t.Skip("it builds and runs Kubernetes, as root: SEAMARK_CLUSTER=' ' go test -run TestCluster -timeout 2h")
	}
	dir, err := filepath.Abs("../../bin/cluster")
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "cluster")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir, program, strings.Fields(text)
}

// traces returns what a cluster could leave on the machine: mounts, interfaces, rules, control
// groups, files and processes of the directory, and sysctls that a kubelet sets.
func traces(t *testing.T) []string {
	var all []string
	for _, script := range []string{
		"cat /proc/self/mounts",
		"ip -o link | cut -d: -f2",
		"ip route show table all; ip -6 route show table all",
		"nft list ruleset",
		"iptables-save | grep -v '^[#:]'",
		"find /sys/fs/cgroup -type d -name '*seamark*'",
		"ls ../../bin/cluster/run /run/netns /run/containerd 2>&1",
		"ls /var/lib/kubelet /var/lib/cni /etc/cni /etc/kubernetes 2>&1",
		"grep -s . /proc/sys/kernel/panic /proc/sys/kernel/panic_on_oops /proc/sys/vm/overcommit_memory",
		`grep -lsa "$(realpath ../../bin/cluster)/" /proc/[0-9]*/maps`,
	} {
		out, _ := exec.Command("sh", "-c", script).CombinedOutput()
		all = append(all, script+":\n"+string(out))
	}
	return all
}
