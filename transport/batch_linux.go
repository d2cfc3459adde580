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

// A batch is a reader that reads and sends several datagrams by one system
// call. All that the kernel reads and writes lies in it or in its queries, so
// that a round allocates nothing; the addresses and control messages of
// requests serve again for their replies, as they are.
//
// It waits in the netpoller (RawConn.Read) and calls with MSG_DONTWAIT. A
// thread that is blocked in recvmmsg costs three times as much CPU when there
// is little to do.
//
// It calls by RawSyscall6, which the scheduler does not see. A call that it sees
// wakes its monitor thread (sysmon) whenever the process was idle, and that
// costs more than answering the query. What the scheduler then cannot do is to
// take the processor away in the middle of a call: a stop of the world waits
// until sixteen packets are through the network stack, some 50 µs.
type batch struct {
	*reader
	raw      syscall.RawConn
	yielder  yielder
	messages [batchSize]unix.Mmsghdr
	packets  [batchSize]unix.Iovec
	names    [batchSize]sockaddr
	controls [batchSize][controlSize]byte

	n     int // messages that the last call read
	errno syscall.Errno

	replies [batchSize]unix.Mmsghdr
	answers [batchSize]unix.Iovec
}

// maxBusyUDP is how long a reader answers what is always there before it lets others
// have its processor.
const maxBusyUDP = time.Millisecond

// A sockaddr is a struct sockaddr_in or sockaddr_in6 as the kernel wrote it.
type sockaddr [unix.SizeofSockaddrInet6]byte

// batches runs r in batches until the listener stops. It returns false, and has
// not begun, if this is not allowed: seccomp profiles know only old calls.
func runBatches(r *reader) bool {
	raw, err := r.conn.SyscallConn()
	if err != nil {
		return false
	}
	if errno := probe(raw); errno != 0 {
		r.l.o.Log.Info("recvmmsg and sendmmsg cannot be used here; packets are read one by one", "error", error(errno))
		return false
	}
	b := &batch{reader: r, raw: raw}
	b.yielder.open()
	defer b.yielder.close()
	r.allocSlots(batchSize, b)
	for i := range batchSize {
		b.prepare(i)
	}
	b.run()
	return true
}

// probe asks for no message at all.
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

// ready lets the kernel fill a slot (again).
func (b *batch) prepare(i int) {
	h := &b.messages[i].Hdr
	h.Name, h.Namelen = &b.names[i][0], uint32(len(b.names[i]))
	b.packets[i].Base = &b.slots[i].q.Buffer(datagram)[0]
	b.packets[i].SetLen(datagram)
	h.Iov = &b.packets[i]
	h.SetIovlen(1)
	if b.wildcard {
		h.Control = &b.controls[i][0]
		h.SetControllen(controlSize)
	}
}

func (b *batch) run() {
	pump := b.readAll // made once: it would be allocated at each call
	for {
		if err := b.raw.Read(pump); err != nil {
			if b.l.isUDPStopping() {
				b.drain()
				return
			}
			b.pause()
			continue
		}
		// Errors are about packets sent before (ICMP), or pass.
		if b.errno != 0 && b.errno != unix.EINTR {
			b.pause()
		}
	}
}

// pump is called by the netpoller when there may be something to read. It
// answers until there is nothing left, and then returns false, which is to
// wait.
func (b *batch) readAll(fd uintptr) (done bool) {
	var begun time.Time
	for {
		b.receive(fd)
		switch {
		case b.errno == unix.EAGAIN:
			return false
		case b.errno != 0:
			return true
		}
		now := b.serveBatch(fd)
		if b.l.isUDPStopping() {
			return true // the next Read says so
		}
		// One packet alone, and the kernel has seen that no other was behind
		// it: it will tell of the next. If there were more, more will have come
		// meanwhile.
		if b.n == 1 {
			return false
		}
		switch {
		case begun.IsZero():
			begun = now
		case now.Sub(begun) > maxBusyUDP:
			b.yielder.yield()
			begun = time.Time{}
		}
	}
}

// drain answers what came before the reader was stopped. It ends, whoever goes on
// sending.
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

// receive reads what is there, up to a batch.
func (b *batch) receive(fd uintptr) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.messages)), batchSize, unix.MSG_DONTWAIT, 0, 0)
	b.n, b.errno = int(n), errno
}

// round answers what the last call read, and says when that was.
func (b *batch) serveBatch(fd uintptr) time.Time {
	n, now := b.n, time.Now()
	for i := range n {
		b.fillQuery(i, now)
	}
	b.answer(n)
	b.send(fd, n)
	for i := range n {
		b.prepare(i)
	}
	return now
}

// take makes a query of what the kernel has put into a slot.
func (b *batch) fillQuery(i int, now time.Time) {
	m, q := &b.messages[i], b.slots[i].q
	q.Peer = b.names[i].addrPort()
	q.Local, q.Interface = b.l.addr, 0
	m.Hdr.SetControllen(b.replyControl(b.controls[i][:m.Hdr.Controllen], q))
	b.received(q, int(m.Len), !truncated(int(m.Hdr.Flags), 0), now)
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

// sendAll sends messages by one system call, if the kernel takes them all. A
// message that cannot be sent is no reason not to send those behind it. If the
// socket's buffer is full, the network is slower than we are: that is waited for
// a little, and then the rest is dropped, since the next queries wait behind it.
func (l *Listener) sendAll(fd uintptr, left []unix.Mmsghdr) {
	const tries = 6
	for try := 0; len(left) > 0; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&left[0])), uintptr(len(left)), unix.MSG_DONTWAIT, 0, 0)
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

// Send sends the reply of a query that was parked, like any other: with no
// more patience than a reader has.
func (b *batch) Send(q *dns.Query) {
	defer b.l.parked.done()
	reply := q.Reply()
	if len(reply) == 0 {
		return
	}
	type packet struct {
		name    sockaddr
		iov     unix.Iovec
		message [1]unix.Mmsghdr
	}
	p := new(packet)
	v6 := b.l.addr.Addr().Is6()
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
	if err := b.raw.Control(func(fd uintptr) { b.l.sendAll(fd, p.message[:]) }); err != nil { // the socket is closed
		b.l.counts.sendUDP.Add(1)
	}
}

// addrPort reads the address. A link-local one has the interface's index for
// its zone.
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

// put writes the address and returns its size. v6 says that the socket is one
// of IPv6.
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
