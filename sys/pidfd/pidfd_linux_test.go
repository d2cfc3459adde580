package pidfd

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/orphans"
)

func TestMain(m *testing.M) { orphans.Main(m) }

// Await returns when a process has ended, and at once for one that is not there.
func TestAwait(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	Await(c.Process.Pid, time.Minute)
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid)); err != nil || !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the process has not ended: %s, error %v", stat, err)
	}
	_ = c.Wait()
	Await(c.Process.Pid, time.Minute)
	Await(0, time.Minute)
}
