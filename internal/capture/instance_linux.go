package capture

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPeers limits the number of processes that wait for this one to end.
	maxPeers = 16
	// claimDelay is the time between two attempts to become the first instance.
	claimDelay = 100 * time.Millisecond
)

// An instance finds out whether other processes serve the same interface in the same
// network namespace, whichever container they run in: the first listens on an abstract
// unix socket, and the others hold a connection to it.
type instance struct {
	name string
	log  *slog.Logger
	end  context.CancelFunc
	task sync.WaitGroup

	mu    sync.Mutex
	peers map[net.Conn]bool
}

// joinInstances starts an instance. second reports whether another one was there first.
func joinInstances(interfaceName string, log *slog.Logger) (i *instance, second bool) {
	ctx, end := context.WithCancel(context.Background())
	i = &instance{name: instanceName(interfaceName), log: log, end: end, peers: map[net.Conn]bool{}}
	listener, err := net.Listen("unix", i.name)
	second = errors.Is(err, unix.EADDRINUSE)
	i.task.Go(func() { i.run(ctx, listener) })
	return i, second
}

func instanceName(interfaceName string) string { return "@seamark-node-" + interfaceName }

// instanceRuns reports whether a process serves the interface.
func instanceRuns(interfaceName string) bool {
	conn, err := net.Dial("unix", instanceName(interfaceName))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// run listens, or waits until the first instance ends and listens then.
func (i *instance) run(ctx context.Context, listener net.Listener) {
	for ctx.Err() == nil {
		if listener != nil {
			i.accept(ctx, listener)
			return
		}
		var dialer net.Dialer
		if conn, err := dialer.DialContext(ctx, "unix", i.name); err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.Copy(io.Discard, conn) // until the other one ends
			stop()
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(claimDelay):
		}
		listener, _ = net.Listen("unix", i.name)
	}
}

func (i *instance) accept(ctx context.Context, listener net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // such as too many open files
			time.Sleep(claimDelay)
			continue
		case !trusted(conn) || !i.add(conn):
			_ = conn.Close()
			continue
		}
		i.task.Go(func() {
			_, _ = io.Copy(io.Discard, conn)
			i.mu.Lock()
			delete(i.peers, conn)
			i.mu.Unlock()
			_ = conn.Close()
		})
	}
}

func (i *instance) add(conn net.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.peers) >= maxPeers {
		return false
	}
	i.peers[conn] = true
	return true
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

// successors returns the number of other processes that serve the interface and go on
// when this one ends.
func (i *instance) successors() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.peers)
}

// close ends the instance.
func (i *instance) close() {
	i.end()
	i.mu.Lock()
	for conn := range i.peers {
		_ = conn.Close()
	}
	i.mu.Unlock()
	i.task.Wait()
}
