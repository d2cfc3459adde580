package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// ThreadTime returns the processor time that the calling thread has used: the caller has locked its
// goroutine to it. On other systems than Linux it is the time that has passed.
func ThreadTime() time.Duration {
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return Now()
	}
	return time.Duration(ts.Nano())
}
