package cmd_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
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

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/program"
)

// The image's binary has the file capability cap_net_bind_service, so that user 65532
// can listen on port 53 in a container that has NET_BIND_SERVICE. Without the file
// capability the error names the missing one; without NET_BIND_SERVICE the kernel
// refuses to execute the binary.
func TestListenOnPrivilegedPort(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: cannot emulate a container's security context; run the test as root")
	}
	binaries := map[bool]string{false: copyOfBinary(t, false), true: copyOfBinary(t, true)}
	address := privilegedAddress(t)
	for _, c := range []struct {
		name                       string
		fileCapability, inBounding bool
		want                       string // of the error; "" if the server answers
	}{
		{"file capability", true, true, ""},
		{"no file capability", false, true, "permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE, which a process of another user gets from the file capability of its binary (setcap cap_net_bind_service=+ep)"},
		{"file capability, all capabilities dropped", true, false, "operation not permitted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			p := exec.CommandContext(t.Context(), self, "-test.run=^TestContainerProcess$", binaries[c.fileCapability], "-conf", "stdin")
			p.Env = append(os.Environ(), "SEAMARK_TEST_CONTAINER="+strconv.FormatBool(c.inBounding))
			p.Dir = "/"
			host, port, _ := net.SplitHostPort(address)
			p.Stdin = strings.NewReader(fmt.Sprintf(".:%s {\n bind %s\n whoami\n}\n", port, host))
			var stderr bytes.Buffer
			p.Stdout, p.Stderr = io.Discard, &stderr
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- p.Wait() }()
			t.Cleanup(func() { _ = p.Process.Kill() })
			answers := false
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				if _, err := ask("udp", address, "a.example.", dns.TypeA); err == nil {
					answers = true
					_ = p.Process.Signal(syscall.SIGTERM)
					break
				}
				if len(ended) > 0 {
					break
				}
			}
			select {
			case err = <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the process did not end within a minute")
			}
			if answers != (c.want == "") || answers != (err == nil) || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("got an answer: %v, %v, and\n%s\nwant %q", answers, err, &stderr, c.want)
			}
		})
	}
}

// Constants of prctl(2) and capabilities(7).
const (
	setKeepCaps      = 8
	dropFromBounding = 24
	setNoNewPrivs    = 38
	netBindService   = 10
	lastCapability   = 63
	capabilityV3     = 0x20080522
)

// TestContainerProcess is not a test: other tests run it in a process
// of its own, which becomes user 65532 as a container runtime does and executes the
// command in its arguments. Only NET_BIND_SERVICE may be in the bounding set. The
// process may not gain privileges (allowPrivilegeEscalation: false). If
// SEAMARK_TEST_WRITABLE names a directory, only that is writable, and only the system calls
// of a container runtime's default profile are allowed.
func TestContainerProcess(*testing.T) {
	inBounding := os.Getenv("SEAMARK_TEST_CONTAINER")
	if inBounding == "" {
		return // not run by another test
	}
	runtime.LockOSThread() // credentials belong to a thread until it executes a program
	writable := os.Getenv("SEAMARK_TEST_WRITABLE")
	check := func(what string, errno syscall.Errno) {
		if errno != 0 {
			fmt.Fprintf(os.Stderr, "%s: %v\n", what, errno)
			os.Exit(3)
		}
	}
	prctl := func(option, value uintptr) syscall.Errno {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0)
		return errno
	}
	if writable != "" {
		if err := readOnlyRoot(writable); err != nil {
			fmt.Fprintf(os.Stderr, "making the root directory read-only: %v\n", err)
			os.Exit(3)
		}
	}
	permitted := uint32(0)
	if inBounding == "true" {
		permitted = 1 << netBindService
	}
	for capability := range uintptr(lastCapability + 1) {
		if capability != netBindService || permitted == 0 {
			if errno := prctl(dropFromBounding, capability); errno != syscall.EINVAL { // the kernel does not have it
				check("dropping a capability from the bounding set", errno)
			}
		}
	}
	check("keeping capabilities", prctl(setKeepCaps, 1))
	const user = 65532
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0)
	check("setgroups", errno)
	_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESGID, user, user, user)
	check("setresgid", errno)
	_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, user, user, user)
	check("setresuid", errno)
	header := struct{ version, pid uint32 }{version: capabilityV3}
	sets := [2]struct{ effective, permitted, inheritable uint32 }{{effective: permitted, permitted: permitted}}
	_, _, errno = syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	check("capset", errno)
	check("setting no_new_privs", prctl(setNoNewPrivs, 1))
	if writable != "" {
		check("setting the seccomp filter", restrictCalls())
	}
	command := os.Args[slices.IndexFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.run") })+1:]
	err := syscall.Exec(command[0], command, append(os.Environ(), program.Variable+"=1", "GORACE=atexit_sleep_ms=0"))
	fmt.Fprintf(os.Stderr, "executing %s: %v\n", command[0], err)
	os.Exit(126)
}

// readOnlyRoot moves this thread to a mount namespace in which only one directory is
// writable.
func readOnlyRoot(writable string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return err
	}
	return errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount(writable, writable, "", syscall.MS_BIND, ""),
		syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
}

// copyOfBinary returns a copy of the binary that every user may execute, with or
// without the file capability.
func copyOfBinary(t *testing.T, fileCapability bool) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "seamark")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if !fileCapability {
		return file
	}
	const noSetuid = 2 // of a mount, which ignores file capabilities then
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Flags&noSetuid != 0 {
		t.Skipf("%s is mounted with nosuid: file capabilities have no effect; set TMPDIR to another file system", dir)
	}
	// The attribute that setcap cap_net_bind_service=+ep writes: version 2, effective.
	attribute := make([]byte, 20)
	binary.LittleEndian.PutUint32(attribute, 0x02000001)
	binary.LittleEndian.PutUint32(attribute[4:], 1<<netBindService)
	err = syscall.Setxattr(file, "security.capability", attribute, 0)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) {
		t.Skipf("setting a file capability in %s: %v; run the test as root outside a user namespace, on a file system with extended attributes", dir, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// privilegedAddress returns a free loopback address whose port needs a privilege.
func privilegedAddress(t *testing.T) string {
	t.Helper()
	start := 1024 // of kernels before 4.11, which do not have the sysctl
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err == nil {
		start, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if start <= 1 {
		t.Skipf("net.ipv4.ip_unprivileged_port_start is %d: no port needs a privilege here; set it to 1024", start)
	}
	for port := start - 1; port > 0 && port > start-100; port-- {
		address := fmt.Sprintf("127.77.0.2:%d", port)
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", address)
		_ = tcp.Close()
		if err == nil {
			_ = udp.Close()
			return address
		}
	}
	t.Fatalf("found no free port from %d to %d on 127.77.0.2", max(1, start-99), start-1)
	return ""
}
