package capture

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"golang.org/x/sys/unix"
)

const (
	// maxPeers limits the number of processes that wait for this one to end.
	maxPeers = 16
	// claimDelay is the time between two attempts to become the first instance.
	claimDelay = 100 * time.Millisecond
	// claimTries is how often an instance that ends looks for the next one.
	claimTries = 5
)

// An instance finds out whether other processes serve the same interface in the same
// network namespace, whichever container they run in: the first listens on an abstract
// unix socket, and the others hold a connection to it. They send a byte once they serve.
type instance struct {
	name string
	log  *slog.Logger
	task follow.Task

	mu       sync.Mutex
	listener net.Listener      // nil unless this is the first instance
	first    net.Conn          // to the first instance; nil if this is the first
	serving  bool              // this instance serves
	peers    map[net.Conn]bool // whether the other process serves
	changed  chan struct{}     // closed and replaced when peers change
	released bool              // another instance has become the first
}

// joinInstances starts an instance. second reports whether another one was there first.
func joinInstances(interfaceName string, log *slog.Logger) (i *instance, second bool) {
	i = &instance{
		name: instanceName(interfaceName), log: log,
		peers: map[net.Conn]bool{}, changed: make(chan struct{}),
	}
	listener, err := net.Listen("unix", i.name)
	second = errors.Is(err, unix.EADDRINUSE)
	i.task.Go(func(ctx context.Context) { i.run(ctx, listener) })
	return i, second
}

func instanceName(interfaceName string) string { return "@seamark-node-" + interfaceName }

// instanceRuns reports whether a process serves the interface.
func instanceRuns(interfaceName string) bool { return instanceOf(instanceName(interfaceName)) }

func instanceOf(name string) bool {
	conn, err := net.Dial("unix", name)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// run listens, or waits until the first instance ends and listens then.
func (i *instance) run(ctx context.Context, listener net.Listener) {
	for ctx.Err() == nil {
		if listener == nil {
			listener, _ = net.Listen("unix", i.name)
		}
		if listener != nil {
			i.accept(ctx, listener)
			return
		}
		var dialer net.Dialer
		if conn, err := dialer.DialContext(ctx, "unix", i.name); err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			started := time.Now()
			i.follow(conn)
			stop()

			// The first instance may close a connection at once, as it has too many or runs as another user. The
			// name of one that has ended is free now.
			if time.Since(started) >= claimDelay {
				continue
			}
		}
		if !clock.Sleep(ctx, claimDelay) {
			return
		}
	}
}

// follow holds the connection to the first instance until that one ends or releases the
// name.
func (i *instance) follow(conn net.Conn) {
	i.mu.Lock()
	i.first = conn
	if i.serving {
		_, _ = conn.Write([]byte{1})
	}
	i.mu.Unlock()
	_, _ = io.Copy(io.Discard, conn)
	i.mu.Lock()
	i.first = nil
	i.mu.Unlock()
	_ = conn.Close()
}

// announce tells the first instance that this one serves.
func (i *instance) announce() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.serving = true
	if i.first != nil {
		_, _ = i.first.Write([]byte{1})
	}
}

// accept counts the instances that wait for this one to end, until ctx ends.
func (i *instance) accept(ctx context.Context, listener net.Listener) {
	i.mu.Lock()
	i.listener = listener
	i.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			time.Sleep(claimDelay)
			continue
		case !trusted(conn) || !i.set(conn, false):
			_ = conn.Close()
			continue
		}

		i.task.Go(func(context.Context) {
			if n, _ := conn.Read(make([]byte, 1)); n == 1 {
				i.set(conn, true)
				_, _ = io.Copy(io.Discard, conn)
			}
			i.mu.Lock()
			delete(i.peers, conn)
			i.notify()
			i.mu.Unlock()
			_ = conn.Close()
		})
	}
}

// set records a peer, unless there are too many.
func (i *instance) set(conn net.Conn, serving bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.peers[conn]; !known && len(i.peers) >= maxPeers {
		return false
	}
	i.peers[conn] = serving
	i.notify()
	return true
}

// notify wakes release. The caller holds the lock.
func (i *instance) notify() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// release blocks until another instance serves, if there is one, at most for the timeout.
// It then lets that one become the first.
func (i *instance) release(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for waiting := true; waiting; {
		i.mu.Lock()
		changed := i.changed
		waiting = len(i.peers) > 0
		for _, serving := range i.peers {
			waiting = waiting && !serving
		}
		i.mu.Unlock()

		if waiting {
			select {
			case <-changed:
			case <-timer.C:
				waiting = false
			}
		}
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.peers) == 0 {
		return
	}

	i.released = true
	_ = i.listener.Close() // there is one, since there are peers
	for conn := range i.peers {
		_ = conn.Close()
	}
}

// succeeded reports whether another instance goes on when this one ends.
func (i *instance) succeeded() bool {
	i.mu.Lock()
	peers, released, listens := len(i.peers), i.released, i.listener != nil
	i.mu.Unlock()
	if !released {
		return peers > 0 || !listens && instanceOf(i.name)
	}
	for range claimTries { // the other one may not listen yet
		if instanceOf(i.name) {
			return true
		}
		time.Sleep(claimDelay)
	}
	return false
}

// trusted reports whether the peer is root or runs as the same user: any process in the
// network namespace can connect.
func trusted(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	_ = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && (peer.Uid == 0 || int(peer.Uid) == unix.Getuid())
	})
	return ok
}

// close ends the instance.
func (i *instance) close() {
	i.task.Cancel()
	i.mu.Lock()
	for conn := range i.peers {
		_ = conn.Close()
	}
	i.mu.Unlock()
	i.task.Wait()
}
