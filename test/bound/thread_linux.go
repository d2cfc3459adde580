package bound

import (
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// ThreadTime returns the CPU time of this thread, which other processes and the garbage
// collector do not add to. The caller has locked the thread.
func ThreadTime(t testing.TB) time.Duration {
	t.Helper()
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		t.Fatal(errno)
	}
	return time.Duration(ts.Nano())
}
