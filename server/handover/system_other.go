//go:build !linux

package handover

import (
	"errors"
	"net"
	"os"
)

// Other systems lack Unix sockets with packets, or the credentials of the peer.
func peer(*net.UnixConn) (pid, uid int, err error) { return 0, 0, errors.ErrUnsupported }

func rights(int) []byte { return nil }

func received([]byte) ([]*os.File, error) { return nil, errors.ErrUnsupported }
