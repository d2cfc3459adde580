package memory

import (
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/seamark/seamark/sys/cgroup"
)

// A Source is where the total of a budget comes from.
type Source string

const (
	FromEnvironment Source = "GOMEMLIMIT"
	FromGroup       Source = "control group"
	FromMachine     Source = "machine"
)

// Detect returns the budget of the process: the soft limit below the limit of its control
// group, GOMEMLIMIT if that is less, or the memory of the machine if neither is less. If that
// is unknown, too, the budget is nil.
//
// It also makes that the soft memory limit of Go's garbage collector, unless GOMEMLIMIT sets
// one: near the limit the collector runs more often, so that a burst of garbage does not get the
// process killed. root is the file system "/".
//
// The budget notices when the collector is short of memory: see Budget.Tight.
func Detect(root fs.FS) *Budget {
	b := detect(root)
	if b != nil {
		b.follow()
	}
	return b
}

func detect(root fs.FS) *Budget {
	limit, limited := cgroup.MemoryLimit(root)
	soft := softLimit(limit, size(root, "proc/self/status", "RssFile"))
	set := debug.SetMemoryLimit(-1)
	machine := size(root, "proc/meminfo", "MemTotal")

	switch {
	case os.Getenv("GOMEMLIMIT") != "" && set < math.MaxInt64 && (!limited || set < soft) && (machine == 0 || set < machine/10*9):
		return New(set, FromEnvironment)
	case limited && (machine == 0 || limit < machine):
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(soft)
		}
		return New(soft, FromGroup)
	case machine > 0:
		return New(machine/10*9, FromMachine)
	}
	return nil
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

// size returns the bytes that a line of a file has, such as "RssFile:  10 kB"; zero if there is
// no such line.
//
// RssFile is the resident memory of the process that is backed by files. At the start these are
// already most of the pages that the program will use of its file.
func size(root fs.FS, file, name string) int64 {
	text, _ := fs.ReadFile(root, file)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}
