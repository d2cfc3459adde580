//go:build !linux

package clock

import "time"

// ThreadTime returns the time that has passed.
func ThreadTime() time.Duration { return Now() }
