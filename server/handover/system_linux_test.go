package handover

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// AwaitEnd returns when a process has ended, and at once for one that is not there.
func TestAwaitEnd(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	AwaitEnd(c.Process.Pid)
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid)); err != nil || !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the process has not ended: %s, error %v", stat, err)
	}
	_ = c.Wait()
	AwaitEnd(c.Process.Pid)
	AwaitEnd(0)
}
