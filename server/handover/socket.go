package handover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// dialTimeout is how long Dial waits: longer than the old process needs for a reload.
	dialTimeout = 15 * time.Second
	// EndTimeout is how long a process waits for the end of one that has been killed. The kernel closes its
	// sockets one after the other, on a busy machine in many milliseconds.
	EndTimeout = 5 * time.Second
	// endPause is the time between two looks whether it has ended.
	endPause = 10 * time.Millisecond
)

// errEnded is that the other process has ended, perhaps before it accepted the connection.
var errEnded = errors.New("the process has ended")

// Dial connects to the server that listens at path, and exchanges hello with it. It
// returns nil if no process listens there. The caller must hold the lock of path.
func Dial(path string) (*Conn, error) {
	until := time.Now().Add(EndTimeout)
	for {
		c, err := dial(path)
		if !errors.Is(err, errEnded) {
			return c, err
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%s: a process listens there, and ends each connection", path)
		}
		time.Sleep(endPause)
	}
}

// dial makes one attempt.
func dial(path string) (*Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	unix, err := d.Dial("unixpacket", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	c, err := newConn(unix.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = c.Send(Message{Kind: Hello, Version: Version}, dialTimeout)
	if err == nil {
		_, err = c.Receive(dialTimeout, Hello)
	}
	if err != nil {
		c.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return nil, errEnded
		}
		return nil, err
	}
	return c, nil
}

// Accept answers hello on a connection from Requests.
func (c *Conn) Accept() error {
	m, err := c.Receive(dialTimeout, Hello)
	if err != nil {
		return err
	}
	if m.Version != Version {
		err := fmt.Errorf("process %d has version %d of the protocol, want %d: restart the server instead",
			c.PID, m.Version, Version)
		_ = c.Send(Message{Kind: Refused, Error: err.Error()}, dialTimeout)
		return err
	}
	return c.Send(Message{Kind: Hello, Version: Version}, dialTimeout)
}

// A Listener receives connections from processes that want to replace this one.
type Listener struct {
	// Requests receives the connections, one after the other.
	Requests chan *Conn

	unix    *net.UnixListener
	running sync.WaitGroup
	stopped chan struct{}
}

// Listen listens at path, in place of a socket on which no process listens any more.
// The caller must hold the lock of path. rejected is called with the error of each
// connection that is rejected.
func Listen(path string, rejected func(error)) (*Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	}
	if c, err := net.DialTimeout("unixpacket", path, dialTimeout); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("another process listens at %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	unix, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = unix.Close()
		return nil, err
	}
	unix.SetUnlinkOnClose(false)
	return newListener(unix, rejected), nil
}

// ListenFile listens on the socket that another process has opened, and closes f.
func ListenFile(f *os.File, rejected func(error)) (*Listener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("%s is not a Unix socket", l.Addr())
	}
	return newListener(unix, rejected), nil
}

func newListener(unix *net.UnixListener, rejected func(error)) *Listener {
	l := &Listener{Requests: make(chan *Conn), unix: unix, stopped: make(chan struct{})}
	l.running.Go(func() { l.accept(rejected) })
	return l
}

func (l *Listener) accept(rejected func(error)) {
	for {
		unix, err := l.unix.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}

		var c *Conn
		if err == nil {
			c, err = newConn(unix)
		}
		if err != nil {
			rejected(err)
			select {
			case <-time.After(10 * time.Millisecond): // for file descriptors
				continue
			case <-l.stopped:
				return
			}
		}

		select {
		case l.Requests <- c:
		case <-l.stopped:
			c.Close()
			return
		}
	}
}

// File returns a copy of the socket, which the caller must close.
func (l *Listener) File() (*os.File, error) { return l.unix.File() }

// Close stops listening. It does not remove the file of the socket.
func (l *Listener) Close() {
	close(l.stopped)
	_ = l.unix.Close()
	l.running.Wait()
}
