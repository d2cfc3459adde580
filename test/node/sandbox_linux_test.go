package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sandboxed are lines of /proc/PID/status of each thread of a process with the sandbox.
var sandboxed = []string{
	"CapInh:\t0000000000000400\n", "CapPrm:\t0000000000000400\n", "CapEff:\t0000000000000400\n",
	"CapBnd:\t0000000000000400\n", "CapAmb:\t0000000000000400\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
}

// restricted checks that each thread of a process has lines in its status.
func (n *testNode) restricted(pid int, want []string) {
	n.t.Helper()
	statuses, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(statuses) < 2 {
		n.t.Errorf("threads of %d: got %q, error %v, want several", pid, statuses, err)
	}
	for _, file := range statuses {
		status, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		for _, line := range want {
			if err != nil || !strings.Contains(string(status), line) {
				n.t.Errorf("%s: got error %v and\n%s\nwant %q", file, err, status, line)
			}
		}
	}
}

// sandboxFiles returns the flags of a node with a server block for each address, and a program of
// the directive on, which writes what it may do into a file.
func (n *testNode) sandboxFiles(dir string, addresses ...string) []string {
	n.t.Helper()
	script := filepath.Join(dir, "script")
	// unshare needs no capability, and its user namespace would have all of them.
	text := fmt.Sprintf("#!/bin/sh\ncat /proc/self/status > %[1]s/program\nunshare --user true 2>> %[1]s/program\ntrue\n", dir)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		n.t.Fatal(err)
	}
	var template strings.Builder
	for _, address := range addresses {
		fmt.Fprintf(&template, "from.example:53 {\n    bind %s\n    on startup %s\n    template IN A {\n        answer \"{{.Name}} 5 IN A 192.0.2.99\"\n    }\n}\n", address, script)
	}
	return n.files(template.String())
}

// The process that answers queries has no capability but that for ports below 1024, and neither
// have programs that it runs. It reloads a Corefile with another address of port 53, and the next
// worker has no more, and both sockets.
func TestNodeSandbox(t *testing.T) {
	eachCapture(t, (*testNode).sandbox)
	t.Run("none", func(t *testing.T) {
		n := newTestNode(t)
		n.ip("addr add " + nodeDNS + "/32 dev lo\naddr add " + clusterDNS + "/32 dev lo\n-6 addr add " + cluster6 + "/128 dev lo")
		n.sandbox("-capture=none")
	})
}

func (n *testNode) sandbox(capture string) {
	const local, added = "__PILLAR__LOCAL__DNS__", "127.0.0.2"
	server, dir := clusterDNS, n.t.TempDir()
	if capture == "-capture=none" { // kube-proxy's rules lead to the replica
		server = nodeDNS
	}
	n.args = n.sandboxFiles(dir, local)
	p := n.startUnready(capture)
	c := n.dial("udp", server)
	n.eventually("answer of the node", p, func() bool { return answer(c, time.Second) == byNode })

	pid := p.Process.Pid
	if capture != "-capture=none" {
		pid = n.worker(p, 0)
	}
	n.restricted(pid, sandboxed)
	n.answered(n.dial("tcp", nodeDNS), byNode)
	if want := "capabilities=NET_BIND_SERVICE no_new_privs=true seccomp=true"; !strings.Contains(p.log.String(), want) {
		n.t.Errorf("log: got\n%s\nwant %q", p.log, want)
	}

	program := read(n.t, filepath.Join(dir, "program"))
	for _, want := range append([]string{"Operation not permitted"}, sandboxed...) {
		if !strings.Contains(program, want) {
			n.t.Errorf("program of on: got\n%s\nwant %q", program, want)
		}
	}

	// A reload adds an address with a port below 1024.
	const base = 8 // the argument after -basecorefile
	write(n.t, n.args[base], read(n.t, n.sandboxFiles(dir, local, added)[base]))
	n.eventually("answer at the added address", p, func() bool {
		return answer(n.dialFrom(n.namespace, "udp", added), time.Second) == byNode
	})
	both := func() {
		n.t.Helper()
		n.answered(n.dialFrom(n.namespace, "udp", added), byNode)
		n.answered(n.dialFrom(n.namespace, "tcp", added), byNode)
		n.answered(n.dial("udp", server), byNode)
	}
	both()

	if capture != "-capture=none" {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			n.t.Fatal(err)
		}
		next := n.worker(p, pid)
		both()
		n.restricted(next, sandboxed)
	}
	n.end(p, syscall.SIGTERM)
	if code := p.ProcessState.ExitCode(); code != 0 {
		n.t.Errorf("exit status: got %d, want 0; log:\n%s", code, p.log)
	}
}

