package node

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/test/program"
	"golang.org/x/sys/unix"
)

// The environment of TestNodeProcess.
const (
	envProgram      = "SEAMARK_TEST_NODE"         // the process runs the command with its arguments
	envEtc          = "SEAMARK_TEST_ETC"          // a folder that the process sees as /etc
	envDeny         = "SEAMARK_TEST_DENY"         // a key of denials
	envCapabilities = "SEAMARK_TEST_CAPABILITIES" // NUMBER,...: all others are dropped
)

// confined makes a process of the command run as TestNodeProcess says, with variables of
// its environment.
func confined(c *exec.Cmd, variables ...string) {
	c.Args = append([]string{c.Args[0], "-test.run=^TestNodeProcess$", "--"}, c.Args[1:]...)
	c.Env = append(append(c.Env, program.Variable+"=", envProgram+"=1"), variables...)
}

// TestNodeProcess is a process that confines itself and runs the command.
func TestNodeProcess(t *testing.T) {
	if os.Getenv(envProgram) == "" {
		return // it is not such a process
	}
	runtime.LockOSThread()
	check := func(what string, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if etc := os.Getenv(envEtc); etc != "" {
		check("making a mount namespace", unix.Unshare(unix.CLONE_NEWNS))
		check("separating mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		check("mounting /etc", unix.Mount(etc, "/etc", "", unix.MS_BIND, ""))
	}
	if filter := denials[os.Getenv(envDeny)]; filter != nil {
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if _, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
			t.Fatalf("seccomp: %v", errno)
		}
	}
	if kept, ok := os.LookupEnv(envCapabilities); ok {
		for c := 0; c <= unix.CAP_LAST_CAP; c++ {
			if !strings.Contains(","+kept+",", ","+strconv.Itoa(c)+",") {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != unix.EINVAL { // the kernel does not have it
					check("dropping a capability", err)
				}
			}
		}
	}
	t.Setenv(program.Variable, "1")
	args := os.Args[slices.Index(os.Args, "--")+1:]
	check("starting the command", syscall.Exec("/proc/self/exe", append(os.Args[:1:1], args...), os.Environ()))
}

// denials are filters of system calls that emulate a kernel or a container runtime.
var denials = map[string][]unix.SockFilter{
	// bpf is not permitted.
	"bpf": deny(unix.EPERM, unix.SYS_BPF),
	// BPF_PROG_QUERY and BPF_LINK_CREATE are as in a kernel without TCX.
	"tcx": either(deny(unix.EINVAL, unix.SYS_BPF, 0, 16), deny(unix.EINVAL, unix.SYS_BPF, 0, 28)),
	// Filters are not permitted.
	"seccomp": deny(unix.EPERM, unix.SYS_SECCOMP),
	// nfnetlink sockets are as in a kernel without netfilter.
	"nftables": deny(unix.EPROTONOSUPPORT, unix.SYS_SOCKET, 0, unix.AF_NETLINK, 2, unix.NETLINK_NETFILTER),
}

// deny returns a filter that lets a system call with some arguments fail, and permits all
// others. The arguments are pairs of an index and the value of the lower half.
func deny(err syscall.Errno, call uint32, args ...uint32) (filter []unix.SockFilter) {
	const load, equal, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	conditions := []uint32{0, call}
	for i := 0; i < len(args); i += 2 {
		conditions = append(conditions, 16+8*args[i], args[i+1]) // offsets in seccomp_data
	}
	for i := 0; i < len(conditions); i += 2 {
		remaining := uint8(len(conditions) - i - 2) // two instructions for each condition
		filter = append(filter, unix.SockFilter{Code: load, K: conditions[i]}, unix.SockFilter{Code: equal, Jf: remaining + 1, K: conditions[i+1]})
	}
	return append(filter, unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(err)}, unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ALLOW})
}

