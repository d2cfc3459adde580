// Package pidfd waits for the ends of processes that are not children of this one.
package pidfd

import (
	"time"

	"golang.org/x/sys/unix"
)

// Await blocks until a process has ended and the kernel has closed its files, or limit has passed. It returns at
// once if the process is not seen from here: 0, one that has ended before, or any on other systems than Linux.
func Await(pid int, limit time.Duration) {
	if pid <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)

	for until := time.Now().Add(limit); ; {
		left := max(time.Until(until), 0)
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond))
		if err != unix.EINTR {
			return
		}
	}
}
