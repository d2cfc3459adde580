package kubetest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/orphans"
)

// The test binary is also the server, for tests that run it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("SEAMARK_TEST_MAIN") != "" {
		cmd.Main(builtin.Directives(), cmd.Build{Version: "test"})
	}
	orphans.Main(m)
}

// The binary, run with the arguments and the Corefile of deploy/kubernetes on
// the ports that it names, answers on every port and path that the Deployment
// declares.
func TestManifestsServe(t *testing.T) { inOwnNetwork(t, serveManifests) }

// inOwnNetwork runs the body of a test in a process with its own network
// namespace, where all ports are free.
func inOwnNetwork(t *testing.T, body func(*testing.T)) {
	t.Helper()
	if os.Getenv("SEAMARK_TEST_NETWORK") != "" {
		raiseLoopback(t)
		body(t)
		return
	}
	self := must(os.Executable())(t)
	// Root may create a network namespace; other users need a user namespace,
	// which some machines forbid. Without either, the ports may be in use and the
	// test is skipped.
	root := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	user := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	var out []byte
	var err error
	for _, attr := range []*syscall.SysProcAttr{root, user} {
		inside := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
		inside.Env = append(os.Environ(), "SEAMARK_TEST_NETWORK=own")
		inside.SysProcAttr = attr
		out, err = inside.CombinedOutput()
		if _, ran := err.(*exec.ExitError); err == nil || ran {
			break
		}
	}
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		t.Skipf("creating a network namespace, as root or in a user namespace: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("test in the namespace: got error %v and\n%s\nwant it to pass", err, out)
	}
}

func serveManifests(t *testing.T) {
	pod := deployment(t).Spec.Template.Spec
	container := pod.Containers[0]
	dir := t.TempDir()
	text := object[corev1.ConfigMap](t, "base/corefile.yaml", "ConfigMap").Data[pod.Volumes[0].ConfigMap.Items[0].Key]
	manifests := must(filepath.Abs("../examples"))(t)
	text = strings.Replace(text, "pods insecure", "pods insecure\n manifests "+manifests, 1)
	text = strings.Replace(text, "/etc/resolv.conf", "127.0.0.9", 1)
	mount := container.VolumeMounts[0].MountPath
	file := filepath.Join(dir, pod.Volumes[0].ConfigMap.Items[0].Path)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), must(os.Executable())(t))
	for _, arg := range container.Args {
		server.Args = append(server.Args, strings.Replace(arg, mount, dir, 1))
	}
	server.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
	server.Stdout, server.Stderr = t.Output(), t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGKILL)
		_ = server.Wait()
	})

	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		at := fmt.Sprintf("http://127.0.0.1:%d%s", ports[probe.HTTPGet.Port.String()], probe.HTTPGet.Path)
		chaintest.Eventually(t, at, func() bool {
			reply, err := http.Get(at)
			if err != nil {
				return false
			}
			defer reply.Body.Close()
			return reply.StatusCode == http.StatusOK
		})
	}
	for name, network := range map[string]string{"dns": "udp", "dns-tcp": "tcp"} {
		c := dns.Client{Net: network, Timeout: replyTime}
		reply, _, err := c.Exchange(new(dns.Msg).SetQuestion("cluster.local.", dns.TypeSOA), fmt.Sprintf("127.0.0.1:%d", ports[name]))
		if err != nil || len(reply.Answer) != 1 {
			t.Errorf("%s: %v %v", name, reply, err)
		}
	}
	reply, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", ports["metrics"]))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if page := string(must(io.ReadAll(reply.Body))(t)); !strings.Contains(page, `coredns_dns_requests_total{server="dns://:53",zone=".",view="",proto="tcp",family="1",type="SOA"} 1`) {
		t.Errorf("metrics: got\n%s\nwant the query over TCP counted", page)
	}
}

// raiseLoopback sets the loopback interface of a new network namespace up.
func raiseLoopback(t *testing.T) {
	t.Helper()
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	lo := must(unix.NewIfreq("lo"))(t)
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}
