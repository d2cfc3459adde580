// Package program runs the command line in processes of a test binary: with the race detector
// if the test has it. Only tests import it.
package program

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/seamark/seamark/test/orphans"
)

// The environment of a process of Command.
const (
	// Variable makes the process run the command line. It is not empty.
	Variable = "SEAMARK_TEST_MAIN"
	// times are the cmd.NodeTimes of the process in JSON.
	times = "SEAMARK_TEST_TIMES"
)

// Main runs the tests of m by orphans.Main, or the command line in a process of Command. TestMain calls it.
func Main(m *testing.M) {
	if os.Getenv(Variable) != "" {
		var t cmd.NodeTimes
		_ = json.Unmarshal([]byte(os.Getenv(times)), &t)
		build := cmd.Build{Version: "test", Commit: "c0ffee", Date: "2026-11-22T21:00:00Z"}
		cmd.MainWithTimes(builtin.Directives(), build, t)
	}
	orphans.Main(m)
}

// Command returns a process that will run the command line in a directory.
func Command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), Variable+"=1", "GORACE=atexit_sleep_ms=0")
	return c
}

// SetTimes sets the times of the command node.
func SetTimes(c *exec.Cmd, t cmd.NodeTimes) {
	text, _ := json.Marshal(t) // numbers only
	c.Env = append(c.Env, times+"="+string(text))
}
