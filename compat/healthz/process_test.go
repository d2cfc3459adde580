//go:build linux

package healthz

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/test/chaintest"
)

// pid waits for a process ID in a file and returns it.
func pid(t *testing.T, file string) int {
	t.Helper()
	n := 0
	chaintest.Eventually(t, "a process ID in "+file, func() bool {
		text, _ := os.ReadFile(file)
		var err error
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return n
}

// becomeSubreaper makes this process the parent of orphans, as process 1 of a
// container is.
func becomeSubreaper(t *testing.T) {
	t.Helper()
	const setChildSubreaper = 36 // prctl(2)
	set := func(on uintptr) {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, on, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	set(1)
	t.Cleanup(func() { set(0) })
}

func ended(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// Canceling kills a command and its children and leaves no zombie.
func TestProcessCanceled(t *testing.T) {
	becomeSubreaper(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	run, err := newCommand("echo started; sleep 1000 & echo $! >" + first + "; (sleep 1000 & echo $! >" + second + "; wait) & wait")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var pids []int
	go func() {
		defer cancel()
		for range 2000 { // t.Fatal is not allowed in this goroutine
			a, _ := os.ReadFile(first)
			b, _ := os.ReadFile(second)
			if strings.HasSuffix(string(a), "\n") && strings.HasSuffix(string(b), "\n") {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	out, err := run(ctx)
	if err == nil || string(out) != "started\n" {
		t.Errorf("got output %q, error %v; want \"started\\n\" and an error", out, err)
	}
	for _, file := range []string{first, second} {
		pids = append(pids, pid(t, file))
	}
	for _, p := range pids {
		if !ended(p) {
			t.Errorf("process %d exists after the end of its command", p)
		}
	}
}

// The end of a command kills its background children.
func TestProcessBackgroundChild(t *testing.T) {
	becomeSubreaper(t)
	file := filepath.Join(t.TempDir(), "pid")
	run, err := newCommand("sleep 1000 & echo $! >" + file + "; echo done")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context())
	if err != nil || string(out) != "done\n" {
		t.Errorf("got output %q, error %v; want \"done\\n\" and none", out, err)
	}
	if p := pid(t, file); !ended(p) {
		t.Errorf("process %d exists after the end of its command", p)
	}
}

// A process outside the group that keeps the output open does not delay the end.
func TestProcessOutputHeldOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	file := filepath.Join(t.TempDir(), "pid")
	run, err := newCommand(`setsid sh -c 'echo $$ >` + file + `; exec sleep 1000' & until [ -s ` + file + ` ]; do sleep 0.01; done; echo done`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid(t, file), syscall.SIGKILL) }()
	out, err := run(t.Context())
	if err != nil || string(out) != "done\n" {
		t.Errorf("got output %q, error %v; want \"done\\n\" and none", out, err)
	}
}

func TestProcessOutputLimit(t *testing.T) {
	run, err := newCommand("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context())
	if err == nil || err.Error() != "exit status 3" || string(out) != strings.Repeat("x", maxOutput) {
		t.Errorf("got %d bytes, error %v; want %d bytes and exit status 3", len(out), err, maxOutput)
	}
}
