package simulation

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seamark/seamark/dns"
)

// A machine runs one server of the world. Its listeners accept connections in memory.
type machine struct {
	world   *world
	address netip.Addr

	mu        sync.Mutex
	ports     map[uint16]*openPort           // of TCP
	packets   map[netip.AddrPort]*packetPort // of QUIC, also those of clients
	listeners map[uint16][]*listener         // of UDP; two during a hand-over
	held      map[uint16][]func(*listener)   // packets to a UDP port that no process reads, during a hand-over
	passed    bool                           // a process passes its sockets: another one may open its ports, too
	last      uint16                         // port of a client at this machine
}

// An openPort has the connections that a listening socket has not accepted.
type openPort struct {
	accepted chan *conn
	sockets  int // of processes that have it open
}

func newMachine(w *world, address string) *machine {
	return &machine{world: w, address: netip.MustParseAddr(address), ports: map[uint16]*openPort{}, packets: map[netip.AddrPort]*packetPort{}, listeners: map[uint16][]*listener{}, held: map[uint16][]func(*listener){}}
}

// A process is one that runs a server on a machine. After its death it reads no packet, accepts no
// connection and sends nothing, although its goroutines may go on for a moment.
type process struct {
	*machine
	stopped atomic.Bool // by a signal: it reads no packets of QUIC

	// Guarded by the lock of the machine.
	dead     bool
	sockets  []io.Closer
	accepted []*conn
}

func (m *machine) newProcess() *process { return &process{machine: m} }

// die makes the process read and send nothing more.
func (p *process) die() {
	p.mu.Lock()
	p.dead = true
	for number := range p.listeners {
		p.listeners[number] = slices.DeleteFunc(p.listeners[number], func(l *listener) bool { return l.process == p })
	}
	p.mu.Unlock()
	for _, s := range p.sockets {
		_ = s.Close()
	}
	for _, c := range p.accepted {
		c.reset()
	}
}

// isDead reports whether the process has died.
func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// accept adds a connection, which ends with the process.
func (p *process) accept(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted = append(p.accepted, c)
	if p.dead {
		c.reset()
	}
}

// stop stops the process, or lets it go on.
func (p *process) stop(stopped bool) {
	p.stopped.Store(stopped)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sockets {
		if s, ok := s.(*packetSocket); ok {
			s.wake()
		}
	}
}

// A socket is a net.Listener without the operating system: that of one process.
type socket struct {
	*openPort
	process *process
	addr    netip.AddrPort
	closed  chan struct{}
	once    sync.Once
}

// backlog is the number of connections that may wait to be accepted.
const backlog = 128

// listen opens a port.
func (p *process) listen(_ context.Context, _, address string) (net.Listener, error) {
	number, err := portOf(address)
	if err != nil {
		return nil, err
	}
	m := p.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	port := m.ports[number]
	switch {
	case p.dead:
		return nil, net.ErrClosed
	case port == nil:
		port = &openPort{accepted: make(chan *conn, backlog)}
		m.ports[number] = port
	case !m.passed:
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	port.sockets++
	s := &socket{openPort: port, process: p, addr: netip.AddrPortFrom(m.address, number), closed: make(chan struct{})}
	p.sockets = append(p.sockets, s)
	return s, nil
}

// portOf returns the port of an address, of which any host is the machine.
func portOf(address string) (uint16, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return uint16(number), err
}

func (s *socket) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		s.process.accept(c)
		return c, nil
	case <-s.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}
	}
}

// Close resets the connections that were not accepted, unless another process has the port open.
func (s *socket) Close() error {
	s.once.Do(func() {
		s.process.mu.Lock()
		close(s.closed)
		s.sockets--
		last := s.sockets == 0
		if last {
			delete(s.process.ports, s.addr.Port())
		}
		s.process.mu.Unlock()
		for last {
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

// File returns a socket of the operating system that stands for this one in a hand-over. The other process
// opens the port itself.
func (s *socket) File() (*os.File, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// connect opens a connection from a machine to a port of m.
func (m *machine) connect(from netip.Addr, number uint16) (*conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	client, server := connect("tcp", netip.AddrPortFrom(from, 20_000+m.last%10_000), netip.AddrPortFrom(m.address, number))
	if p := m.ports[number]; p != nil {
		select {
		case p.accepted <- server:
			return client, nil
		default:
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// pass begins to let two processes use the ports, or ends that.
func (m *machine) pass(passed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed = passed
	for number, packets := range m.held {
		if !passed && len(packets) > 0 {
			m.world.fail("%d packets to port %d after a hand-over: no process has read them", len(packets), number)
		}
	}
}

// deliver passes a packet to a process that reads a UDP port. It reports false if none does: but during a
// hand-over the packet waits for the next one.
func (m *machine) deliver(number uint16, n int, packet []byte, proto dns.Proto, client netip.AddrPort) bool {
	serve := func(l *listener) { l.readers[n%len(l.readers)].serve(packet, proto, client) }
	m.mu.Lock()
	all := m.listeners[number]
	if len(all) == 0 {
		defer m.mu.Unlock()
		if m.passed {
			m.held[number] = append(m.held[number], serve)
		}
		return m.passed
	}
	l := all[n/2%len(all)]
	l.begin() // before it can stop
	m.mu.Unlock()
	defer l.done()
	serve(l)
	return true
}

// add makes a listener read its UDP port, unless its process has died.
func (m *machine) add(l *listener) {
	m.mu.Lock()
	if l.process.dead {
		m.mu.Unlock()
		return
	}
	number := l.addr.Port()
	m.listeners[number] = append(m.listeners[number], l)
	held := m.held[number]
	delete(m.held, number)
	m.mu.Unlock()
	for _, serve := range held {
		serve(l)
	}
}

// remove is the end of add.
func (m *machine) remove(l *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	number := l.addr.Port()
	m.listeners[number] = slices.DeleteFunc(m.listeners[number], func(other *listener) bool { return other == l })
}
