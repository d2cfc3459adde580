// Package race tells tests whether the race detector is on. It makes computing five to ten
// times as expensive, and it finds nothing more in a thousand random worlds of one goroutine
// than in a hundred: such a test repeats itself Fewer times with it, and make test runs it
// again without it. So it does with the tests that Skip skips: they compute in one goroutine, or
// drive a program that was built without the detector.
package race

import "testing"

// Fewer returns n, or a tenth of it and at least one with the race detector.
func Fewer[N int | uint64](n N) N {
	if Enabled {
		return max(n/10, 1)
	}
	return n
}

// Skip skips a test with the race detector.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("make test runs it without the race detector")
	}
}
