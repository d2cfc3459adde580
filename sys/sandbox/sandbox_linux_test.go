package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A seccompData is struct seccomp_data.
type seccompData struct {
	Call, Audit uint32
	Pointer     uint64
	Arguments   [6]uint64
}

// run returns the result of a filter for a system call of this machine's byte order.
func (p program) run(t *testing.T, d seccompData) uint32 {
	t.Helper()
	data, err := binary.Append(nil, binary.NativeEndian, d)
	if err != nil {
		t.Fatal(err)
	}

	var a uint32
	for i := 0; i < len(p); i++ {
		holds := false
		switch s := p[i]; s.Code {
		case load:
			a = binary.NativeEndian.Uint32(data[s.K:])
			continue
		case end:
			return s.K
		case equal:
			holds = a == s.K
		case above:
			holds = a > s.K
		case anyBit:
			holds = a&s.K != 0
		default:
			t.Fatalf("statement %d: got code %#x, want one of those above", i, s.Code)
		}

		if holds {
			i += int(p[i].Jt)
		} else {
			i += int(p[i].Jf)
		}
	}
	t.Fatal("the filter has no result")
	return 0
}

// The filter of this machine refuses the system calls of the list, other architectures, x32 and
// unknown calls, and looks at the arguments of clone and socket.
func TestFilterResults(t *testing.T) {
	m, ok := machines[runtime.GOARCH]
	if !ok {
		t.Skipf("there is no filter for %s", runtime.GOARCH)
	}
	f := m.filter()
	type call struct {
		name string
		seccompData
		want uint32
	}
	var calls []call
	add := func(name string, number, want uint32, arguments ...uint64) {
		d := seccompData{Call: number, Audit: m.audit}
		copy(d.Arguments[:], arguments)
		calls = append(calls, call{name, d, want})
	}

	for _, number := range refused {
		add("listed", number, refuse)
	}
	for name, number := range m.refused {
		add(name, number, refuse)
	}
	for _, number := range []uint32{unix.SYS_READ, unix.SYS_RECVMMSG, unix.SYS_FUTEX, unix.SYS_EXECVE, unix.SYS_PRCTL, newest} {
		add("allowed", number, allow)
	}
	add("clone3", unix.SYS_CLONE3, unknown)
	add("later", newest+1, unknown)
	add("x32", x32|1, unknown)
	add("none", ^uint32(0), unknown)
	add("set_tls of ARM", 0xf0005, allow)

	clone := func(flags uint64) []uint64 {
		a := make([]uint64, 2)
		a[m.flags] = flags
		return a
	}
	add("clone of a thread", unix.SYS_CLONE, allow, clone(unix.CLONE_VM|unix.CLONE_THREAD|unix.CLONE_SIGHAND)...)
	add("clone of a process", unix.SYS_CLONE, allow, clone(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PIDFD|uint64(unix.SIGCHLD))...)
	for bit := uint64(1); bit <= newSpace; bit <<= 1 {
		if bit&newSpace != 0 {
			add("clone with a namespace", unix.SYS_CLONE, refuse, clone(bit|uint64(unix.SIGCHLD))...)
		}
	}
	for family := range uint64(unix.AF_MAX) {
		want := uint32(refuse)
		if slices.Contains([]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, family) {
			want = allow
		}
		add("socket", unix.SYS_SOCKET, want, family, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	}
	add("socket of netfilter", unix.SYS_SOCKET, refuse, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)

	for _, c := range calls {
		if got := f.run(t, c.seccompData); got != c.want {
			t.Errorf("%s, call %#x, arguments %#x: got %#x, want %#x", c.name, c.Call, c.Arguments, got, c.want)
		}
	}
	other := seccompData{Call: unix.SYS_READ, Audit: unix.AUDIT_ARCH_I386}
	if got := f.run(t, other); got != unknown {
		t.Errorf("call of another architecture: got %#x, want %#x", got, uint32(unknown))
	}
}

// Each machine has a filter that the kernel's limits allow.
func TestFilterLength(t *testing.T) {
	for name, m := range machines {
		if n := len(m.filter()); n > unix.BPF_MAXINSNS {
			t.Errorf("%s: got %d statements, want at most %d", name, n, unix.BPF_MAXINSNS)
		}
	}
}

// steps is the variable of a process in which TestRestrictedProcess does not only start another one.
const steps = "SEAMARK_TEST_SANDBOX"

// A program that a restricted thread executes has only NET_BIND_SERVICE in all threads, and what
// the filter refuses fails. Other threads of the process keep what they have.
func TestRestrictedProcess(t *testing.T) {
	switch os.Getenv(steps) {
	case "":
	case "restrict":
		executeRestricted(t)
	default:
		checkRestricted(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("not root: there are no capabilities to drop; run the test as root")
	}

	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRestrictedProcess$", "-test.v")
	c.Env = append(os.Environ(), steps+"=restrict")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "checked as a restricted process") {
		t.Errorf("got %v and\n%s\nwant a process that has checked itself", err, out)
	}
}

// executeRestricted restricts one thread, and executes the program in it.
func executeRestricted(t *testing.T) {
	before := Current()
	restricted, execute := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		restricted <- Restrict()
		<-execute
		t.Setenv(steps, "check")
		restricted <- unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}()

	if err := <-restricted; err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // another thread
	if after := Current(); !slices.Equal(after.Capabilities, before.Capabilities) || after.Seccomp != before.Seccomp {
		t.Fatalf("another thread: got %v, want %v as before", after, before)
	}
	close(execute)
	t.Fatalf("executing the test: %v", <-restricted)
}

