//go:build unix

package forward

import (
	"net"
	"os"
	"syscall"
)

// trySend sends a datagram, and reports no error if the buffer of the socket is full: the
// datagram is lost then. Conn.Write would wait. The buffer is full while the kernel keeps
// some 250 datagrams for a neighbor that does not answer ARP, three seconds each time.
func trySend(conn net.Conn, packet []byte) error {
	c, ok := conn.(syscall.Conn)
	if !ok { // of a test
		_, err := conn.Write(packet)
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}

	var sent error
	err = raw.Write(func(fd uintptr) bool {
		_, sent = syscall.Write(int(fd), packet)
		for sent == syscall.EINTR {
			_, sent = syscall.Write(int(fd), packet)
		}
		return true
	})

	switch {
	case err != nil:
		return err
	case sent == nil || sent == syscall.EAGAIN:
		return nil
	}
	return &net.OpError{
		Op: "write", Net: conn.LocalAddr().Network(), Source: conn.LocalAddr(), Addr: conn.RemoteAddr(),
		Err: os.NewSyscallError("write", sent),
	}
}
