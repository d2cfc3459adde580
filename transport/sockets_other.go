//go:build !linux

package transport

import (
	"errors"
	"net/netip"
	"syscall"
)

// sharded: all readers share one socket.
const sharded = false

// controlSize: there are no control messages, so replies from a wildcard
// address leave from the one that the system chooses. Where a machine has
// several addresses that clients ask, they must be bound one by one.
const controlSize = 0

func controlTCP(_, _ string, _ syscall.RawConn) error { return nil }

func controlUDP(netip.Addr) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error { return nil }
}

// batches: there is no recvmmsg.
func batches(*reader) bool { return false }

// truncated says that a datagram was larger than its room; it may have been.
func truncated(_, n int) bool { return n == datagram }

// tooLarge says the same on Windows, where it is an error (WSAEMSGSIZE).
func tooLarge(err error) bool {
	const wsaEMsgSize = syscall.Errno(10040) // no error of any other system
	return errors.Is(err, wsaEMsgSize)
}

func reverse([]byte) (netip.Addr, int, int) { return netip.Addr{}, 0, 0 }

func controlFrom(netip.Addr, int, bool) []byte { return nil }
