package cmd

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory sets the soft memory limit of Go's garbage collector to 90 % of the
// limit of the control group; the rest is for memory outside the Go heap. Near
// the limit the collector runs more often, so that a burst of garbage does not
// get the process killed. The environment variable GOMEMLIMIT takes precedence.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := memoryLimit(os.DirFS("/")); ok {
		soft := limit / 10 * 9
		debug.SetMemoryLimit(soft)
		log.Info("Set the soft memory limit below the limit of the control group", "limit", limit, "soft_limit", soft)
	}
}

// unlimited is the value, page-aligned, that cgroup v1 shows without a limit.
const unlimited = math.MaxInt64 &^ 0xFFFF

// memoryLimit returns the lowest memory limit, in bytes, of the control groups of
// the process, of cgroup v1 or v2 (see cgroups(7)). root is the file system "/".
func memoryLimit(root fs.FS) (limit int64, ok bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false // not Linux
	}
	limit = unlimited
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "memory":
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[0] != "0" || parts[1] != "":
			continue
		}
		// A container may see its own group as the root, whatever the path is.
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			if text, err := fs.ReadFile(root, path.Join(mount, group, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
					limit = min(limit, n)
				} // or it is "max"
			}
			if group == "/" {
				break
			}
		}
	}
	return limit, limit < unlimited
}
