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
	// visits is how often the desk serves a connection before it is attended:
	// for the pair of A and AAAA, and once more.
	maxReads = 4

	// maxBusyTCP is how long the desk works before it waits in the netpoller although
	// there may be more to do. Where there is one processor nobody else looks
	// whether UDP sockets have something to read; to yield is not enough.
	maxBusyTCP = 200 * time.Microsecond

	// maxAccepted is how many connections the desk takes of those that are there at
	// once. Those behind them get goroutines, so that other processors help.
	maxAccepted = 32
)

// A desk accepts connections and answers their first queries, all on one
// goroutine. Most connections have no others: a client asks once by TCP because
// an answer was cut over UDP. While one waits at the desk it costs a conn and a
// descriptor, and no goroutine, no buffer and no query.
//
// A connection that wants more than that is attended (conn.attend) and goes its
// own way: one whose query is parked, whose message is large or has come in
// part, whose client does not take its replies, that has come too often, or that
// is to be closed politely. So the desk never waits for a client.
//
// It has an epoll instance of its own, for the listening socket and the
// connections, and waits for that in the netpoller as for any descriptor. Its
// calls are RawSyscalls for the reason that batch gives. Only its goroutine
// touches the descriptors and places of connections that are at the desk.
type acceptLoop struct {
	l          *Listener
	listener   syscall.RawConn
	listenFD   int32    // its descriptor
	epollFile  *os.File // the epoll instance
	epollFD    int
	acceptFunc func(fd uintptr) // made once: it would be allocated at each call

	serving *sync.Mutex
	in      [inSize]byte

	byFD     []*conn // by descriptor
	accepted []*conn // just accepted
	backlog  bool    // there may be more to accept
	events   [64]unix.EpollEvent
	event    unix.EpollEvent // to be added
	addr     sockaddr
	addrLen  uint32 // of name

	errors  acceptErrors
	retryAt time.Time // when to accept again; zero if that goes on
	checkAt time.Time // when to look round, as the deadline is set; zero if none is
	woken   atomic.Bool
}

// A place is a connection's at the desk.
type loopState struct {
	fd         int
	inLoop     bool
	registered bool // epoll knows it
	reads      int
}

// runAcceptLoop accepts at a desk until the listener stops. It returns false, and has
// not begun, if there cannot be one.
func runAcceptLoop(l *Listener) bool {
	tcp, ok := l.tcp.(*net.TCPListener)
	if !ok {
		return false
	}
	a := &acceptLoop{l: l, errors: acceptErrors{l: l}}
	if err := a.open(tcp); err != nil {
		l.o.Log.Info("epoll cannot be used here; each tcp connection gets a goroutine at once", "error", err)
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
	if err = unix.SetNonblock(a.epollFD, true); err != nil { // or NewFile would not have it in the netpoller
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
		return // it is not closed
	}
	serve := a.handleEvents
	for !a.l.isStopping() {
		_ = raw.Read(serve) // ends when it is time to look round, or the deadline says so
		a.checkDeadlines()
	}
	for _, c := range a.byFD {
		if c != nil {
			a.handOff(c) // it sees that the listener stops
		}
	}
}

// poke makes the desk look round. It may be called from any goroutine.
func (a *acceptLoop) wake() {
	a.woken.Store(true)
	_ = a.epollFile.SetReadDeadline(pastDeadline())
}

// serve is called by the netpoller when something has happened. It goes on
// until nothing has, or for a maxBusyTCP, and then returns false, which is to wait;
// it returns true when it is time to look round.
//
// The netpoller tells once of what happens. So serve may wait if all has been
// seen to that epoll had to say when it was last asked, and not before.
func (a *acceptLoop) handleEvents(uintptr) (done bool) {
	begun := time.Now()
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(a.epollFD), uintptr(unsafe.Pointer(&a.events)), uintptr(len(a.events)), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			return false
		}
		all := int(n) < len(a.events)
		for _, e := range a.events[:n] {
			if e.Fd == a.listenFD {
				all = a.acceptNew() && all
			} else if c := a.byFD[e.Fd]; c != nil {
				a.serveConn(c)
				all = all && (!c.loop.inLoop || e.Events == unix.EPOLLIN) // or its end is behind what was read
			}
		}
		now := time.Now()
		if a.woken.Load() || !a.checkAt.IsZero() && now.After(a.checkAt) {
			return true
		}
		if all && now.Sub(begun) > maxBusyTCP {
			return false
		}
	}
}

