//go:build !linux

package pidfd

import "time"

// Await does nothing.
func Await(int, time.Duration) {}
