package transport

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxReads is the number of reads after which a connection gets a goroutine:
	// one each for an A and an AAAA query, and two more.
	maxReads = 4

	// maxBusyTCP is how long the loop works before it waits in the netpoller,
	// even if it has more work. On a single processor the scheduler would
	// otherwise not poll the UDP sockets; yielding does not make it.
	maxBusyTCP = 200 * time.Microsecond

	// maxAccepted is how many connections the loop keeps of those that it accepts
	// at once. The others get goroutines, so that other processors serve them.
	maxAccepted = 32
)

// An acceptLoop accepts TCP connections and answers their first queries, all on one
// goroutine. Most connections send no other queries: a client uses TCP for one query
// whose answer was truncated over UDP. While a connection waits in the loop it costs
// a conn and a descriptor, and no goroutine, buffer or query.
//
// The loop never waits for a client. It hands a connection off to a goroutine
// (conn.startReader) if a query is parked, a message is large or incomplete, the
// client does not read its replies, it has sent more than a few queries, or it must
// be closed gracefully.
//
// The loop has an epoll instance for the listening socket and the connections, and
// waits for the instance in the netpoller as for any descriptor. It uses RawSyscall
// for the reason given at batch. Only its goroutine uses the descriptors and the
// loopState of its connections.
type acceptLoop struct {
	l          *Listener
	listener   syscall.RawConn
	listenFD   int32    // of listener
	epollFile  *os.File // the epoll instance
	epollFD    int
	acceptFunc func(fd uintptr) // acceptFrom; a method value for each call would allocate

	serving *sync.Mutex // held while queries are served: see dns.Port
	in      [inSize]byte

	byFD     []*conn // the connections in the loop, by descriptor
	accepted []*conn // by the current acceptNew
	backlog  bool    // there may be more connections to accept
	events   [64]unix.EpollEvent
	event    unix.EpollEvent // argument of EPOLL_CTL_ADD
	addr     sockaddr
	addrLen  uint32

	errors  acceptErrors
	retryAt time.Time // when to accept again after an error; zero if there was none
	checkAt time.Time // when checkDeadlines is due, as the deadline is set; zero if none is
	woken   atomic.Bool
}

// A loopState is the part of a conn that the acceptLoop uses.
type loopState struct {
	fd         int
	inLoop     bool
	registered bool // with epoll
	reads      int
}

// runAcceptLoop accepts connections until the listener stops. It returns false at
// once if the system does not allow epoll.
func runAcceptLoop(l *Listener) bool {
	tcp, ok := l.tcp.(*net.TCPListener)
	if !ok {
		return false
	}
	a := &acceptLoop{l: l, errors: acceptErrors{l: l}}
	if err := a.open(tcp); err != nil {
		l.o.Log.Info("epoll unavailable, using a goroutine for each tcp connection", "error", err)
		return false
	}
	defer a.epollFile.Close()
	a.serving = new(sync.Mutex)
	l.o.Port.AddReader(a.serving)
	defer l.o.Port.RemoveReader(a.serving)
	l.conns.loop.Store(a)
	l.acceptor.Go(func() {
		<-l.stopping
		a.wake()
	})
	a.run()
	return true
}

func (a *acceptLoop) open(tcp *net.TCPListener) (err error) {
	if a.listener, err = tcp.SyscallConn(); err != nil {
		return err
	}
	if a.epollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(a.epollFD, true); err != nil { // NewFile registers only non-blocking descriptors with the netpoller
		_ = unix.Close(a.epollFD)
		return err
	}
	a.epollFile = os.NewFile(uintptr(a.epollFD), "epoll")
	if err = a.epollFile.SetReadDeadline(time.Time{}); err == nil {
		err = with(a.listener, func(fd int) error {
			a.listenFD = int32(fd)
			return unix.EpollCtl(a.epollFD, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		})
	}
	if err != nil {
		a.epollFile.Close()
		return err
	}
	a.acceptFunc = a.acceptFrom
	return nil
}

func (a *acceptLoop) run() {
	raw, err := a.epollFile.SyscallConn()
	if err != nil {
		return // cannot happen: the file is open
	}
	serve := a.handleEvents
	for !a.l.isStopping() {
		_ = raw.Read(serve) // until checkDeadlines is due
		a.checkDeadlines()
	}
	for _, c := range a.byFD {
		if c != nil {
			a.handOff(c) // its goroutine sees that the listener stops
		}
	}
}

// wake makes the loop call checkDeadlines. It may be called from any goroutine.
func (a *acceptLoop) wake() {
	a.woken.Store(true)
	_ = a.epollFile.SetReadDeadline(pastDeadline())
}

// handleEvents is called by the netpoller when the epoll instance is ready. It
// handles events until there are none, or for maxBusyTCP, and then returns false to
// wait again. It returns true when checkDeadlines is due.
//
// The netpoller is edge-triggered: handleEvents may wait only after it has handled
// everything that the last epoll_pwait reported.
func (a *acceptLoop) handleEvents(uintptr) (done bool) {
	start := time.Now()
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(a.epollFD), uintptr(unsafe.Pointer(&a.events)), uintptr(len(a.events)), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			return false
		}
		handled := int(n) < len(a.events)
		for _, e := range a.events[:n] {
			if e.Fd == a.listenFD {
				handled = a.acceptNew() && handled
			} else if c := a.byFD[e.Fd]; c != nil {
				a.serveConn(c)
				handled = handled && (!c.loop.inLoop || e.Events == unix.EPOLLIN) // otherwise end of file follows
			}
		}
		now := time.Now()
		if a.woken.Load() || !a.checkAt.IsZero() && now.After(a.checkAt) {
			return true
		}
		if handled && now.Sub(start) > maxBusyTCP {
			return false
		}
	}
}

