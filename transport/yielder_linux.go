package transport

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A yielder lets other goroutines run in place of one that always has work and makes
// no call that the scheduler sees. The monitor thread may be asleep then, so the
// goroutine is not preempted; and while every processor is busy the scheduler does
// not poll the network, so runtime.Gosched is not enough. A yielder waits in the
// netpoller for an eventfd that it has just made ready, which makes the scheduler
// poll all descriptors. A short sleep would do the same, but takes at least a
// millisecond, the resolution of epoll_wait.
type yielder struct {
	file      *os.File // nil if there is no eventfd: yield returns at once
	raw       syscall.RawConn
	number    [8]byte // the value to write, or the value that was read
	signalled bool
	onReady   func(fd uintptr) bool // signalOrRead; a method value for each call would allocate
}

func (y *yielder) open() {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	y.file = os.NewFile(uintptr(fd), "eventfd")
	if y.raw, err = y.file.SyscallConn(); err != nil {
		y.close()
	}
	y.onReady = y.signalOrRead
}

func (y *yielder) close() {
	if y.file != nil {
		y.file.Close()
		y.file = nil
	}
}

// yield blocks until the scheduler has polled the network.
func (y *yielder) yield() {
	if y.file != nil {
		y.signalled = false
		_ = y.raw.Read(y.onReady)
	}
}

func (y *yielder) signalOrRead(fd uintptr) (done bool) {
	if y.signalled {
		_, _, _ = unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&y.number)), uintptr(len(y.number)))
		return true
	}
	y.signalled, y.number = true, [8]byte{1}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&y.number)), uintptr(len(y.number)))
	return errno != 0
}
