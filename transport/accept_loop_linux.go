package transport

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxInline is how many of the connections that it accepts at once the loop serves
// itself. The others get goroutines, so that other processors serve them.
const maxInline = 32

// An acceptLoop accepts TCP connections and waits for their queries. It calls
// conn.run on its own goroutine, since to start a goroutine for each connection, or
// to accept it with package net, costs more than to answer its query. Most
// connections send no other queries: a client uses TCP for one query whose answer was
// truncated over UDP. A connection that waits in the loop costs a conn and a
// descriptor, and no goroutine, buffer or query.
//
// Where run would block, it starts another goroutine for the loop (conn.leaveLoop)
// and keeps this one. So one goroutine at a time uses the fields below.
//
// The loop has an epoll instance for the listening socket and the connections, and
// waits for the instance in the netpoller as for any descriptor. It uses RawSyscall
// for the reason given at batch.
type acceptLoop struct {
	l        *Listener
	listener syscall.RawConn
	file     *os.File // the epoll instance
	raw      syscall.RawConn
	fd       int
	yielder  yielder

	events    [64]unix.EpollEvent
	ready     []unix.EpollEvent // of events, still to be handled
	blocked   bool              // the last wait had to block
	busySince time.Time

	addr     sockaddr
	addrLen  uint32
	accepted int
	errno    syscall.Errno
	errors   acceptErrors

	// Method values, since to make one for each call would allocate.
	poll    func(fd uintptr) bool
	accept4 func(fd uintptr)
}

// listening is the data of the listening socket's events. The data of connections have
// conn.id, which is positive.
const listening = 0

// openAcceptLoop returns nil if the options exclude a loop, or the system does not allow
// epoll.
func openAcceptLoop(l *Listener) *acceptLoop {
	tcp, ok := l.tcp.(*net.TCPListener)
	if !ok || l.o.Portable {
		return nil
	}
	a := &acceptLoop{l: l, errors: acceptErrors{log: l.o.Log, address: l.addr}}
	if err := a.open(tcp); err != nil {
		l.o.Log.Info("epoll unavailable, using a goroutine for each TCP connection", "error", err)
		return nil
	}
	return a
}

func (a *acceptLoop) open(tcp *net.TCPListener) (err error) {
	if a.listener, err = tcp.SyscallConn(); err != nil {
		return err
	}
	if a.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}

	// NewFile registers only non-blocking descriptors with the netpoller.
	if err = unix.SetNonblock(a.fd, true); err != nil {
		_ = unix.Close(a.fd)
		return err
	}
	a.file = os.NewFile(uintptr(a.fd), "epoll")
	if a.raw, err = a.file.SyscallConn(); err == nil {
		if err = a.file.SetReadDeadline(time.Time{}); err == nil {
			err = a.listen(unix.EPOLL_CTL_ADD, unix.EPOLLIN)
		}
	}
	if err != nil {
		a.file.Close()
		return err
	}

	a.yielder.open()
	a.poll, a.accept4 = a.pollOnce, a.acceptFrom
	return nil
}

// pause stops accepting connections, or starts it again.
func (a *acceptLoop) pause(paused bool) {
	events := uint32(unix.EPOLLIN)
	if paused {
		events = 0
	}
	_ = a.listen(unix.EPOLL_CTL_MOD, events)
}

// listen sets the events that epoll reports for the listening socket.
func (a *acceptLoop) listen(op int, events uint32) error {
	return controlFD(a.listener, func(fd int) error {
		return unix.EpollCtl(a.fd, op, fd, &unix.EpollEvent{Events: events, Fd: listening})
	})
}

// wake makes the loop notice that the listener stops.
func (a *acceptLoop) wake() { _ = a.file.SetReadDeadline(pastDeadline()) }

// close closes the loop. No connection may wait in it.
func (a *acceptLoop) close() {
	a.yielder.close()
	a.file.Close()
}

// run handles events until the listener stops, or a connection has taken over its
// goroutine.
func (a *acceptLoop) run() {
	for !a.l.isStopping() {
		if len(a.ready) == 0 {
			a.wait()
			continue
		}
		e := a.ready[0]
		a.ready = a.ready[1:]
		if !a.handle(int64(uint32(e.Fd)) | int64(e.Pad)<<32) {
			return
		}
	}
	a.l.accepting.Done()
}

// wait blocks until there are events. On a single processor the scheduler does not
// poll the UDP sockets while the loop has work, so wait lets it do that from time to
// time.
func (a *acceptLoop) wait() {
	a.blocked = false
	_ = a.raw.Read(a.poll)
	switch now := time.Now(); {
	case a.blocked:
		a.busySince = now
	case now.Sub(a.busySince) > maxBusy:
		a.yielder.yield()
		a.busySince = time.Now()
	}
}

// pollOnce reports whether there are events.
func (a *acceptLoop) pollOnce(fd uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd,
		uintptr(unsafe.Pointer(&a.events)), uintptr(len(a.events)), 0, 0, 0)
	if errno != 0 {
		n = 0
	}
	if a.ready = a.events[:n]; n == 0 {
		a.blocked = true
	}
	return n > 0
}

// handle handles one event. It reports whether its goroutine still runs the loop.
func (a *acceptLoop) handle(id int64) (onLoop bool) {
	if id == listening {
		return a.accept()
	}
	c := a.l.conns.get(id)
	if c == nil || !c.claim() {
		return true
	}
	if a.l.tls != nil { // crypto/tls may write while it reads, and so block
		c.start()
		return true
	}
	c.onLoop = true
	return c.run()
}

