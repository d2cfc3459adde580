//go:build unix

package hosts

import "syscall"

// mkfifo makes a FIFO; nil if the system has none.
var mkfifo = syscall.Mkfifo
