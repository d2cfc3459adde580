package simulation

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
)

// A machine runs one server of the world. Its listeners accept connections in memory.
type machine struct {
	world   *world
	address netip.Addr

	mu        sync.Mutex
	sockets   map[uint16]*socket   // by port
	listeners map[uint16]*listener // those with UDP
	last      uint16               // port of a client at this machine
}

func newMachine(w *world, address string) *machine {
	return &machine{world: w, address: netip.MustParseAddr(address), sockets: map[uint16]*socket{}, listeners: map[uint16]*listener{}}
}

// A socket is a net.Listener without the operating system.
type socket struct {
	machine  *machine
	addr     netip.AddrPort
	accepted chan *conn
	closed   chan struct{}
	once     sync.Once
}

// backlog is the number of connections that may wait to be accepted.
const backlog = 128

// listen opens a port.
func (m *machine) listen(_ context.Context, _, address string) (net.Listener, error) {
	_, text, err := net.SplitHostPort(address) // any host is the machine
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	port := uint16(number)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sockets[port] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	s := &socket{machine: m, addr: netip.AddrPortFrom(m.address, port), accepted: make(chan *conn, backlog), closed: make(chan struct{})}
	m.sockets[port] = s
	return s, nil
}

func (s *socket) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}
	}
}

// Close resets the connections that were not accepted.
func (s *socket) Close() error {
	s.once.Do(func() {
		s.machine.mu.Lock()
		delete(s.machine.sockets, s.addr.Port())
		close(s.closed)
		s.machine.mu.Unlock()
		for {
			select {
			case c := <-s.accepted:
				c.reset()
			default:
				return
			}
		}
	})
	return nil
}

func (s *socket) Addr() net.Addr { return net.TCPAddrFromAddrPort(s.addr) }

// connect opens a connection from a machine to a port of m.
func (m *machine) connect(from netip.Addr, port uint16) (*conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	client, server := connect("tcp", netip.AddrPortFrom(from, 20_000+m.last%10_000), netip.AddrPortFrom(m.address, port))
	if s := m.sockets[port]; s != nil {
		select {
		case s.accepted <- server:
			return client, nil
		default:
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// udp returns the listener of a UDP port, or nil.
func (m *machine) udp(port uint16) *listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listeners[port]
}
