package cmd

import (
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/seamark/seamark/sys/cgroup"
)

// limitMemory sets the soft memory limit of Go's garbage collector as softLimit returns
// it. Near the limit the collector runs more often, so that a burst of garbage does not
// get the process killed. The environment variable GOMEMLIMIT takes precedence.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	root := os.DirFS("/")
	if limit, ok := cgroup.MemoryLimit(root); ok {
		soft := softLimit(limit, mappedFiles(root))
		debug.SetMemoryLimit(soft)
		log.Info("Set the soft memory limit below the limit of the control group", "limit", limit, "soft_limit", soft)
	}
}

// collectOften makes Go's garbage collector run when the heap has grown by a quarter, in place
// of the whole. Most memory of a node's cache are answers, and it makes little garbage; its
// supervisor has little memory at all. The environment variable GOGC takes precedence.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}

// softLimit returns the memory for Go's heap and stacks in a control group with that
// limit: 90 % of it, since sockets and page tables count, too, less the mapped pages of
// the program's file.
//
// The kernel charges a page of a file to the group that read it first: to this group, to
// the group of another container with the same image, or to the group of the runtime that
// unpacked it. It does not kill a process for such pages but drops them and reads them
// again. If the heap leaves no room for them, the process spends its time on that. The
// collector, too, needs room, so at least half of the limit remains.
func softLimit(limit, files int64) int64 { return max(limit/2, limit/10*9-files) }

// mappedFiles returns the resident memory of the process that is backed by files, in
// bytes; zero if it is unknown. At the start these are already most of the pages that the
// program will use of its file. root is the file system "/".
func mappedFiles(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/self/status")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssFile:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}
