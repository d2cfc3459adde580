package watch

import (
	"os"
	"syscall"
)

// nonBlocking is the flag for os.OpenFile not to wait for the other end of a named pipe.
const nonBlocking = syscall.O_NONBLOCK

// tryLock reports whether it has locked f.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK || err == syscall.EINTR {
		return false, nil
	}
	return err == nil, err
}
