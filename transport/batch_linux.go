package transport

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
)

// A batch is a reader that receives and sends several datagrams by one system call.
// All memory that the kernel uses is in the batch, so serving allocates nothing. The
// addresses and control messages of the requests are used for the replies, too.
//
// It waits in the netpoller (RawConn.Read) and calls with MSG_DONTWAIT. A thread
// that blocks in recvmmsg uses three times as much CPU under low load.
//
// It uses RawSyscall6, which the scheduler does not see. A visible call wakes the
// scheduler's monitor thread (sysmon) whenever the process was idle, which costs
// more than to answer the query. The disadvantage is that the goroutine cannot be
// preempted during the call: stopping the world takes until sixteen packets have
// passed the network stack, some 50 µs.
type batch struct {
	*reader
	raw      syscall.RawConn
	yielder  yielder
	load     *socketLoad
	messages [batchSize]unix.Mmsghdr
	packets  [batchSize]unix.Iovec
	names    [batchSize]sockaddr
	controls [batchSize][controlSize]byte

	n     int // messages that the last call received
	errno syscall.Errno

	replies [batchSize]unix.Mmsghdr
	answers [batchSize]unix.Iovec
}

// maxBusy is how long a reader that always has packets serves them before it
// yields to other goroutines.
const maxBusy = time.Millisecond

// A sockaddr is a struct sockaddr_in or sockaddr_in6 as the kernel wrote it.
type sockaddr [unix.SizeofSockaddrInet6]byte

// runBatches runs r in batches until the listener stops. It returns false at once if
// the system calls are not allowed: some seccomp profiles know only older calls.
func runBatches(r *reader) bool {
	raw, err := r.conn.SyscallConn()
	if err != nil {
		return false
	}
	if errno := probe(raw); errno != 0 {
		r.l.o.Log.Info("recvmmsg and sendmmsg unavailable, reading single packets", "error", error(errno))
		return false
	}
	b := &batch{reader: r, raw: raw, load: r.l.overload.observe(r.l, r.conn, raw)}
	b.yielder.open()
	defer b.yielder.close()
	r.allocSlots(batchSize, b)
	for i := range batchSize {
		b.prepare(i)
	}
	b.run()
	return true
}

// probe calls recvmmsg and sendmmsg for no messages.
func probe(raw syscall.RawConn) (errno syscall.Errno) {
	var none unix.Mmsghdr
	err := raw.Control(func(fd uintptr) {
		for _, call := range []uintptr{unix.SYS_RECVMMSG, unix.SYS_SENDMMSG} {
			_, _, e := unix.Syscall6(call, fd, uintptr(unsafe.Pointer(&none)), 0, unix.MSG_DONTWAIT, 0, 0)
			if e == unix.ENOSYS || e == unix.EPERM {
				errno = e
			}
		}
	})
	if err != nil {
		return unix.EBADF
	}
	return errno
}

// prepare makes a slot ready for the kernel to fill.
func (b *batch) prepare(i int) {
	h := &b.messages[i].Hdr
	h.Name, h.Namelen = &b.names[i][0], uint32(len(b.names[i]))
	b.packets[i].Base = &b.slots[i].packet[0]
	b.packets[i].SetLen(datagram)
	h.Iov = &b.packets[i]
	h.SetIovlen(1)
	if b.wildcard {
		h.Control = &b.controls[i][0]
		h.SetControllen(controlSize)
	}
}

func (b *batch) run() {
	pump := b.readAll // a method value for each call would allocate
	for {
		if err := b.raw.Read(pump); err != nil {
			if b.l.isUDPStopping() {
				b.drain()
				return
			}
			b.pause()
			continue
		}
		// The error concerns a packet that was sent before (ICMP), or is temporary.
		if b.errno != 0 && b.errno != unix.EINTR {
			b.pause()
		}
	}
}

// readAll is called by the netpoller when the socket is readable. It serves packets
// until there are none, and then returns false to wait again.
func (b *batch) readAll(fd uintptr) (done bool) {
	var busySince time.Time
	for {
		b.receive(fd)
		switch {
		case b.errno == unix.EAGAIN:
			b.load.setIdle()
			return false
		case b.errno != 0:
			return true
		}

		now := b.serveBatch(fd)
		if b.l.isUDPStopping() {
			return true // the next Read returns the error
		}

		// After a single packet the socket was empty, and the netpoller reports
		// the next packet. After several packets more have probably arrived.
		if b.n == 1 {
			b.load.setIdle()
			return false
		}

		switch {
		case busySince.IsZero():
			busySince = now
		case now.Sub(busySince) > maxBusy:
			b.load.check(fd)
			b.yielder.yield()
			busySince = time.Time{}
		}
	}
}

// drain serves the packets that arrived before the reader was stopped. It ends even
// if clients continue to send.
func (b *batch) drain() {
	_ = b.raw.Control(func(fd uintptr) {
		for range socketBuffer / datagram / batchSize {
			if b.receive(fd); b.errno != 0 {
				return
			}
			b.serveBatch(fd)
		}
	})
}

