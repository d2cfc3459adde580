// Package terminal reports whether a file is a terminal, and how wide it is.
package terminal

import (
	"os"

	"golang.org/x/term"
)

// Is reports whether a reader or a writer is a file that is a terminal.
func Is(stream any) bool {
	is := false
	control(stream, func(fd int) { is = term.IsTerminal(fd) })
	return is
}

// usual is the width of a terminal that does not report one.
const usual = 80

// Columns returns the width of a terminal, and 0 for all other readers and writers.
func Columns(stream any) (n int) {
	control(stream, func(fd int) {
		if !term.IsTerminal(fd) {
			return
		}
		if n, _, _ = term.GetSize(fd); n <= 0 {
			n = usual
		}
	})
	return n
}

// control calls do with the descriptor of a file.
func control(stream any, do func(fd int)) {
	f, ok := stream.(*os.File)
	if !ok {
		return
	}
	if raw, err := f.SyscallConn(); err == nil { // Fd would make the file blocking
		_ = raw.Control(func(fd uintptr) { do(int(fd)) }) // a closed file is no terminal
	}
}
