//go:build !linux

package capture

// Cleanup does nothing.
func Cleanup(Options) (removed, remaining []Leftover, err error) { return nil, nil, nil }