// either returns a filter that lets fail what one of two filters does.
func either(a, b []unix.SockFilter) []unix.SockFilter {
	return slices.Concat(a[:len(a)-1], b) // b in place of the permission at the end of a
}

// Without capabilities, BPF, TCX or nftables the process says what is missing, and queries
// to the ClusterIP are answered, by the node or by the replica.
func TestNodeMissing(t *testing.T) {
	long(t)
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the filters of system calls are for little-endian 64-bit architectures")
	}
	const bind, admin = "10", "12" // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN
	n := newTestNode(t)
	for name, c := range map[string]struct {
		environment []string
		capture     string
		want        string
		answer      string
	}{
		"no capabilities":          {[]string{envCapabilities + "=" + bind}, "auto", "the process needs the capability NET_ADMIN", byReplica},
		"no capabilities, tcx":     {[]string{envCapabilities + "=" + bind}, "tcx", "BPF programs need the capability BPF and NET_ADMIN", byReplica},
		"no capability BPF":        {[]string{envCapabilities + "=" + bind + "," + admin}, "auto", "BPF programs need the capability BPF:", byNode},
		"no capability BPF, tcx":   {[]string{envCapabilities + "=" + bind + "," + admin}, "tcx", "BPF programs need the capability BPF:", byReplica},
		"bpf denied":               {[]string{envDeny + "=bpf"}, "auto", "has to permit bpf", byNode},
		"kernel without TCX":       {[]string{envDeny + "=tcx"}, "auto", `capture=clsact reason="the kernel has no TCX: it needs Linux 6.6"`, byNode},
		"kernel without nftables":  {[]string{envDeny + "=nftables"}, "address", "the kernel has no nftables", byReplica},
		"kernel without TCX, tcx":  {[]string{envDeny + "=tcx"}, "tcx", "interface=pod reason=", byReplica},
		"nothing is missing, auto": {nil, "auto", "Packets of the local addresses are exempt", byNode},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			if slices.Contains(c.environment, envDeny+"=tcx") {
				if support, err := tcx.Probe(); support == tcx.Unsupported {
					t.Skipf("BPF programs cannot capture queries anyway: %v", err)
				}
			}
			p := n.startChanged(func(command *exec.Cmd) { confined(command, c.environment...) }, "-capture="+c.capture)
			n.eventually("message "+c.want, p, func() bool { return strings.Contains(p.log.String(), c.want) })
			n.eventually("answer "+c.answer, p, func() bool { return answer(n.dial("udp", clusterDNS), time.Second) == c.answer })
			n.answered(n.dial("tcp", clusterDNS), c.answer)
			n.end(p, syscall.SIGTERM)
			n.answered(n.dial("udp", clusterDNS), byReplica)
		})
	}
}

// A port that is in use is an error that names the address, and changes nothing: the
// replica answers.
func TestNodePortInUse(t *testing.T) {
	n := newTestNode(t)
	n.answers("0.0.0.0", "192.0.2.3")
	p := n.startUnready("-capture=address")
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("the process did not end within 20s; its log:\n%s", p.log)
	}
	if log := p.log.String(); p.ProcessState.ExitCode() != 1 || !strings.Contains(log, "address in use: another process is listening there") {
		t.Errorf("got exit status %d and log\n%s\nwant 1 and an error about the address", p.ProcessState.ExitCode(), log)
	}
	n.answered(n.dial("udp", clusterDNS), byReplica)
	if got := n.interfaceOf(nodeDNS); got != "" {
		t.Errorf("address %s: got it on %s, want none", nodeDNS, got)
	}
}

