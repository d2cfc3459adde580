package tcx

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/race"
	"golang.org/x/sys/unix"
)

// The programs load for each combination of address families.
func TestLoad(t *testing.T) {
	four, six := Pair{cluster4, alias4}, Pair{cluster6, alias6}
	for _, pairs := range [][]Pair{{four}, {six}, {four, six}} {
		p, err := load(pairs, 53, Times{})
		if err != nil {
			if s, why := loadSupport(err); s == Unsupported {
				t.Skipf("BPF programs may not be loaded: %v", why)
			}
			t.Fatalf("%v: %v", pairs, err)
		}
		if p.unrepeated != nil {
			t.Errorf("%v: no replies are repeated: %v", pairs, p.unrepeated)
		}
		p.close()
	}
}

// kernelVariable names the user-mode kernel that this program becomes.
const kernelVariable = "SEAMARK_TEST_KERNEL"

// becomeKernel executes the kernel, if it is named. A user-mode kernel keeps the registers of its processes with ptrace, in less memory than processors with AMX
// need. Where the kind of the extended state is unknown it uses an older request, whose size is the same everywhere.
// That keeps no wide registers: with GODEBUG=cpu.all=off Go uses none.
func becomeKernel() {
	kernel := os.Getenv(kernelVariable)
	if kernel == "" {
		return
	}
	_ = os.Unsetenv(kernelVariable)
	if err := hideExtendedState(); err != nil {
		panic(err)
	}
	panic(unix.Exec(kernel, append([]string{kernel}, os.Args[1:]...), os.Environ()))
}

// hideExtendedState has ptrace fail with EINVAL, also in programs that are executed later, when it is asked for the
// registers by their kind.
func hideExtendedState() error {
	const number, request = 0, 16 // offsets in struct seccomp_data
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_PTRACE},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: request},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.PTRACE_GETREGSET},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}

	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
}

// The programs load on an older kernel than most machines have: verifiers differ in what they know of a number.
func TestLoadUserModeKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a kernel")
	}
	if race.Enabled {
		t.Skip("the race detector needs addresses that a user-mode kernel does not have")
	}
	uml := debian.Program(t, "linux.uml")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	// The kernel has the machine's files, read-only, and its console is the command's output.
	dir := t.TempDir()
	script := "#!/bin/sh\nmount -t proc proc /proc\n" +
		"GODEBUG=cpu.all=off " + self + " -test.v -test.run '^TestLoad$'\necho o >/proc/sysrq-trigger\nsleep 60\n"
	if err := os.WriteFile(filepath.Join(dir, "init"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "mem=512M", "umid=test", "uml_dir="+dir, "root=/dev/root", "rootfstype=hostfs",
		"rootflags=/", "ro", "init="+filepath.Join(dir, "init"), "con0=null,fd:1", "con=null")
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, kernelVariable + "=" + uml}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	out, err := cmd.CombinedOutput()

	switch _, version, started := strings.Cut(string(out), "Linux version "); {
	case bytes.Contains(out, []byte("--- PASS: TestLoad ")):
		t.Log(strings.Fields(version)[0])
	case !started:
		t.Skipf("the kernel does not start: %v: %s", err, out)
	default:
		t.Fatalf("%v: %s", err, out)
	}
}
