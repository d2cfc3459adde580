package transport

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharded is true where several sockets can share an address, among which the kernel
// distributes the clients (SO_REUSEPORT).
const sharded = true

// connBuffer bounds the kernel's buffers of one TCP connection, in each direction.
// It is the size of the largest message. Without a bound, a client that does not
// read its replies occupies several megabytes.
const connBuffer = 64 << 10

// controlTCP sets the options of a listening socket before it is bound;
// connections inherit them.
func controlTCP(_, _ string, c syscall.RawConn) error {
	return controlFD(c, func(fd int) error {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, connBuffer)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, connBuffer)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		return nil
	})
}

// controlUDP sets the options of a UDP socket before it is bound to addr.
func controlUDP(addr netip.Addr) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return controlFD(c, func(fd int) error {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return err
			}

			// The server also works without the following options.
			enlargeBuffer(fd, unix.SO_RCVBUF)
			enlargeBuffer(fd, unix.SO_SNDBUF)
			// Large replies are fragmented rather than dropped, and a forged ICMP
			// message cannot reduce their size.
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT)

			switch addr {
			case netip.IPv6Unspecified(): // also reports IPv4, as mapped addresses
				return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			case netip.IPv4Unspecified():
				return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			}
			return nil
		})
	}
}

// enlargeBuffer makes a buffer of a socket as large as socketBuffer. The buffer of an
// inherited socket may be larger, and may hold packets.
func enlargeBuffer(fd, option int) {
	if size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil || size < socketBuffer {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketBuffer)
	}
}

// controlFD calls do with the descriptor of c and returns its error.
func controlFD(c syscall.RawConn, do func(fd int) error) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = do(int(fd)) }); e != nil {
		return e
	}
	return err
}

// truncated reports whether a datagram was larger than its buffer.
func truncated(flags, _ int) bool { return flags&unix.MSG_TRUNC != 0 }

// tooLarge reports whether err means that a datagram was larger than its buffer, as
// on Windows.
func tooLarge(error) bool { return false }

// A socket bound to a wildcard address receives the destination address of a packet
// in a control message (struct cmsghdr and struct in6_pktinfo or in_pktinfo, ipv6(7)
// and ip(7)), and sets the source address of the reply by the same kind of message.
// Otherwise the kernel uses an address of the outgoing interface, and the client
// discards a reply from an address that it did not send to.
const (
	head4 = unix.SizeofCmsghdr // struct in_pktinfo: ifindex, spec_dst, addr
	head6 = unix.SizeofCmsghdr // struct in6_pktinfo: addr, ifindex

	controlSize = unix.SizeofCmsghdr + (unix.SizeofInet6Pktinfo+7)&^7 // of the larger one
)

// replyInfo turns the control message of a request into the control message of its
// reply, in place, and returns its size without padding; with padding it would not
// fit into the kernel's buffer. local is the destination address of the request and
// index its interface. A size of zero means that there is no such message.
func replyInfo(control []byte) (local netip.Addr, index, size int) {
	if len(control) < unix.SizeofCmsghdr {
		return netip.Addr{}, 0, 0
	}

	native := binary.NativeEndian
	level := native.Uint32(control[unix.SizeofCmsghdr-8:])
	kind := native.Uint32(control[unix.SizeofCmsghdr-4:])
	switch {
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(control) >= head6+unix.SizeofInet6Pktinfo:
		info := control[head6:]
		local = netip.AddrFrom16([16]byte(info)).Unmap()
		index = int(native.Uint32(info[16:]))
		if local.Is6() && local.IsLinkLocalUnicast() {
			return local.WithZone(strconv.Itoa(index)), index, head6 + unix.SizeofInet6Pktinfo
		}

		// The reply is routed by its address, and may leave by another interface.
		native.PutUint32(info[16:], 0)
		return local, index, head6 + unix.SizeofInet6Pktinfo

	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(control) >= head4+unix.SizeofInet4Pktinfo:
		info := control[head4:]
		index = int(native.Uint32(info))
		// spec_dst and not addr, which may be a broadcast address.
		local = netip.AddrFrom4([4]byte(info[4:]))
		native.PutUint32(info, 0)
		return local, index, head4 + unix.SizeofInet4Pktinfo
	}
	return netip.Addr{}, 0, 0
}

// controlMessage returns the control message for a reply whose source address is
// local. v6 reports whether the socket is an IPv6 socket; it may carry IPv4.
func controlMessage(local netip.Addr, index int, v6 bool) []byte {
	if local.IsUnspecified() {
		return nil // unknown
	}
	if !v6 {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.As4()})
	}
	info := unix.Inet6Pktinfo{Addr: local.As16()}
	if local.Is6() && local.IsLinkLocalUnicast() {
		info.Ifindex = uint32(index)
	}
	return unix.PktInfo6(&info)
}