// checkDeadlines closes connections that have reached the idle timeout, hands off
// those that have sent their last query, and sets the time of the next check. Checks
// are at least 1/64 of the idle timeout apart, since each visits all connections.
func (a *acceptLoop) checkDeadlines() {
	for again := true; again; again = a.woken.Load() {
		a.woken.Store(false)
		idle, now := a.l.limits.Load().IdleTimeout, time.Now()
		a.checkAt = time.Time{}
		if !a.retryAt.IsZero() {
			if now.Before(a.retryAt) {
				a.checkAt = a.retryAt
			} else {
				a.retryAt = time.Time{}
				a.setListening(unix.EPOLLIN)
			}
		}
		for _, c := range a.byFD {
			if c == nil {
				continue
			}
			end := a.l.start.Add(time.Duration(c.lastActive.Load()) + idle)
			switch {
			case c.doneReading():
				a.handOff(c)
			case !now.Before(end):
				a.closeConn(c)
			case a.checkAt.IsZero() || end.Before(a.checkAt):
				a.checkAt = end
			}
		}
		if soon := now.Add(idle / 64); !a.checkAt.IsZero() && a.retryAt.IsZero() && a.checkAt.Before(soon) {
			a.checkAt = soon
		}
		_ = a.epollFile.SetReadDeadline(a.checkAt)
	}
}

// checkBefore makes sure that checkDeadlines is called at t or earlier.
func (a *acceptLoop) checkBefore(t time.Time) {
	if a.checkAt.IsZero() || t.Before(a.checkAt) {
		a.checkAt = t
		_ = a.epollFile.SetReadDeadline(t)
		if a.woken.Load() { // this deadline replaced the one that wake set
			_ = a.epollFile.SetReadDeadline(pastDeadline())
		}
	}
}

// setListening sets the events that epoll reports for the listening socket.
func (a *acceptLoop) setListening(events uint32) {
	_ = with(a.listener, func(fd int) error {
		return unix.EpollCtl(a.epollFD, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	})
}

// acceptNew accepts connections and then serves those that have sent a query
// already. It reports whether no connections are left to accept.
func (a *acceptLoop) acceptNew() (done bool) {
	a.accepted, a.backlog = a.accepted[:0], true
	_ = a.listener.Control(a.acceptFunc) // fails only if the listener is closed
	for i, c := range a.accepted {
		switch {
		case !c.loop.inLoop: // evicted for a later connection
		case i < maxAccepted:
			a.serveConn(c)
		default:
			a.handOff(c)
		}
	}
	clear(a.accepted)
	return !a.backlog
}

// acceptFrom accepts connections. epoll reports the ones that it leaves again.
func (a *acceptLoop) acceptFrom(fd uintptr) {
	for range 2 * maxAccepted {
		a.addrLen = uint32(len(a.addr))
		n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, fd, uintptr(unsafe.Pointer(&a.addr)), uintptr(unsafe.Pointer(&a.addrLen)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			a.errors.succeeded()
			a.admit(int(n))
		case unix.EAGAIN:
			a.backlog = false
			return
		case unix.EINTR, unix.ECONNABORTED:
		default:
			a.setListening(0)
			a.retryAt = time.Now().Add(a.errors.failed(os.NewSyscallError("accept4", errno)))
			a.checkBefore(a.retryAt)
			a.backlog = false // until retryAt
			return
		}
	}
}

// admit adds a connection, whose client address is in a.addr, unless there are too
// many.
func (a *acceptLoop) admit(fd int) {
	peer, local := a.addr.addrPort(), a.l.addr
	if local.Addr().IsUnspecified() {
		a.addrLen = uint32(len(a.addr))
		_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&a.addr)), uintptr(unsafe.Pointer(&a.addrLen)))
		if errno == 0 {
			local = a.addr.addrPort()
		}
	}
	c := newConn(a.l, peer, local)
	c.loop.fd = fd
	ok, evicted := a.l.admits(c)
	switch {
	case evicted == nil:
	case evicted.loop.inLoop:
		a.resetConn(evicted)
	default:
		evicted.cut()
	}
	if !ok {
		linger(fd)
		closeFD(fd)
		return
	}
	for len(a.byFD) <= fd {
		a.byFD = append(a.byFD, nil)
	}
	a.byFD[fd], c.loop.inLoop = c, true
	a.accepted = append(a.accepted, c)
}