// The arguments and the template of node-cache's manifest nodelocaldns.yaml work as they
// are: its four server blocks, its ports, and stub domains.
func TestNodeStockManifest(t *testing.T) {
	long(t)
	n := newTestNode(t)
	etc := t.TempDir()
	block := func(zone, options string) string {
		return zone + ":53 {\n    errors\n" + options + "    reload\n    loop\n    bind " + nodeDNS + " " + clusterDNS + "\n    prometheus :9253\n    }\n"
	}
	toCluster := "    forward . __PILLAR__CLUSTER__DNS__ {\n            force_tcp\n    }\n"
	for file, text := range map[string]string{
		"coredns/Corefile.base": block("cluster.local", "    cache {\n            success 9984 30\n            denial 9984 5\n    }\n"+toCluster+"    health "+nodeDNS+":8080\n") +
			block("in-addr.arpa", "    cache 30\n"+toCluster) + block("ip6.arpa", "    cache 30\n"+toCluster) +
			block(".", "    cache 30\n    forward . __PILLAR__UPSTREAM__SERVERS__\n"),
		"kube-dns/stubDomains": `{"acme.local": ["10.0.2.2"]}`,
		"resolv.conf":          "nameserver 10.0.2.2\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(etc, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(etc, file), text)
	}
	stock := []string{"-localip", nodeDNS + "," + clusterDNS, "-conf", "/etc/Corefile", "-upstreamsvc", "kube-dns-upstream"}
	printed := program.Command(t, etc, append(stock, "-print-corefile")...)
	printed.Env = append(printed.Env, "KUBE_DNS_UPSTREAM_SERVICE_HOST="+upstreamIP)
	confined(printed, envEtc+"="+etc)
	text, err := printed.CombinedOutput()
	for want, count := range map[string]int{"forward . " + upstreamIP + " {\n            force_tcp\n": 3, "forward . /etc/resolv.conf\n": 1, "acme.local:53 {\n": 1, "forward . 10.0.2.2\n": 1, "__PILLAR__": 0} {
		if got := strings.Count(string(text), want); err != nil || got != count {
			t.Errorf("-print-corefile: got error %v and %q %d times, want it %d times:\n%s", err, want, got, count, text)
		}
	}

	n.args = stock
	p := n.startChanged(func(c *exec.Cmd) { confined(c, envEtc+"="+etc) })
	page := func(url string) (text string) {
		// Each connection is made in the namespace.
		client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			n.do(func() { c, err = net.DialTimeout(network, address, patience) })
			return c, err
		}}}
		reply, err := client.Get(url)
		if err != nil {
			return err.Error()
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		return string(body)
	}
	n.eventually("answer at "+nodeDNS, p, func() bool { return answer(n.dial("udp", nodeDNS), time.Second) == byReplica })
	n.eventually("gate", p, func() bool {
		return strings.Contains(page("http://127.0.0.1:9353/metrics"), "seamark_node_gate_open 1\n")
	})
	for _, server := range []string{nodeDNS, clusterDNS} {
		for _, network := range []string{"udp", "tcp"} {
			for _, name := range []string{"a.default.svc.cluster.local.", "1.2.0.192.in-addr.arpa.", "1.0.ip6.arpa.", "www.example.", "db.acme.local."} {
				if got := answerTo(n.dial(network, server), name, patience); got != byReplica {
					t.Errorf("%s from %s over %s: got %s, want %s", name, server, network, got, byReplica)
				}
			}
		}
	}
	if got := page("http://" + nodeDNS + ":8080/health"); got != "OK" {
		t.Errorf("health: got %q, want OK", got)
	}
	metrics := page("http://127.0.0.1:9253/metrics")
	for _, want := range []string{"coredns_cache_hits_total{", "coredns_forward_requests_total{", `coredns_nodecache_setup_errors_total{errortype="iptables"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics: got\n%s\nwant %q", metrics, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(etc, "Corefile")); err != nil || string(got) != string(text) {
		t.Errorf("/etc/Corefile: got error %v and\n%s\nwant\n%s", err, got, text)
	}
	n.end(p, syscall.SIGTERM)
	n.answered(n.dial("udp", clusterDNS), byReplica)
	n.without(p, nodeDNS, clusterDNS)
}
