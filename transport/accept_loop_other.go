//go:build !linux

package transport

import (
	"errors"
	"net/netip"
	"os"
)

// An acceptLoop exists only on Linux. Elsewhere every connection has a goroutine.
type acceptLoop struct{}

func openAcceptLoop(*Listener) *acceptLoop { return nil }

func (*acceptLoop) run()             {}
func (*acceptLoop) await(*conn) bool { return false }
func (*acceptLoop) wake()            {}
func (*acceptLoop) close()           {}
func (*acceptLoop) pause(bool)       {}

// adopt is not called: no process passes connections.
func adopt(*os.File) (sock socket, peer, local netip.AddrPort, err error) {
	return nil, peer, local, errors.ErrUnsupported
}
