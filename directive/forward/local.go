package forward

import (
	"errors"
	"slices"
	"syscall"

	"github.com/seamark/seamark/sys/memory"
)

// isLocal reports whether err has its cause in this machine: no descriptors, memory or ports are
// left, or a firewall rule forbids to send. Such an error says nothing about the upstream.
func isLocal(err error) bool {
	if _, full := errors.AsType[*memory.Error](err); full {
		return true
	}
	number, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EPERM, syscall.EACCES,
	}, number)
}
