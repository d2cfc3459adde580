// Package cgroup reads the limits of the control groups of the process, of cgroup v1 or v2
// (see cgroups(7)). A container's limits are such limits.
package cgroup

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// unlimited is the value, page-aligned, that cgroup v1 shows without a limit.
const unlimited = math.MaxInt64 &^ 0xFFFF

// MemoryLimit returns the lowest memory limit, in bytes, of the process's groups. root is the
// file system "/".
func MemoryLimit(root fs.FS) (limit int64, ok bool) {
	limit = unlimited
	for _, g := range groups(root, "memory") {
		file := "memory.max"
		if g.version == 1 {
			file = "memory.limit_in_bytes"
		}
		if n, ok := g.number(root, file); ok { // else it is "max"
			limit = min(limit, n)
		}
	}
	return limit, limit < unlimited
}

// CPULimit returns the lowest CPU limit of the process's groups, in processors: 0.5 if its
// threads may run half of the time of one. root is the file system "/".
func CPULimit(root fs.FS) (limit float64, ok bool) {
	limit = math.Inf(1)
	for _, g := range groups(root, "cpu") {
		quota, okQuota := g.number(root, "cpu.cfs_quota_us")
		period, okPeriod := g.number(root, "cpu.cfs_period_us")
		if g.version == 2 {
			quota, okQuota = g.number(root, "cpu.max")
			period, okPeriod = g.field(root, "cpu.max", 1)
		}
		if okQuota && okPeriod {
			limit = min(limit, float64(quota)/float64(period))
		}
	}
	return limit, !math.IsInf(limit, 1)
}

// Processors returns the number of processors that the process may use at the same time. It
// is GOMAXPROCS unless the CPU limit is lower: Go uses at least two threads, however low the
// limit is.
func Processors() int {
	n := runtime.GOMAXPROCS(0)
	if limit, ok := CPULimit(os.DirFS("/")); ok {
		n = min(n, max(1, int(math.Ceil(limit))))
	}
	return n
}

// A group is a directory of a control group.
type group struct {
	version int
	dir     string
}

// groups returns the groups of the process that a controller's limits can be of: its own,
// and the groups above it. A container may see its own group as the root, whatever the path
// is.
func groups(root fs.FS, controller string) (all []group) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil // not Linux
	}

	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		g := group{version: 2, dir: "sys/fs/cgroup"}
		switch {
		case slices.Contains(strings.Split(parts[1], ","), controller):
			g = group{version: 1, dir: path.Join(g.dir, controller)}
		case parts[0] != "0" || parts[1] != "":
			continue
		}

		for p := path.Join("/", parts[2]); ; p = path.Dir(p) {
			all = append(all, group{g.version, path.Join(g.dir, p)})
			if p == "/" {
				break
			}
		}
	}
	return all
}

// number returns the first field of a file if it is a positive number.
func (g group) number(root fs.FS, file string) (n int64, ok bool) { return g.field(root, file, 0) }

func (g group) field(root fs.FS, file string, i int) (n int64, ok bool) {
	text, err := fs.ReadFile(root, path.Join(g.dir, file))
	fields := strings.Fields(string(text))
	if err != nil || i >= len(fields) {
		return 0, false
	}
	n, err = strconv.ParseInt(fields[i], 10, 64)
	return n, err == nil && n > 0
}
