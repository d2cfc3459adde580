//go:build !linux

package descriptors

import "math"

// Limit returns the number of files and sockets that the process may open, which is not known.
func Limit() int { return math.MaxInt }
