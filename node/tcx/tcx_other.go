//go:build !linux

package tcx

// RemoveLeftovers finds nothing.
func RemoveLeftovers() (int, error) { return 0, nil }