// Without the sandbox the worker has the capabilities of its supervisor. An invalid value, and one
// that needs a supervisor, are refused.
func TestNodeSandboxOff(t *testing.T) {
	n := newTestNode(t)
	p := n.start("-sandbox=off")
	n.restricted(n.worker(p, 0), []string{"NoNewPrivs:\t0\n", "Seccomp:\t0\n"})
	if !strings.Contains(p.log.String(), "no_new_privs=false seccomp=false") {
		t.Errorf("log: got\n%s\nwant the privileges", p.log)
	}
	n.end(p, syscall.SIGTERM)

	for flags, want := range map[string]string{
		"-sandbox=x": "-sandbox: want on, required or off", "-sandbox=required -supervise=false": "-sandbox=required: want -supervise",
	} {
		p := n.startUnready(strings.Fields(flags)...)
		<-p.done
		if code := p.ProcessState.ExitCode(); code != 2 || !strings.Contains(p.log.String(), want) {
			t.Errorf("%s: got exit status %d and\n%s\nwant 2 and %q", flags, code, p.log, want)
		}
	}
}

// deployed are the capabilities of deploy/node: NET_BIND_SERVICE, NET_ADMIN, BPF.
const deployed = envCapabilities + "=10,12,39"

// Each capture works with the capabilities of deploy/node. The kernel accepts fewer BPF programs without
// CAP_PERFMON than with all capabilities.
func TestNodeDeployedCapabilities(t *testing.T) {
	eachCapture(t, func(n *testNode, capture string) {
		p := n.startChanged(func(c *exec.Cmd) { confined(c, deployed) }, capture, "-metrics-listen-address=127.0.0.1:9353")
		n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byNode })
		n.end(p, syscall.SIGTERM)
	})
}

// With the capabilities of deploy/node the bounding set cannot change, and has no effect: programs
// gain nothing. If the container's runtime forbids a step, the node has DNS and a warning, or
// with required an error.
func TestNodeSandboxConfined(t *testing.T) {
	long(t)
	n := newTestNode(t)
	p := n.startChanged(func(c *exec.Cmd) { confined(c, deployed) }, "-capture=address", "-sandbox=required")
	n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byNode })
	n.restricted(n.worker(p, 0), []string{
		"CapPrm:\t0000000000000400\n", "CapEff:\t0000000000000400\n", "CapBnd:\t0000008000001400\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
	})
	n.end(p, syscall.SIGTERM)

	const denied = "setting the seccomp filter: seccomp: operation not permitted"
	p = n.startChanged(func(c *exec.Cmd) { confined(c, envDeny+"=seccomp") }, "-capture=address")
	n.eventually("answer of the node", p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == byNode })
	n.restricted(n.worker(p, 0), []string{"CapPrm:\t0000000000000400\n", "NoNewPrivs:\t1\n"})
	if log := p.log.String(); !strings.Contains(log, "keeps privileges that it does not need") || !strings.Contains(log, denied) {
		t.Errorf("seccomp is denied: got log\n%s\nwant a warning with %q", log, denied)
	}
	n.end(p, syscall.SIGTERM)

	for _, capture := range []string{"address", "none"} {
		p = n.startChanged(func(c *exec.Cmd) { confined(c, envDeny+"=seccomp") }, "-capture="+capture, "-sandbox=required")
		<-p.done
		if log := p.log.String(); p.ProcessState.ExitCode() != 1 || !strings.Contains(log, "-sandbox=required: "+denied) {
			t.Errorf("seccomp is denied, -capture=%s -sandbox=required: got exit status %d and log\n%s\nwant 1 and %q",
				capture, p.ProcessState.ExitCode(), log, denied)
		}
	}
}
