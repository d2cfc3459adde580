// Package clock measures time from the start of the process. Such a time fits into an
// atomic integer, and a step of the system's clock does not change it, as it would
// change a Unix time. It also waits: until a context ends, or for many timers.
package clock

import "time"

// start is a second early, so that no time is zero.
var start = time.Now().Add(-time.Second)

// Now returns the present time.
func Now() time.Duration { return At(time.Now()) }

// At returns the time of t, which must be a result of time.Now.
func At(t time.Time) time.Duration { return t.Sub(start) }