// serveConn reads from a connection and answers its queries.
func (a *acceptLoop) serveConn(c *conn) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.loop.fd), uintptr(unsafe.Pointer(&a.in)), inSize)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		a.awaitQuery(c)
		return
	case errno != 0 || n == 0:
		a.closeConn(c)
		return
	}
	c.now = time.Now()
	c.messageStart = c.now
	c.serving, c.in, c.r, c.w = a.serving, a.in[:], 0, int(n)
	parked := c.serveMessages()
	if c.out != nil && !a.send(c) {
		if parked {
			c.cut() // its goroutine waits for the parked query
		} else {
			a.resetConn(c)
			return
		}
	}
	c.loop.reads++
	if parked || c.out != nil || c.r < c.w || n == inSize || c.loop.reads == maxReads || c.doneReading() {
		a.handOff(c)
		return
	}
	c.serving, c.in, c.r, c.w = nil, nil, 0, 0
	a.awaitQuery(c)
}

// send writes the replies as far as the socket accepts them without blocking, and
// leaves the rest in c.out. It reports whether the connection is usable.
func (a *acceptLoop) send(c *conn) bool {
	b := c.out.b
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.loop.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return true
	case errno != 0:
		a.l.counts.sendTCP.Add(1)
		n = uintptr(len(b))
	}
	if c.out.b = b[:copy(b, b[n:])]; len(c.out.b) == 0 {
		a.l.free(c.out)
		c.out = nil
	}
	return errno == 0
}

// awaitQuery registers a connection with epoll.
func (a *acceptLoop) awaitQuery(c *conn) {
	if !c.loop.registered {
		c.loop.registered = true
		a.event = unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.loop.fd)}
		_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(a.epollFD), unix.EPOLL_CTL_ADD, uintptr(c.loop.fd), uintptr(unsafe.Pointer(&a.event)), 0, 0)
		if errno != 0 { // out of memory
			a.resetConn(c)
			return
		}
	}
	if a.checkAt.IsZero() {
		a.checkBefore(time.Now().Add(a.l.limits.Load().IdleTimeout))
	}
}

// handOff gives a connection a goroutine of its own.
func (a *acceptLoop) handOff(c *conn) {
	if c.loop.registered {
		_ = unix.EpollCtl(a.epollFD, unix.EPOLL_CTL_DEL, c.loop.fd, nil)
	}
	a.byFD[c.loop.fd], c.loop.inLoop = nil, false
	c.startReader(descriptor{os.NewFile(uintptr(c.loop.fd), "tcp")})
}

// closeConn closes a connection that has no parked queries.
func (a *acceptLoop) closeConn(c *conn) {
	a.byFD[c.loop.fd], c.loop.inLoop = nil, false
	closeFD(c.loop.fd)
	a.l.conns.removeClosed(c)
}

// resetConn closes a connection without waiting for its client: see reset.
func (a *acceptLoop) resetConn(c *conn) {
	linger(c.loop.fd)
	a.closeConn(c)
}

func linger(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

func closeFD(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// A descriptor is the socket of a connection that has left the loop. Package net
// could make a TCPConn only from a duplicate of it.
type descriptor struct{ *os.File }

func (s descriptor) CloseWrite() error {
	return s.with(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

func (s descriptor) SetLinger(seconds int) error {
	return s.with(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)})
	})
}

func (s descriptor) with(do func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	return with(raw, do)
}
