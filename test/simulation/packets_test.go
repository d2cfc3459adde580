package simulation

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// A packetPort is a UDP port for QUIC. During a hand-over two processes have a socket for it, of which only
// one is read.
type packetPort struct {
	sockets int // guarded by the lock of the machine

	mu      sync.Mutex
	changed *sync.Cond
	arrived []datagram
}

// A datagram is a packet that has arrived.
type datagram struct {
	data []byte
	from net.Addr
}

// A packetSocket is a net.PacketConn without the operating system: that of one process, or of a client.
type packetSocket struct {
	*packetPort
	machine *machine
	process *process // nil for a client's
	addr    netip.AddrPort

	// Guarded by the lock of the port.
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

// maxArrived is how many packets wait for the reader of a port. The kernel drops others, too.
const maxArrived = 1000

// listenPacket opens a UDP port for QUIC.
func (p *process) listenPacket(_ context.Context, _, address string) (net.PacketConn, error) {
	number, err := portOf(address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, net.ErrClosed
	}
	s, err := p.openPackets(netip.AddrPortFrom(p.address, number), p.passed)
	if err == nil {
		s.process = p
		p.sockets = append(p.sockets, s)
	}
	return s, err
}

// openPackets opens a port, which another process may have open if shared is set. The caller has the lock.
func (m *machine) openPackets(at netip.AddrPort, shared bool) (*packetSocket, error) {
	port := m.packets[at]
	switch {
	case port == nil:
		port = new(packetPort)
		port.changed = sync.NewCond(&port.mu)
		m.packets[at] = port
	case !shared:
		return nil, &net.OpError{Op: "listen", Net: "udp", Err: syscall.EADDRINUSE}
	}
	port.sockets++
	return &packetSocket{packetPort: port, machine: m, addr: at}, nil
}

// connectPackets opens a port of a client.
func (m *machine) connectPackets(from netip.Addr) (*packetSocket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	return m.openPackets(netip.AddrPortFrom(from, 20_000+m.last%10_000), false)
}

func (s *packetSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, &net.OpError{Op: "read", Net: "udp", Err: net.ErrClosed}
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, nil, &net.OpError{Op: "read", Net: "udp", Err: os.ErrDeadlineExceeded}
		case len(s.arrived) > 0 && (s.process == nil || !s.process.stopped.Load()):
			d := s.arrived[0]
			s.arrived = s.arrived[1:]
			return copy(p, d.data), d.from, nil
		}
		s.changed.Wait()
	}
}

// wake makes readers look at the state of their process again.
func (s *packetSocket) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

func (s *packetSocket) WriteTo(p []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, &net.OpError{Op: "write", Net: "udp", Err: net.ErrClosed}
	}
	d, at := datagram{bytes.Clone(p), s.LocalAddr()}, to.(*net.UDPAddr).AddrPort()
	time.AfterFunc(time.Millisecond, func() { s.machine.arrive(d, at) })
	return len(p), nil
}

// arrive passes a packet to a port, if it is open.
func (m *machine) arrive(d datagram, at netip.AddrPort) {
	m.mu.Lock()
	port := m.packets[at]
	m.mu.Unlock()
	if port == nil {
		return
	}
	port.mu.Lock()
	defer port.mu.Unlock()
	if len(port.arrived) < maxArrived {
		port.arrived = append(port.arrived, d)
		port.changed.Broadcast()
	}
}

func (s *packetSocket) Close() error {
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	s.changed.Broadcast()
	if s.sockets--; s.sockets == 0 {
		delete(s.machine.packets, s.addr)
	}
	return nil
}

func (s *packetSocket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.addr) }

func (s *packetSocket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *packetSocket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.timer != nil {
		s.timer.Stop()
	}
	if !t.IsZero() {
		s.timer = time.AfterFunc(max(time.Until(t), atOnce), s.wake)
	}
	s.changed.Broadcast()
	return nil
}

func (s *packetSocket) SetWriteDeadline(time.Time) error { return nil }

// Without these two methods quic-go would print a warning.

func (s *packetSocket) SetReadBuffer(int) error  { return nil }
func (s *packetSocket) SetWriteBuffer(int) error { return nil }

// File returns a socket of the operating system that stands for this one in a hand-over. The other process
// opens the port itself.
func (s *packetSocket) File() (*os.File, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*net.UDPConn).File()
}
