//go:build linux && !amd64

package cmd_test

import "syscall"

// restrictCalls returns an error: the list of system calls is for amd64, and tests that
// need it are skipped.
func restrictCalls() syscall.Errno { return syscall.ENOSYS }
