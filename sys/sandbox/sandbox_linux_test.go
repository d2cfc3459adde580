package sandbox

import (
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
