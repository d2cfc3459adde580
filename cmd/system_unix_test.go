//go:build unix

package cmd_test

import (
	"net"
	"os"
	"syscall"
)

// reloadSignals returns the two signals for a reload.
func reloadSignals() [2]os.Signal { return [2]os.Signal{syscall.SIGHUP, syscall.SIGUSR1} }

// closedByServer reports whether the server has closed the connection. Clients that
// keep connections check that before they send a query (RFC 7766 §6.2.4).
func closedByServer(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err != nil && err != syscall.EAGAIN
	})
	return closed
}
