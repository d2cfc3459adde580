package transport

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Inherited holds listening sockets that another process opened: systemd, or the
// server that this process replaces. Listen uses them for their addresses. It is safe
// for concurrent use.
type Inherited struct {
	mu      sync.Mutex
	sockets []inheritedSocket
}

type inheritedSocket struct {
	file   *os.File
	tcp    bool
	addr   netip.AddrPort
	shared bool
}

// Add adds the sockets of files, which it keeps. Each must be a listening TCP socket or
// a bound UDP socket. shared reports whether another process keeps them open after this
// one has ended: then packets that arrive meanwhile wait in them.
func (in *Inherited) Add(shared bool, files ...*os.File) error {
	in.mu.Lock()
	defer in.mu.Unlock()

	for _, f := range files {
		s := inheritedSocket{file: f, shared: shared}
		if l, err := net.FileListener(f); err == nil {
			_, s.tcp = l.(*net.TCPListener)
			s.addr = AddrPort(l.Addr())
			_ = l.Close()
		} else if c, err := net.FilePacketConn(f); err == nil {
			s.addr = AddrPort(c.LocalAddr())
			_ = c.Close()
		}
		if !s.addr.IsValid() {
			return fmt.Errorf("inherited file descriptor %s: want a listening TCP socket or a UDP socket", f.Name())
		}
		in.sockets = append(in.sockets, s)
	}
	return nil
}

// Addresses returns the addresses of the shared sockets, or of the others that Listen has
// not used.
func (in *Inherited) Addresses(shared bool) (addresses []netip.AddrPort) {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.sockets {
		if s.shared == shared && !slices.Contains(addresses, s.addr) {
			addresses = append(addresses, s.addr)
		}
	}
	return addresses
}

// CloseOwn closes the sockets that are not shared and that Listen has not used.
func (in *Inherited) CloseOwn() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sockets = slices.DeleteFunc(in.sockets, func(s inheritedSocket) bool {
		if !s.shared {
			_ = s.file.Close()
		}
		return !s.shared
	})
}

// take calls use for each socket of addr, and reports whether these are shared. A socket
// that is not shared is closed after that: use copies its descriptor.
func (in *Inherited) take(tcp bool, addr netip.AddrPort, use func(*os.File) error) (shared bool, err error) {
	if in == nil {
		return false, nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()

	in.sockets = slices.DeleteFunc(in.sockets, func(s inheritedSocket) bool {
		if err != nil || s.tcp != tcp || s.addr != addr {
			return false
		}
		err = use(s.file)
		shared = shared || s.shared
		if !s.shared {
			_ = s.file.Close()
		}
		return !s.shared
	})
	return shared, err
}

// listenTCP returns a listener of the inherited socket for addr, or nil if there is
// none.
func (in *Inherited) listenTCP(addr netip.AddrPort) (l net.Listener, err error) {
	_, err = in.take(true, addr, func(f *os.File) error {
		if l != nil {
			return nil
		}
		inherited, err := net.FileListener(f)
		if err != nil {
			return err
		}
		l = inherited

		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			return err
		}
		return controlTCP("", "", raw)
	})
	if err != nil && l != nil {
		_ = l.Close()
		return nil, err
	}
	return l, err
}

// listenUDP returns the inherited sockets for addr.
func (in *Inherited) listenUDP(addr netip.AddrPort) (conns []*net.UDPConn, shared bool, err error) {
	shared, err = in.take(false, addr, func(f *os.File) error {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		conns = append(conns, c.(*net.UDPConn))
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		return controlUDP(addr.Addr())("", "", raw)
	})
	return conns, shared, err
}

// narrow returns the address to listen on for [::]: 0.0.0.0 if only that was inherited.
func (in *Inherited) narrow(addr netip.AddrPort) netip.AddrPort {
	inherited := slices.Concat(in.Addresses(true), in.Addresses(false))
	ipv4 := netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port())
	if addr.Addr() == netip.IPv6Unspecified() && slices.Contains(inherited, ipv4) && !slices.Contains(inherited, addr) {
		return ipv4
	}
	return addr
}
