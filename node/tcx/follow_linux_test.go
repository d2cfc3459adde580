package tcx

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/debian"
)

// inNamespace runs the test in a process of its own in a new network namespace: the kernel
// attaches programs in the namespace of the thread, and a Capture has several. It reports
// whether this is that process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("SEAMARK_TEST_NAMESPACE") != "" {
		return true
	}
	debian.Program(t, "ip")
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=4m")
	c.Env = append(os.Environ(), "SEAMARK_TEST_NAMESPACE=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	switch {
	case c.ProcessState == nil:
		t.Skipf("network namespaces may not be made: %v", err)
	case err != nil:
		t.Errorf("in a network namespace: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	default:
		t.Logf("%s", out)
	}
	return false
}

// ip runs lines of the program ip.
func ip(t *testing.T, lines string) {
	t.Helper()
	c := exec.Command("ip", "-batch", "-")
	c.Stdin = strings.NewReader(lines)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v: %s\n%s", err, out, lines)
	}
}

// A pods namespace holds the other ends of veth interfaces.
func pods(t *testing.T) (pid int) {
	t.Helper()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = c.Wait()
	})
	return c.Process.Pid
}

// veths returns lines that add interfaces.
func veths(pid, count int) string {
	var b strings.Builder
	for n := range count {
		fmt.Fprintf(&b, "link add pod%d type veth peer name eth%d netns %d\n", n, n, pid)
	}
	return b.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func openCapture(t *testing.T, patterns string) (*Capture, *lockedBuffer) {
	t.Helper()
	return openWith(t, Options{Interfaces: patterns})
}

func openWith(t *testing.T, o Options) (*Capture, *lockedBuffer) {
	t.Helper()
	log := new(lockedBuffer)
	o.Pairs, o.Port, o.Log = []Pair{{cluster4, alias4}}, 53, slog.New(slog.NewTextHandler(log, nil))
	probe := Probe
	if o.Clsact {
		probe = ProbeClsact
	}
	if s, why := probe(); s == Unsupported { // Open needs no TCX while there is no interface
		t.Skipf("BPF programs may not be attached: %v", why)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, log
}

func (c *Capture) captures(n uint64) func() bool {
	return func() bool { return c.Counters().Interfaces == n }
}

// Interfaces of pods are captured, others are not; 60 that appear at once, too.
func TestInterfaces(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Parallel() // in a process of its own
	if !inNamespace(t) {
		return
	}
	pid := pods(t)
	ip(t, veths(pid, 2)+"link add here type veth peer name there\n")
	c, log := openCapture(t, "")
	chaintest.Eventually(t, "two captured interfaces", c.captures(2))
	ip(t, "link del pod0\nlink del pod1\n")
	chaintest.Eventually(t, "end of the interfaces", c.captures(0))
	start := time.Now()
	ip(t, veths(pid, 60))
	added := time.Since(start)
	chaintest.Eventually(t, "60 captured interfaces", c.captures(60))
	t.Logf("60 interfaces were added in %v and captured in %v", added, time.Since(start))
	if text := log.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("log: got warnings:\n%s", text)
	}
}

// The time for 60 interfaces that are there at the start.
func TestInterfacesAtStart(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Parallel() // in a process of its own
	if !inNamespace(t) {
		return
	}
	ip(t, veths(pods(t), 60))
	start := time.Now()
	c, log := openCapture(t, "pod*")
	chaintest.Eventually(t, "60 captured interfaces", c.captures(60))
	t.Logf("captured in %v: %s", time.Since(start), log.String())
}

// Interfaces that are removed while the programs are attached to them leave nothing.
func TestInterfacesFlap(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Parallel() // in a process of its own
	if !inNamespace(t) {
		return
	}
	pid := pods(t)
	c, log := openCapture(t, "")
	for range 5 {
		lines := strings.Builder{}
		lines.WriteString(veths(pid, 10))
		for n := range 10 {
			fmt.Fprintf(&lines, "link del pod%d\n", n)
		}
		ip(t, lines.String())
	}
	ip(t, veths(pid, 3))
	chaintest.Eventually(t, "three captured interfaces", c.captures(3))
	c.Close()
	if got := len(c.free); got != c.program.limit {
		t.Errorf("free places after the end: got %d, want %d", got, c.program.limit)
	}
	if text := log.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("log: got warnings:\n%s", text)
	}
}

// Ports of a bridge are captured with its address. Ports of other interfaces are not, and
// the log says why.
func TestPorts(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	pid := pods(t)
	ip(t, veths(pid, 2)+"link add bridge0 type bridge\nlink set pod0 master bridge0\n")
	c, log := openCapture(t, "")
	chaintest.Eventually(t, "two captured interfaces", c.captures(2))
	ip(t, "link set bridge0 address 02:00:00:00:00:77\n")
	var slot uint32
	index := interfaceIndex(t, "pod0")
	if err := c.program.slots.Lookup(uint32(index), &slot); err != nil {
		t.Fatal(err)
	}
	var mac [8]byte
	copy(mac[:], []byte{2, 0, 0, 0, 0, 0x77})
	chaintest.Eventually(t, "address of the bridge", func() bool { return c.program.state(slot).mac.Load() == native(mac) })
	if out, err := exec.Command("ip", "link", "add", "vrf0", "type", "vrf", "table", "10").CombinedOutput(); err != nil {
		t.Logf("the kernel has no VRF: %s", out)
		return
	}
	ip(t, "link set pod1 master vrf0\n")
	chaintest.Eventually(t, "one captured interface", c.captures(1))
	chaintest.Eventually(t, "reason in the log", func() bool { return strings.Contains(log.String(), "only bridges deliver packets") })
}

func interfaceIndex(t *testing.T, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i.Index
}
