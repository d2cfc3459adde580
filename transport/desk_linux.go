package transport

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
)

const (
	// visits is how often the desk serves a connection before it is attended:
	// for the pair of A and AAAA, and once more.
	visits = 4

	// stint is how long the desk works before it waits in the netpoller although
	// there may be more to do. Where there is one processor nobody else looks
	// whether UDP sockets have something to read; to yield is not enough.
	stint = 200 * time.Microsecond

	// crowd is how many connections the desk takes of those that are there at
	// once. Those behind them get goroutines, so that other processors help.
	crowd = 32
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
type desk struct {
	l         *Listener
	listener  syscall.RawConn
	listening int32    // its descriptor
	poll      *os.File // the epoll instance
	epoll     int
	accepting func(fd uintptr) // made once: it would be allocated at each call

	turn *dns.Turn
	in   [inSize]byte

	at     []*conn // by descriptor
	fresh  []*conn // just accepted
	more   bool    // there may be more to accept
	events [64]unix.EpollEvent
	event  unix.EpollEvent // to be added
	name   sockaddr
	size   uint32 // of name

	trouble trouble
	retry   time.Time // when to accept again; zero if that goes on
	due     time.Time // when to look round, as the deadline is set; zero if none is
	poked   atomic.Bool
}

// A place is a connection's at the desk.
type place struct {
	fd     int
	here   bool
	polled bool // epoll knows it
	visits int
}

// desks accepts at a desk until the listener stops. It returns false, and has
// not begun, if there cannot be one.
func desks(l *Listener) bool {
	tcp, ok := l.tcp.(*net.TCPListener)
	if !ok {
		return false
	}
	d := &desk{l: l, trouble: trouble{l: l}}
	if err := d.open(tcp); err != nil {
		l.o.Log.Info("epoll cannot be used here; each tcp connection gets a goroutine at once", "error", err)
		return false
	}
	defer d.poll.Close()
	d.turn = l.o.Port.Join()
	defer l.o.Port.RemoveReader(d.turn)
	l.conns.desk.Store(d)
	l.acceptor.Go(func() {
		<-l.stopping
		d.poke()
	})
	d.run()
	return true
}

func (d *desk) open(tcp *net.TCPListener) (err error) {
	if d.listener, err = tcp.SyscallConn(); err != nil {
		return err
	}
	if d.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(d.epoll, true); err != nil { // or NewFile would not have it in the netpoller
		_ = unix.Close(d.epoll)
		return err
	}
	d.poll = os.NewFile(uintptr(d.epoll), "epoll")
	if err = d.poll.SetReadDeadline(time.Time{}); err == nil {
		err = with(d.listener, func(fd int) error {
			d.listening = int32(fd)
			return unix.EpollCtl(d.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		})
	}
	if err != nil {
		d.poll.Close()
		return err
	}
	d.accepting = d.acceptFrom
	return nil
}

func (d *desk) run() {
	raw, err := d.poll.SyscallConn()
	if err != nil {
		return // it is not closed
	}
	serve := d.serve
	for !d.l.isStopping() {
		_ = raw.Read(serve) // ends when it is time to look round, or the deadline says so
		d.lookRound()
	}
	for _, c := range d.at {
		if c != nil {
			d.giveAway(c) // it sees that the listener stops
		}
	}
}

// poke makes the desk look round. It may be called from any goroutine.
func (d *desk) poke() {
	d.poked.Store(true)
	_ = d.poll.SetReadDeadline(longAgo())
}

// serve is called by the netpoller when something has happened. It goes on
// until nothing has, or for a stint, and then returns false, which is to wait;
// it returns true when it is time to look round.
//
// The netpoller tells once of what happens. So serve may wait if all has been
// seen to that epoll had to say when it was last asked, and not before.
func (d *desk) serve(uintptr) (done bool) {
	begun := time.Now()
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.epoll), uintptr(unsafe.Pointer(&d.events)), uintptr(len(d.events)), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			return false
		}
		all := int(n) < len(d.events)
		for _, e := range d.events[:n] {
			if e.Fd == d.listening {
				all = d.accept() && all
			} else if c := d.at[e.Fd]; c != nil {
				d.visit(c)
				all = all && (!c.desk.here || e.Events == unix.EPOLLIN) // or its end is behind what was read
			}
		}
		now := time.Now()
		if d.poked.Load() || !d.due.IsZero() && now.After(d.due) {
			return true
		}
		if all && now.Sub(begun) > stint {
			return false
		}
	}
}

// lookRound ends connections that have been idle for too long or have had their
// queries, and says when that is to be done again. With many idle connections
// it is not done for each of them, but some sixty times in their timeout.
func (d *desk) lookRound() {
	for again := true; again; again = d.poked.Load() {
		d.poked.Store(false)
		idle, now := d.l.limits.Load().IdleTimeout, time.Now()
		d.due = time.Time{}
		if !d.retry.IsZero() {
			if now.Before(d.retry) {
				d.due = d.retry
			} else {
				d.retry = time.Time{}
				d.listen(unix.EPOLLIN)
			}
		}
		for _, c := range d.at {
			if c == nil {
				continue
			}
			end := d.l.start.Add(time.Duration(c.last.Load()) + idle)
			switch {
			case c.enough():
				d.giveAway(c)
			case !now.Before(end):
				d.end(c)
			case d.due.IsZero() || end.Before(d.due):
				d.due = end
			}
		}
		if soon := now.Add(idle / 64); !d.due.IsZero() && d.retry.IsZero() && d.due.Before(soon) {
			d.due = soon
		}
		_ = d.poll.SetReadDeadline(d.due)
	}
}

