//go:build unix

package watch

import "syscall"

// NoFollow is the flag with which opening a symbolic link fails.
const NoFollow = syscall.O_NOFOLLOW
