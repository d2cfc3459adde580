package cmd

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/seamark/seamark/sys/memory"
)

// detectMemory returns the memory budget of the process, and logs how it is divided.
func detectMemory(log *slog.Logger) *memory.Budget {
	b := memory.Detect(os.DirFS("/"))
	b.Log(log)
	return b
}

// collectOften makes Go's garbage collector run when the heap has grown by a quarter, in place
// of the whole. Most memory of a node's cache are answers, and it makes little garbage; its
// supervisor has little memory at all. The environment variable GOGC takes precedence.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}
