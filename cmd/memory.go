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

// limitMemory tells Go's garbage collector how much memory the process may use:
// nine tenths of what its control group allows, which leaves room for what is not
// the collector's. Near the limit it collects sooner, so that a burst of garbage
// is not the end of the process. Who sets GOMEMLIMIT has decided.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := memoryLimit(os.DirFS("/")); ok {
		soft := limit / 10 * 9
		debug.SetMemoryLimit(soft)
		log.Info("memory is limited by the control group", "limit", limit, "garbage_is_collected_below", soft)
	}
}

// unlimited is what the first version of control groups calls no limit, or more.
const unlimited = math.MaxInt64 &^ 0xFFFF

// memoryLimit is the least limit, in bytes, of the control groups that the
// process is in (cgroups(7)): of the memory controller of either version. root is
// "/".
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
		// A container may see its own group as the root, whatever the path says.
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