// accept accepts connections and serves connections that have sent a query already.
// epoll reports the others again.
func (a *acceptLoop) accept() (onLoop bool) {
	for i := range 2 * maxInline {
		c := a.acceptOne()
		switch {
		case c == nil:
			return true
		case !a.l.admit(c):
		case i >= maxInline || c.handshaking:
			c.start()
		default:
			c.onLoop = true
			if !c.run() {
				return false
			}
		}
	}
	return true
}

// acceptOne accepts a connection. It returns nil if there is none.
func (a *acceptLoop) acceptOne() *conn {
	a.errno = unix.EBADF // if the listener is closed, so that Control fails
	_ = a.listener.Control(a.accept4)
	switch a.errno {
	case 0:
		a.errors.succeeded()
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED, unix.EBADF:
		return nil
	default:
		pause := a.errors.failed(os.NewSyscallError("accept4", a.errno))
		a.pause(true)
		time.AfterFunc(pause, func() { a.pause(false) })
		return nil
	}

	peer, local := a.addr.addrPort(), a.l.addr
	if local.Addr().IsUnspecified() {
		a.addrLen = uint32(len(a.addr))
		_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(a.accepted),
			uintptr(unsafe.Pointer(&a.addr)), uintptr(unsafe.Pointer(&a.addrLen)))
		if errno == 0 {
			local = a.addr.addrPort()
		}
	}
	return a.l.accepted(&descriptor{fd: a.accepted}, peer, local)
}

func (a *acceptLoop) acceptFrom(fd uintptr) {
	a.addrLen = uint32(len(a.addr))
	const flags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, fd,
		uintptr(unsafe.Pointer(&a.addr)), uintptr(unsafe.Pointer(&a.addrLen)), flags, 0, 0)
	a.accepted, a.errno = int(n), errno
}

// await makes the loop call c.run when there are data to read. It returns false
// if the caller must continue to run the connection: because the listener stops, or the
// connection is cut, as it is if the system has no memory.
func (a *acceptLoop) await(c *conn) bool {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(c.id), Pad: int32(c.id >> 32)}
	sock := c.sock
	if s, ok := sock.(*tlsSocket); ok {
		sock = s.socket
	}

	c.mu.Lock()
	if c.isCut { // nothing would wake it again
		c.mu.Unlock()
		return false
	}
	op := unix.EPOLL_CTL_MOD
	if !c.registered {
		op = unix.EPOLL_CTL_ADD
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(a.fd),
		uintptr(op), uintptr(sock.(*descriptor).fd), uintptr(unsafe.Pointer(&event)), 0, 0)
	c.registered, c.waiting = true, errno == 0
	c.mu.Unlock()

	if errno != 0 {
		c.cut()
		return false
	}
	return !a.l.isStopping() && !a.l.passing.Load() || !c.claim()
}

// A descriptor is the socket of a connection that was accepted by an acceptLoop. Read
// and Write may block, and use the netpoller.
type descriptor struct {
	fd   int
	once sync.Once
	file *os.File // nil until a call may block
}

func (d *descriptor) blocking() *os.File {
	d.once.Do(func() {
		if d.file == nil {
			d.file = os.NewFile(uintptr(d.fd), "tcp")
		}
	})
	return d.file
}

func (d *descriptor) tryRead(p []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(d.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, errWouldBlock
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

// tryWrite returns the number of bytes that the socket has accepted. After an error
// that is zero, and Write will return it.
func (d *descriptor) tryWrite(p []byte) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(d.fd),
		uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

func (d *descriptor) Read(p []byte) (int, error)         { return d.blocking().Read(p) }
func (d *descriptor) Write(p []byte) (int, error)        { return d.blocking().Write(p) }
func (d *descriptor) SetReadDeadline(t time.Time) error  { return d.blocking().SetReadDeadline(t) }
func (d *descriptor) SetWriteDeadline(t time.Time) error { return d.blocking().SetWriteDeadline(t) }
func (d *descriptor) CloseRead() error                   { return unix.Shutdown(d.fd, unix.SHUT_RD) }
func (d *descriptor) CloseWrite() error                  { return unix.Shutdown(d.fd, unix.SHUT_WR) }

func (d *descriptor) cork() { _ = unix.SetsockoptInt(d.fd, unix.IPPROTO_TCP, unix.TCP_CORK, 1) }

func (d *descriptor) SetLinger(seconds int) error {
	return unix.SetsockoptLinger(d.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)})
}

func (d *descriptor) Close() error {
	if d.file != nil {
		return d.file.Close()
	}
	_, _, errno := unix.RawSyscall(unix.SYS_CLOSE, uintptr(d.fd), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// adopt returns the socket of a connection that another process has accepted, and its
// addresses. It fails if the client has reset the connection.
func adopt(f *os.File) (sock socket, peer, local netip.AddrPort, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, peer, local, err
	}
	d := &descriptor{file: f}
	err = controlFD(raw, func(fd int) error {
		d.fd = fd
		for call, addr := range map[uintptr]*netip.AddrPort{unix.SYS_GETPEERNAME: &peer, unix.SYS_GETSOCKNAME: &local} {
			var name sockaddr
			size := uint32(len(name))
			_, _, errno := unix.RawSyscall(call, uintptr(fd),
				uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)))
			if errno != 0 {
				return errno
			}
			*addr = name.addrPort()
		}
		return nil
	})
	return d, peer, local, err
}
