// Package gate is a TCP proxy that simulates faults of a network, for tests.
package gate

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A Fault is a fault of the connections between two ends.
type Fault uint8

const (
	// Open means no fault.
	Open Fault = iota
	// Refused cuts connections, and closes new ones at once.
	Refused
	// Silent keeps connections and accepts new ones, and passes no byte.
	// Connections continue where they were when it ends.
	Silent
)

// handshakeTimeout bounds the TLS handshake of an incoming connection.
const handshakeTimeout = 10 * time.Second

// A Gate is a TCP proxy in front of a port. Its own port stays open until Close,
// whether or not the target listens.
type Gate struct {
	ln       net.Listener
	identity *tls.Config // terminates TLS and identifies clients; nil passes bytes unchanged
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string           // host:port of the member; empty while it does not run
	faults  map[string]Fault // by the name of the connecting member; "" for clients
	changed chan struct{}    // closed and replaced when one of these changes
	open    map[*link]struct{}
	closed  bool
}

// A link is a connection through a gate.
type link struct {
	from      string
	near, far net.Conn // far is nil before the gate has connected
}

// New listens on a loopback port chosen by the kernel. It refuses connections
// while it has no target.
func New(identity *tls.Config) (*Gate, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &Gate{ln: ln, identity: identity, faults: map[string]Fault{}, changed: make(chan struct{}),
		open: map[*link]struct{}{}}
	g.running.Go(g.accept)
	return g, nil
}

// Addr returns the host:port of the gate.
func (g *Gate) Addr() string { return g.ln.Addr().String() }

// SetTarget directs new connections to target, refuses them if it is empty, and cuts
// all open connections.
func (g *Gate) SetTarget(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
	g.change(func(*link) bool { return true })
}

// SetFault sets the fault of connections from a member.
func (g *Gate) SetFault(from string, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[from] = f
	g.change(func(p *link) bool { return p.from == from && f == Refused })
}

// change wakes waiting links and cuts some. The caller holds g.mu.
func (g *Gate) change(cut func(*link) bool) {
	close(g.changed)
	g.changed = make(chan struct{})
	for p := range g.open {
		if cut(p) {
			p.cut()
		}
	}
}

// Close stops the gate, cuts all links and waits until they have ended.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.change(func(*link) bool { return true })
	g.mu.Unlock()
	_ = g.ln.Close()
	g.running.Wait()
}

func (g *Gate) accept() {
	for {
		conn, err := g.ln.Accept()
		if err != nil {
			return // closed
		}
		p := &link{near: conn}
		if g.enter(p) {
			g.running.Go(func() { g.serve(p) })
		}
	}
}

// enter registers a link, or cuts it if the gate is closed.
func (g *Gate) enter(p *link) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		p.cut()
		return false
	}
	g.open[p] = struct{}{}
	return true
}

// serve connects a link to the target and copies until one end is closed.
func (g *Gate) serve(p *link) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, p)
		p.cut()
	}()

	if g.identity != nil && g.identify(p) != nil {
		return
	}

	target, ok := g.wait(p)
	if !ok {
		return
	}

	far, err := new(net.Dialer).Dial("tcp4", target)
	if err != nil {
		return
	}

	g.mu.Lock()
	p.far = far
	lost := g.closed || g.target != target || g.faults[p.from] == Refused
	g.mu.Unlock()
	if lost {
		return
	}

	var back sync.WaitGroup
	back.Go(func() { g.copy(p, p.near, p.far) })
	g.copy(p, p.far, p.near)
	back.Wait()
}

// identify reads the member's name from its certificate.
func (g *Gate) identify(p *link) error {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	conn := tls.Server(p.near, g.identity)
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p.from = conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	p.near = conn
	return nil
}

// wait blocks while the link is silent. It returns the target, and false if the
// link is refused.
func (g *Gate) wait(p *link) (target string, ok bool) {
	for {
		g.mu.Lock()
		target, f, closed, changed := g.target, g.faults[p.from], g.closed, g.changed
		g.mu.Unlock()
		switch {
		case closed || target == "" || f == Refused:
			return "", false
		case f == Open:
			return target, true
		}
		<-changed
	}
}

// copy copies one direction. Its end closes the other direction, too: neither etcd
// nor its clients use half-closed connections.
func (g *Gate) copy(p *link, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if _, ok := g.wait(p); !ok {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut resets both connections of a link. The caller holds the gate's lock.
func (p *link) cut() {
	for _, conn := range []net.Conn{p.near, p.far} {
		if c, ok := conn.(*tls.Conn); ok {
			conn = c.NetConn()
		}
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}
