//go:build linux && !amd64

package cmd_test

import "syscall"

// restrictCalls is not implemented: the numbers of system calls differ.
func restrictCalls() syscall.Errno { return syscall.ENOSYS }
