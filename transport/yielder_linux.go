package transport

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A yielder lets others have the processor of a goroutine that always has
// something to do and makes no call that the scheduler sees. The monitor thread
// may be asleep then, so nobody takes the processor away; and while something
// can run on each processor nobody looks whether descriptors are ready, so to
// yield is not enough. It waits in the netpoller for an eventfd of its own that
// it has just made ready: that goes through all that is ready meanwhile. A short
// sleep would do the same and take a millisecond, of which epoll cannot wait a
// part.
type yielder struct {
	file      *os.File // nil: there is no eventfd, and nothing is waited for
	raw       syscall.RawConn
	number    [8]byte // 1, or what has been read
	signalled bool
	onReady   func(fd uintptr) bool // made once: it would be allocated at each call
}

func (b *yielder) open() {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	b.file = os.NewFile(uintptr(fd), "eventfd")
	if b.raw, err = b.file.SyscallConn(); err != nil {
		b.close()
	}
	b.onReady = b.signalOrRead
}

func (b *yielder) close() {
	if b.file != nil {
		b.file.Close()
		b.file = nil
	}
}

// take returns when the others have had their turn.
func (b *yielder) yield() {
	if b.file != nil {
		b.signalled = false
		_ = b.raw.Read(b.onReady)
	}
}

func (b *yielder) signalOrRead(fd uintptr) (done bool) {
	if b.signalled {
		_, _, _ = unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&b.number)), uintptr(len(b.number)))
		return true
	}
	b.signalled, b.number = true, [8]byte{1}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b.number)), uintptr(len(b.number)))
	return errno != 0
}
