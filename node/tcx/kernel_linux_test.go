package tcx

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
		self + " -test.v -test.run '^TestLoad$'\necho o >/proc/sysrq-trigger\nsleep 60\n"
	if err := os.WriteFile(filepath.Join(dir, "init"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, uml, "mem=512M", "umid=test", "uml_dir="+dir, "root=/dev/root", "rootfstype=hostfs",
		"rootflags=/", "ro", "init="+filepath.Join(dir, "init"), "con0=null,fd:1", "con=null")
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir}
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
