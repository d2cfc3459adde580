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
)

// soon waits until ok.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for within := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(within) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

// pid waits for a file that a shell writes its number into.
func pid(t *testing.T, file string) int {
	t.Helper()
	n := 0
	soon(t, "no number in "+file, func() bool {
		text, _ := os.ReadFile(file)
		var err error
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return n
}

// adopt makes this process inherit orphans, as process 1 of a container does.
func adopt(t *testing.T) {
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

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// The end of its time takes a command with all whom it has started, and nobody
// stays as a zombie.
func TestProcessIsKilled(t *testing.T) {
	adopt(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	run, err := newCommand("sleep 1000 & echo $! >" + first + "; (sleep 1000 & echo $! >" + second + "; wait) & echo started; wait")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var pids []int
	go func() {
		defer cancel()
		for range 2000 { // not by t, which this goroutine may not end
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
		t.Errorf("%q, %v", out, err)
	}
	for _, file := range []string{first, second} {
		pids = append(pids, pid(t, file))
	}
	for _, p := range pids {
		if !gone(p) {
			t.Errorf("process %d is still there", p)
		}
	}
}

// A command that ends is not waited for longer because of whom it has left behind,
// and they are killed.
func TestProcessLeavesNobody(t *testing.T) {
	adopt(t)
	file := filepath.Join(t.TempDir(), "pid")
	run, err := newCommand("sleep 1000 & echo $! >" + file + "; echo done")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context())
	if err != nil || string(out) != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
	if p := pid(t, file); !gone(p) {
		t.Errorf("process %d is still there", p)
	}
}

// Somebody who has left the process group holds the output open: the command ends
// without him.
func TestProcessWithoutItsOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	run, err := newCommand(`setsid sh -c 'echo $$ >` + file + `; exec sleep 1000' & until [ -s ` + file + ` ]; do sleep 0.01; done; echo done`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid(t, file), syscall.SIGKILL) }()
	out, err := run(t.Context())
	if err != nil || string(out) != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestProcessOutputIsBounded(t *testing.T) {
	run, err := newCommand("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context())
	if err == nil || err.Error() != "exit status 3" || string(out) != strings.Repeat("x", maxOutput) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
