//go:build !linux

package transport

import (
	"errors"
	"net/netip"
	"syscall"
)

// sharded is false: all readers share one socket.
const sharded = false

// controlSize is zero: there are no control messages, so the system chooses the
// source address of replies from a socket bound to a wildcard address. If clients use
// several addresses of a machine, bind each of them.
const controlSize = 0

func controlTCP(_, _ string, _ syscall.RawConn) error { return nil }

func controlUDP(netip.Addr) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error { return nil }
}

// runBatches returns false: there is no recvmmsg.
func runBatches(*reader) bool { return false }

// truncated reports whether a datagram filled its buffer and may have been larger.
func truncated(_, n int) bool { return n == datagram }

// tooLarge reports whether a datagram was larger than its buffer: an error on Windows
// (WSAEMSGSIZE).
func tooLarge(err error) bool {
	const wsaEMsgSize = syscall.Errno(10040) // no error of any other system
	return errors.Is(err, wsaEMsgSize)
}

func replyInfo([]byte) (netip.Addr, int, int) { return netip.Addr{}, 0, 0 }

func controlMessage(netip.Addr, int, bool) []byte { return nil }
