// Package race tells tests whether the race detector is on. It makes computing five to ten
// times as expensive, and it finds nothing more in a thousand random worlds of one goroutine
// than in a hundred: such a test repeats itself Fewer times with it, and make test runs it
// again without it.
package race

// Fewer returns n, or a tenth of it and at least one with the race detector.
func Fewer[N int | uint64](n N) N {
	if Enabled {
		return max(n/10, 1)
	}
	return n
}
