package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// SocketPath returns the path of a Unix socket if an address of Listen is one: unix:PATH.
func SocketPath(address string) (path string, ok bool) { return strings.CutPrefix(address, "unix:") }

// MaxSocketPath is the length of the longest path of a socket, in bytes: listenUnix appends
// newSocket to it, and sun_path of unix(7) has room for 107.
const MaxSocketPath = 107 - len(newSocket)

const newSocket = ".new"

// listenUnix listens on a Unix socket at path, in place of a socket on which no process listens.
// Only the user of this process may connect. The file remains when the listener is closed:
// see RemoveSocket.
func listenUnix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	}
	if err == nil && listens(path) {
		return nil, fmt.Errorf("another process listens at %s", path)
	}

	// Under its final name the socket has its final mode from the beginning.
	unnamed := path + newSocket
	if err := os.Remove(unnamed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: unnamed, Net: "unix"})
	if err != nil {
		return nil, err
	}

	l.SetUnlinkOnClose(false)
	if err = os.Chmod(unnamed, 0o600); err == nil {
		err = os.Rename(unnamed, path)
	}
	if err != nil {
		_ = l.Close()
		_ = os.Remove(unnamed)
		return nil, err
	}
	return l, nil
}

// listens reports whether a process listens on the Unix socket at path.
func listens(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return true
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) // it may be busy
}

// RemoveSocket removes the file of a closed listener on a Unix socket, unless another
// process listens on it: the one that has taken over. It does nothing for TCP addresses.
func RemoveSocket(address string) {
	if path, ok := SocketPath(address); ok && !listens(path) {
		_ = os.Remove(path) // a stale one is replaced
	}
}
