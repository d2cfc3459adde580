// Package terminal reports whether a file is a terminal.
package terminal

import "os"

// Is reports whether a reader or a writer is a file that is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	raw, err := f.SyscallConn() // Fd would make the file blocking
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) { is = isTerminal(fd) })
	return err == nil && is
}
