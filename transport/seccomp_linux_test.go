package transport

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// TestRecvmmsgForbidden runs itself in a process where recvmmsg fails, as seccomp
// profiles make it: the listener reads single packets and logs the reason.
func TestRecvmmsgForbidden(t *testing.T) {
	const child = "SEAMARK_TEST_FORBID"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRecvmmsgForbidden$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("the test without recvmmsg: got error %v, want none\n%s", err, out)
		} else if strings.Contains(string(out), "SKIP") {
			t.Skipf("%s", out)
		}
		return
	}
	if err := forbid(unix.SYS_RECVMMSG); err != nil {
		t.Skip("seccomp:", err)
	}
	out := new(logBuffer)
	s := serve(t, "::", Options{Readers: 1, Log: slog.New(slog.NewTextHandler(out, nil))})
	close(s.wait.gate)
	wantA(t, ask(t, "udp", s.at("127.0.0.1"), newQuery("a.in.", mdns.TypeA)), 1)
	wantA(t, ask(t, "udp", s.at("127.0.0.1"), newQuery("a.wait.", mdns.TypeA)), 2)
	if out.count("reading single packets") != 1 {
		t.Errorf("recvmmsg fails: got log\n%s\nwant one line with \"reading single packets\"", out.text())
	}
}

// forbid makes a system call fail with EPERM in all threads of this process until
// it exits.
func forbid(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // load the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
