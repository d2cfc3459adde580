package transport

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// Inherited holds listening sockets that a parent process passed to this one, such
// as systemd's socket units. The parent keeps them open, so queries wait in them while
// the server restarts. Listen uses them for their addresses. It is safe for concurrent
// use.
type Inherited struct {
	mu      sync.Mutex
	sockets []inheritedSocket
}

type inheritedSocket struct {
	file *os.File
	tcp  bool
	addr netip.AddrPort
	used bool
}

// Inherit returns the sockets of files, which it keeps. Each must be a listening TCP
// socket or a bound UDP socket.
func Inherit(files []*os.File) (*Inherited, error) {
	in := &Inherited{}
	for _, f := range files {
		s := inheritedSocket{file: f}
		if l, err := net.FileListener(f); err == nil {
			_, s.tcp = l.(*net.TCPListener)
			s.addr = addrPort(l.Addr())
			_ = l.Close()
		} else if c, err := net.FilePacketConn(f); err == nil {
			s.addr = addrPort(c.LocalAddr())
			_ = c.Close()
		}
		if !s.addr.IsValid() {
			return nil, fmt.Errorf("inherited file descriptor %d (%s): want a listening TCP socket or a UDP socket", f.Fd(), f.Name())
		}
		in.sockets = append(in.sockets, s)
	}
	return in, nil
}

// Unused returns the addresses of sockets that no call of Listen has used, as
// "tcp 127.0.0.1:53".
func (in *Inherited) Unused() (addresses []string) {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.sockets {
		if !s.used {
			addresses = append(addresses, s.network()+" "+s.addr.String())
		}
	}
	slices.Sort(addresses)
	return addresses
}

func (s *inheritedSocket) network() string {
	if s.tcp {
		return "tcp"
	}
	return "udp"
}

// files returns the sockets for an address.
func (in *Inherited) files(tcp bool, addr netip.AddrPort) (files []*os.File) {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range in.sockets {
		if s := &in.sockets[i]; s.tcp == tcp && s.addr == addr {
			s.used = true
			files = append(files, s.file)
		}
	}
	return files
}

// listenTCP returns a listener of the inherited socket for addr, or nil if there is
// none.
func (in *Inherited) listenTCP(addr netip.AddrPort) (net.Listener, error) {
	files := in.files(true, addr)
	if len(files) == 0 {
		return nil, nil
	}
	l, err := net.FileListener(files[0]) // of a copy of the descriptor
	if err != nil {
		return nil, err
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = controlTCP("", "", raw)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// listenUDP returns the inherited sockets for addr.
func (in *Inherited) listenUDP(addr netip.AddrPort) (conns []*net.UDPConn, err error) {
	for _, f := range in.files(false, addr) {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return conns, err
		}
		udp := c.(*net.UDPConn)
		conns = append(conns, udp)
		raw, err := udp.SyscallConn()
		if err == nil {
			err = controlUDP(addr.Addr())("", "", raw)
		}
		if err != nil {
			return conns, err
		}
	}
	return conns, nil
}