// by makes sure that the desk looks round at t, or sooner.
func (d *desk) by(t time.Time) {
	if d.due.IsZero() || t.Before(d.due) {
		d.due = t
		_ = d.poll.SetReadDeadline(t)
		if d.poked.Load() { // before that, and it must not be lost
			_ = d.poll.SetReadDeadline(longAgo())
		}
	}
}

// listen says what is to be told of the listening socket.
func (d *desk) listen(events uint32) {
	_ = with(d.listener, func(fd int) error {
		return unix.EpollCtl(d.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	})
}

// accept takes the connections that are there, and then answers them: who has
// just been answered may have the next connection ready. It says whether it has
// seen all.
func (d *desk) accept() (all bool) {
	d.fresh, d.more = d.fresh[:0], true
	_ = d.listener.Control(d.accepting) // or it is closed
	for i, c := range d.fresh {
		switch {
		case !c.desk.here: // it had to make room for one behind it
		case i < crowd:
			d.visit(c)
		default:
			d.giveAway(c)
		}
	}
	clear(d.fresh)
	return !d.more
}

// acceptFrom takes connections. If it leaves some, epoll says so again.
func (d *desk) acceptFrom(fd uintptr) {
	for range 2 * crowd {
		d.size = uint32(len(d.name))
		n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, fd, uintptr(unsafe.Pointer(&d.name)), uintptr(unsafe.Pointer(&d.size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			d.trouble.none()
			d.admit(int(n))
		case unix.EAGAIN:
			d.more = false
			return
		case unix.EINTR, unix.ECONNABORTED:
		default:
			d.listen(0)
			d.retry = time.Now().Add(d.trouble.with(os.NewSyscallError("accept4", errno)))
			d.by(d.retry)
			d.more = false // that matters now
			return
		}
	}
}

// admit gives a connection, whose client's address lies in name, its place,
// unless there are too many.
func (d *desk) admit(fd int) {
	peer, local := d.name.addrPort(), d.l.addr
	if local.Addr().IsUnspecified() {
		d.size = uint32(len(d.name))
		_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&d.name)), uintptr(unsafe.Pointer(&d.size)))
		if errno == 0 {
			local = d.name.addrPort()
		}
	}
	c := newConn(d.l, peer, local)
	c.desk.fd = fd
	ok, evicted := d.l.wanted(c)
	switch {
	case evicted == nil:
	case evicted.desk.here:
		d.reset(evicted)
	default:
		evicted.cut()
	}
	if !ok {
		linger(fd)
		closeFD(fd)
		return
	}
	for len(d.at) <= fd {
		d.at = append(d.at, nil)
	}
	d.at[fd], c.desk.here = c, true
	d.fresh = append(d.fresh, c)
}

// visit answers what a connection has sent.
func (d *desk) visit(c *conn) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.desk.fd), uintptr(unsafe.Pointer(&d.in)), inSize)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		d.keep(c)
		return
	case errno != 0 || n == 0:
		d.end(c)
		return
	}
	c.now = time.Now()
	c.begun = c.now
	c.turn, c.in, c.r, c.w = d.turn, d.in[:], 0, int(n)
	parked := c.gather()
	if c.out != nil && !d.send(c) {
		if parked {
			c.cut() // and its goroutine waits for what is parked
		} else {
			d.reset(c)
			return
		}
	}
	c.desk.visits++
	if parked || c.out != nil || c.r < c.w || n == inSize || c.desk.visits == visits || c.enough() {
		d.giveAway(c)
		return
	}
	c.turn, c.in, c.r, c.w = nil, nil, 0, 0
	d.keep(c)
}

// send writes the replies as far as the socket takes them at once, and leaves
// the rest. It says whether the connection is still good.
func (d *desk) send(c *conn) bool {
	b := c.out.b
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.desk.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return true
	case errno != 0:
		d.l.counts.sendTCP.Add(1)
		n = uintptr(len(b))
	}
	if c.out.b = b[:copy(b, b[n:])]; len(c.out.b) == 0 {
		d.l.free(c.out)
		c.out = nil
	}
	return errno == 0
}

// keep lets a connection wait for its client.
func (d *desk) keep(c *conn) {
	if !c.desk.polled {
		c.desk.polled = true
		d.event = unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.desk.fd)}
		_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(d.epoll), unix.EPOLL_CTL_ADD, uintptr(c.desk.fd), uintptr(unsafe.Pointer(&d.event)), 0, 0)
		if errno != 0 { // no memory
			d.reset(c)
			return
		}
	}
	if d.due.IsZero() {
		d.by(time.Now().Add(d.l.limits.Load().IdleTimeout))
	}
}

// giveAway attends to a connection.
func (d *desk) giveAway(c *conn) {
	if c.desk.polled {
		_ = unix.EpollCtl(d.epoll, unix.EPOLL_CTL_DEL, c.desk.fd, nil)
	}
	d.at[c.desk.fd], c.desk.here = nil, false
	c.attend(descriptor{os.NewFile(uintptr(c.desk.fd), "tcp")})
}

// end closes a connection that has nothing under way.
func (d *desk) end(c *conn) {
	d.at[c.desk.fd], c.desk.here = nil, false
	closeFD(c.desk.fd)
	d.l.conns.forget(c)
}

// reset is end for a client that is not to be waited for.
func (d *desk) reset(c *conn) {
	linger(c.desk.fd)
	d.end(c)
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
