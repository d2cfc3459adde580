package orphans

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// victim makes a process of the test binary the one that is killed.
const victim = "SEAMARK_TEST_VICTIM"

func TestMain(m *testing.M) { Main(m) }

// Whatever ends a test binary, no process of its tests is left: its children, those of a thread that has ended, and
// children of these in sessions of their own, whose parents have ended.
func TestKilledBinaryLeavesNothing(t *testing.T) {
	for _, end := range []string{"killed", "panics", "times out", "returns"} {
		t.Run(end, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			timeout := "1m"
			if end == "times out" {
				timeout = "1s"
			}
			c := exec.Command(self, "-test.run=^TestVictim$", "-test.v", "-test.timeout="+timeout)
			c.Env = []string{victim + "=" + end, "PATH=" + os.Getenv("PATH")} // it has a guard of its own
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer c.Wait()

			left := children(t, out)
			if end == "killed" {
				_ = c.Process.Kill()
			}
			_ = in.Close()
			for deadline := time.Now().Add(time.Minute); len(left) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("processes %v live a minute after the end of the test binary, want none", left)
					break
				}
				for pid := range left {
					if ended(pid) {
						delete(left, pid)
					}
				}
			}
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

// ended reports whether a process has ended. Its parent may not have waited for it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

// children returns the process IDs that TestVictim prints.
func children(t *testing.T, out io.Reader) map[int]bool {
	t.Helper()
	pids := map[int]bool{}
	for lines := bufio.NewScanner(out); len(pids) < 3 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "child "); ok {
			pid := 0
			if _, err := fmt.Sscan(text, &pid); err != nil || pid <= 1 {
				t.Fatalf("got %q and error %v, want a process ID", text, err)
			}
			pids[pid] = true
		}
	}
	if len(pids) != 3 {
		t.Fatalf("got processes %v, want 3", pids)
	}
	return pids
}

// TestVictim leaves processes behind, and ends once its input does, or waits to be killed.
func TestVictim(t *testing.T) {
	end := os.Getenv(victim)
	if end == "" {
		return // not a process of TestKilledBinaryLeavesNothing
	}
	// The shell prints its process ID and that of a grandchild, which outlives it.
	for _, line := range []string{"echo child $$; exec sleep 1000", "setsid sh -c 'echo child $$; exec sleep 1000' & setsid sh -c 'echo child $$; exec sleep 1000' &"} {
		c := exec.Command("sh", "-c", line)
		c.Stdout = os.Stdout
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}

	_, _ = io.ReadAll(os.Stdin)
	switch end {
	case "panics":
		panic("of the test")
	case "returns":
		return
	}
	select {}
}