// checkRestricted checks the restrictions in a process that has them.
func checkRestricted(t *testing.T) {
	if p := Current(); fmt.Sprint(p) != "{[NET_BIND_SERVICE] true true}" {
		t.Errorf("privileges: got %v, want NET_BIND_SERVICE, no_new_privs and a filter", p)
	}
	statuses, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(statuses) < 2 {
		t.Fatalf("threads: got %q, error %v, want several", statuses, err)
	}
	for _, file := range statuses {
		status, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if want := set + ":\t0000000000000400\n"; err != nil || !strings.Contains(string(status), want) {
				t.Errorf("%s: got error %v and\n%s\nwant %q", file, err, status, want)
			}
		}
	}

	for name, f := range map[string]func() error{
		"a BPF map":             func() error { return call0(unix.SYS_BPF) },
		"a user namespace":      func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"a packet socket":       func() error { return open(unix.AF_PACKET, unix.SOCK_RAW, 0) },
		"a socket for crypto":   func() error { return open(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
		"a netfilter socket":    func() error { return open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) },
		"a raw socket":          func() error { return open(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
		"a mount":               func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT, "") },
		"io_uring":              func() error { return call0(unix.SYS_IO_URING_SETUP) },
		"memory of the parent":  func() error { return readParent() },
		"a program with ptrace": func() error { return unix.PtraceAttach(os.Getppid()) },
	} {
		if err := f(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: got error %v, want %v", name, err, unix.EPERM)
		}
	}
	if err := call0(newest + 1); err != unix.ENOSYS {
		t.Errorf("a later call: got error %v, want %v", err, unix.ENOSYS)
	}

	// What it needs still works: processes, sockets and the list of interfaces.
	if out, err := exec.Command("/proc/self/exe", "-test.run=^$").CombinedOutput(); err != nil {
		t.Errorf("executing a program: %v: %s", err, out)
	}
	for _, err := range []error{
		open(unix.AF_INET, unix.SOCK_DGRAM, 0), open(unix.AF_INET6, unix.SOCK_STREAM, 0), open(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0),
		open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
	} {
		if err != nil {
			t.Errorf("opening a socket: %v", err)
		}
	}
	t.Log("checked as a restricted process")
}

func call0(number uintptr) error {
	if _, _, errno := unix.Syscall(number, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func open(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func readParent() error {
	var b [1]byte
	_, err := unix.ProcessVMReadv(os.Getppid(), []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 4096, Len: 1}}, 0)
	return err
}
