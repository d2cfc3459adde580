//go:build !linux

package capture

import "errors"

// A Capture is available on Linux only.
type Capture struct{}

// Open fails.
func Open(Options) (*Capture, error) {
	return nil, errors.New("adding local addresses to the node needs Linux: set -capture=none")
}

// Enable does nothing.
func (*Capture) Enable() {}

// Suspend does nothing.
func (*Capture) Suspend() {}

// Disable does nothing.
func (*Capture) Disable() {}

// Close does nothing.
func (*Capture) Close() {}

// Cleanup does nothing.
func Cleanup(Options) (removed, remaining []Leftover, err error) { return nil, nil, nil }
