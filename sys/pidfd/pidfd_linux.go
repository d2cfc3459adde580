// Package pidfd waits for the ends of processes that are not children of this one.
package pidfd

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Await blocks until a process has ended and the kernel has closed its files, or limit has passed. It returns at
// once if the process is not seen from here: 0, one that has ended before, or any on other systems than Linux. It
// does not wait for this process: where a test has several servers in one, that would be real time in a virtual one.
func Await(pid int, limit time.Duration) {
	if pid <= 0 || pid == os.Getpid() {
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
