package supervisor

import (
	"os"

	"golang.org/x/sys/unix"
)

// queueSize is the size of the receive buffer of a UDP socket, in bytes: it holds the
// queries of 100 ms at 20,000 queries a second, also if all come from one client. The
// kernel adds as much for its own data.
const queueSize = 2 << 20

// A socket is the descriptor of a socket that the supervisor keeps and does not read. An
// *os.File would be a waste: the runtime would be woken for each packet.
type socket int

// keep returns the socket of f, and closes f. It is negative after an error.
func keep(f *os.File) socket {
	s := -1
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { s, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
	_ = f.Close()
	return socket(s)
}

// copy returns a copy for another process.
func (s socket) copy() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(s), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

func closeSockets(sockets []socket) {
	for _, s := range sockets {
		_ = unix.Close(int(s))
	}
}

// enlargeBuffers enlarges the receive buffers of UDP sockets, which needs NET_ADMIN.
func enlargeBuffers(sockets []socket) {
	for _, s := range sockets {
		kind, err := unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_TYPE)
		if err == nil && kind == unix.SOCK_DGRAM {
			_ = unix.SetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueSize)
		}
	}
}
