//go:build !unix

package forward

import "net"

// trySend sends a datagram. It waits while the buffer of the socket is full.
func trySend(conn net.Conn, packet []byte) error {
	_, err := conn.Write(packet)
	return err
}
