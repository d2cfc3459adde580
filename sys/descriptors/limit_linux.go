package descriptors

import (
	"math"

	"golang.org/x/sys/unix"
)

// Limit returns the number of files and sockets that the process may open.
func Limit() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}