// lookRound ends connections that have been idle for too long or have had their
// queries, and says when that is to be done again. With many idle connections
// it is not done for each of them, but some sixty times in their timeout.
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

// by makes sure that the desk looks round at t, or sooner.
func (a *acceptLoop) checkBefore(t time.Time) {
	if a.checkAt.IsZero() || t.Before(a.checkAt) {
		a.checkAt = t
		_ = a.epollFile.SetReadDeadline(t)
		if a.woken.Load() { // before that, and it must not be lost
			_ = a.epollFile.SetReadDeadline(pastDeadline())
		}
	}
}

// listen says what is to be told of the listening socket.
func (a *acceptLoop) setListening(events uint32) {
	_ = with(a.listener, func(fd int) error {
		return unix.EpollCtl(a.epollFD, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	})
}

// accept takes the connections that are there, and then answers them: who has
// just been answered may have the next connection ready. It says whether it has
// seen all.
func (a *acceptLoop) acceptNew() (all bool) {
	a.accepted, a.backlog = a.accepted[:0], true
	_ = a.listener.Control(a.acceptFunc) // or it is closed
	for i, c := range a.accepted {
		switch {
		case !c.loop.inLoop: // it had to make room for one behind it
		case i < maxAccepted:
			a.serveConn(c)
		default:
			a.handOff(c)
		}
	}
	clear(a.accepted)
	return !a.backlog
}

// acceptFrom takes connections. If it leaves some, epoll says so again.
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
			a.backlog = false // that matters now
			return
		}
	}
}

// admit gives a connection, whose client's address lies in name, its place,
// unless there are too many.
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

// visit answers what a connection has sent.
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
			c.cut() // and its goroutine waits for what is parked
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

// send writes the replies as far as the socket takes them at once, and leaves
// the rest. It says whether the connection is still good.
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

// keep lets a connection wait for its client.
func (a *acceptLoop) awaitQuery(c *conn) {
	if !c.loop.registered {
		c.loop.registered = true
		a.event = unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.loop.fd)}
		_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(a.epollFD), unix.EPOLL_CTL_ADD, uintptr(c.loop.fd), uintptr(unsafe.Pointer(&a.event)), 0, 0)
		if errno != 0 { // no memory
			a.resetConn(c)
			return
		}
	}
	if a.checkAt.IsZero() {
		a.checkBefore(time.Now().Add(a.l.limits.Load().IdleTimeout))
	}
}

// giveAway attends to a connection.
func (a *acceptLoop) handOff(c *conn) {
	if c.loop.registered {
		_ = unix.EpollCtl(a.epollFD, unix.EPOLL_CTL_DEL, c.loop.fd, nil)
	}
	a.byFD[c.loop.fd], c.loop.inLoop = nil, false
	c.startReader(descriptor{os.NewFile(uintptr(c.loop.fd), "tcp")})
}

// end closes a connection that has nothing under way.
func (a *acceptLoop) closeConn(c *conn) {
	a.byFD[c.loop.fd], c.loop.inLoop = nil, false
	closeFD(c.loop.fd)
	a.l.conns.removeClosed(c)
}

// reset is end for a client that is not to be waited for.
func (a *acceptLoop) resetConn(c *conn) {
	linger(c.loop.fd)
	a.closeConn(c)
}

func linger(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

func closeFD(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// A descriptor is a connection's socket, once it has left the desk. Package net
// would make a TCPConn only of a copy.
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