// receive receives up to batchSize packets without blocking.
func (b *batch) receive(fd uintptr) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd,
		uintptr(unsafe.Pointer(&b.messages)), batchSize, unix.MSG_DONTWAIT, 0, 0)
	b.n, b.errno = int(n), errno
}

// serveBatch answers the packets of the last receive. It returns the time at which
// it started.
func (b *batch) serveBatch(fd uintptr) time.Time {
	n, now := b.n, time.Now()
	for i := range n {
		b.fillQuery(i, now)
	}
	if b.load.counting.Load() {
		b.load.count(b.slots[:n], now)
	}

	b.answer(n)
	b.send(fd, n)
	for i := range n {
		b.prepare(i)
	}
	return now
}

// fillQuery prepares the query of a slot for the packet that the kernel wrote.
func (b *batch) fillQuery(i int, now time.Time) {
	m, q := &b.messages[i], b.slots[i].q
	q.Peer = b.names[i].addrPort()
	q.Local, q.Interface = b.l.addr, 0
	m.Hdr.SetControllen(b.replyControl(b.controls[i][:m.Hdr.Controllen], q))
	b.received(&b.slots[i], int(m.Len), !truncated(int(m.Hdr.Flags), 0), now)
}

// send sends the replies of the batch.
func (b *batch) send(fd uintptr, n int) {
	k := 0
	for i := range n {
		if b.slots[i].outcome != dns.Answered {
			continue
		}
		reply := b.slots[i].q.Reply()
		b.answers[k].Base = &reply[0]
		b.answers[k].SetLen(len(reply))
		to := &b.replies[k].Hdr
		*to = b.messages[i].Hdr // name and control
		to.Iov = &b.answers[k]
		to.Flags = 0
		k++
	}
	b.l.sendAll(fd, b.replies[:k])
}

// sendAll sends messages, if possible by one system call. A message that cannot be
// sent does not prevent the others. If the socket's buffer stays full for some
// milliseconds, sendAll discards the remaining messages, since the next queries are
// waiting.
func (l *Listener) sendAll(fd uintptr, left []unix.Mmsghdr) {
	const tries = 6
	for try := 0; len(left) > 0; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd,
			uintptr(unsafe.Pointer(&left[0])), uintptr(len(left)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == 0:
			left = left[n:]
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && try < tries:
			time.Sleep(50 * time.Microsecond << try) // 3 ms in all
			try++
		case errno == unix.EAGAIN:
			l.counts.sendUDP.Add(uint64(len(left)))
			return
		default:
			l.counts.sendUDP.Add(1)
			left = left[1:]
		}
	}
}

// Send sends the reply of a parked query, with the same limit on waiting as sendAll.
func (b *batch) Send(q *dns.Query) {
	defer b.l.parked.done()
	reply := q.Reply()
	if len(reply) == 0 {
		return
	}

	// One allocation has all that the kernel reads.
	type packet struct {
		name    sockaddr
		iov     unix.Iovec
		message [1]unix.Mmsghdr
	}
	p, v6 := new(packet), b.l.addr.Addr().Is6()
	p.iov.Base = &reply[0]
	p.iov.SetLen(len(reply))
	h := &p.message[0].Hdr
	h.Name, h.Namelen = &p.name[0], p.name.put(q.Peer, v6)
	h.Iov = &p.iov
	h.SetIovlen(1)
	if b.wildcard {
		if control := controlMessage(q.Local.Addr(), q.Interface, v6); len(control) > 0 {
			h.Control = &control[0]
			h.SetControllen(len(control))
		}
	}

	if err := b.raw.Control(func(fd uintptr) { b.l.sendAll(fd, p.message[:]) }); err != nil { // closed
		b.l.counts.sendUDP.Add(1)
	}
}

// addrPort returns the address. The zone of a link-local address is the index of its
// interface.
func (s *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s[2:])
	if binary.NativeEndian.Uint16(s[:]) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:])), port)
	}
	addr := netip.AddrFrom16([16]byte(s[8:])).Unmap()
	if scope := binary.NativeEndian.Uint32(s[24:]); scope != 0 && addr.Is6() {
		addr = addr.WithZone(strconv.FormatUint(uint64(scope), 10))
	}
	return netip.AddrPortFrom(addr, port)
}

// put writes the address and returns its size. v6 reports whether the socket is an
// IPv6 socket.
func (s *sockaddr) put(ap netip.AddrPort, v6 bool) uint32 {
	binary.BigEndian.PutUint16(s[2:], ap.Port())
	if !v6 {
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		addr := ap.Addr().As4()
		copy(s[4:], addr[:])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	addr := ap.Addr().As16()
	copy(s[8:], addr[:])
	if zone, err := strconv.ParseUint(ap.Addr().Zone(), 10, 32); err == nil { // as addrPort wrote it
		binary.NativeEndian.PutUint32(s[24:], uint32(zone))
	}
	return unix.SizeofSockaddrInet6
}
