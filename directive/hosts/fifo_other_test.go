//go:build !unix

package hosts

// mkfifo makes a FIFO; nil if the system has none.
var mkfifo func(path string, mode uint32) error
