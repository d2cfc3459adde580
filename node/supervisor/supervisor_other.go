//go:build !linux

package supervisor

import (
	"errors"
	"os"
)

// Supported reports whether the system has what supervisors need.
const Supported = false

// Run fails.
func Run(Options, func() bool) (Exit, error) { return Exit{}, errors.New("a supervisor needs Linux") }

// ReleaseMemory does nothing.
func ReleaseMemory() {}

// A Worker is available on Linux only.
type Worker struct{}

// Passed returns "".
func Passed() string { return "" }

// Connect returns nil.
func Connect() (*Worker, error) { return nil, nil }

// Sockets returns nil.
func (*Worker) Sockets() []*os.File { return nil }

// Open does nothing.
func (*Worker) Open() error { return nil }

// Files returns none.
func (*Worker) Files() []*os.File { return nil }

// Keep does nothing.
func (*Worker) Keep([]*os.File) error { return nil }

// KeepText does nothing.
func (*Worker) KeepText([]byte) error { return nil }

// LastText returns "".
func (*Worker) LastText() string { return "" }

// Beat does nothing.
func (*Worker) Beat() {}

// Attached returns nil.
func (*Worker) Attached() *os.File { return nil }

// Serving does nothing.
func (*Worker) Serving() {}

// Stopping does nothing.
func (*Worker) Stopping() {}

// Count returns 0.
func (*Worker) Count(int) uint64 { return 0 }

// State returns the zero State.
func (*Worker) State() State { return State{} }

// Raise does nothing.
func (Exit) Raise() {}
