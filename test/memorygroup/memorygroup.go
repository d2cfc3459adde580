// Package memorygroup runs programs of tests in control groups with a memory limit (cgroup v1 or
// v2). Only tests import it.
package memorygroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A Group is a control group.
type Group struct {
	t         testing.TB
	dir       string
	now, most string // files
	kills     string // the file with the line oom_kill
}

// New makes a group that may use limit bytes, until the test ends. The test is skipped where
// that is not permitted: it needs root.
func New(t testing.TB, limit int) *Group {
	t.Helper()
	g := &Group{t, "/sys/fs/cgroup", "memory.current", "memory.peak", "memory.events"}
	limitFile := "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		g = &Group{t, "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"}
		limitFile = "memory.limit_in_bytes"
	}

	var err error
	if g.dir, err = os.MkdirTemp(g.dir, "seamark-test-"); err == nil {
		t.Cleanup(func() { _ = os.Remove(g.dir) })
		err = os.WriteFile(filepath.Join(g.dir, limitFile), []byte(strconv.Itoa(limit)), 0)
	}
	if err != nil {
		t.Skipf("making a memory control group: %v", err)
	}
	return g
}

// Add makes a command run in the group. It has not started yet.
func (g *Group) Add(c *exec.Cmd) {
	join := fmt.Sprintf(`echo $$ > %s/cgroup.procs && exec "$0" "$@"`, g.dir)
	c.Args = append([]string{"/bin/sh", "-c", join, c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
}

// Kills returns how many processes the kernel has killed because the group had no memory left.
func (g *Group) Kills() int {
	for line := range strings.Lines(g.read(g.kills)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	g.t.Errorf("%s/%s has no line oom_kill", g.dir, g.kills)
	return 0
}

// String returns the memory in use and its maximum, with the kernel's page cache.
func (g *Group) String() string {
	megabytes := func(file string) string {
		n, err := strconv.Atoi(strings.TrimSpace(g.read(file)))
		if err != nil {
			return "unknown"
		}
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("memory %s, at most %s", megabytes(g.now), megabytes(g.most))
}

func (g *Group) read(file string) string {
	text, _ := os.ReadFile(filepath.Join(g.dir, file))
	return string(text)
}
