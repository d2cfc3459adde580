package kubetest

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// EtcdFault is what is wrong with a way between two ends.
type EtcdFault uint8

const (
	// EtcdOpen is nothing: everything goes through.
	EtcdOpen EtcdFault = iota
	// EtcdRefused cuts connections, and closes new ones as soon as they are there.
	EtcdRefused
	// EtcdSilent lets connections stand, and new ones be made, and nothing through:
	// nobody is told. When it ends all go on as if nothing had been.
	EtcdSilent
)

// handshakeTime bounds how long a gate waits to learn who has come.
const handshakeTime = 10 * time.Second

// An etcdGate is a TCP proxy before one port of a member. It has its own port for as
// long as the cluster is there, whatever becomes of the member behind it.
type etcdGate struct {
	ln       net.Listener
	identity *tls.Config // asks who comes, and takes the TLS off; nil lets bytes through as they are
	running  sync.WaitGroup

	mu       sync.Mutex
	target   string               // host:port of the member; empty while it does not run
	faults   map[string]EtcdFault // by who comes; clients have no names
	changed  chan struct{}        // closed, and made anew, when one of these changes
	passages map[*etcdPassage]struct{}
	closed   bool
}

// An etcdPassage is a connection through a gate.
type etcdPassage struct {
	from      string
	near, far net.Conn // nil: not yet
}

// newEtcdGate listens on a loopback port of the kernel's choice. While it has no
// target it refuses.
func newEtcdGate(identity *tls.Config) (*etcdGate, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &etcdGate{ln: ln, identity: identity, faults: map[string]EtcdFault{}, changed: make(chan struct{}), passages: map[*etcdPassage]struct{}{}}
	g.running.Go(g.accept)
	return g, nil
}

func (g *etcdGate) addr() string { return g.ln.Addr().String() }

// lead sends those who come to another target, cuts off those who are at the old
// one, and refuses all if it is empty.
func (g *etcdGate) lead(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
	g.change(func(*etcdPassage) bool { return true })
}

// set gives those who come from somewhere another fault.
func (g *etcdGate) set(from string, f EtcdFault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[from] = f
	g.change(func(p *etcdPassage) bool { return p.from == from && f == EtcdRefused })
}

// change wakes who waits, and cuts passages. Its caller has the lock.
func (g *etcdGate) change(cut func(*etcdPassage) bool) {
	close(g.changed)
	g.changed = make(chan struct{})
	for p := range g.passages {
		if cut(p) {
			p.cut()
		}
	}
}

// close stops the gate, cuts what is under way and waits for its end.
func (g *etcdGate) close() {
	g.mu.Lock()
	g.closed = true
	g.change(func(*etcdPassage) bool { return true })
	g.mu.Unlock()
	_ = g.ln.Close()
	g.running.Wait()
}

func (g *etcdGate) accept() {
	for {
		conn, err := g.ln.Accept()
		if err != nil {
			return // by close alone
		}
		p := &etcdPassage{near: conn}
		if g.enter(p) {
			g.running.Go(func() { g.serve(p) })
		}
	}
}

// enter notes a passage, or cuts it if the gate is closed.
func (g *etcdGate) enter(p *etcdPassage) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		p.cut()
		return false
	}
	g.passages[p] = struct{}{}
	return true
}

// serve takes one connection through, until one of its ends is closed.
func (g *etcdGate) serve(p *etcdPassage) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.passages, p)
		p.cut()
	}()
	if g.identity != nil && g.greet(p) != nil {
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
	lost := g.closed || g.target != target || g.faults[p.from] == EtcdRefused
	g.mu.Unlock()
	if lost {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { g.carry(p, p.near, p.far) })
	g.carry(p, p.far, p.near)
	back.Wait()
}

// greet learns by a certificate who has come.
func (g *etcdGate) greet(p *etcdPassage) error {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
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

// wait returns as soon as the passage is not silent, with its target; or with
// false, when there is none to be had.
func (g *etcdGate) wait(p *etcdPassage) (target string, ok bool) {
	for {
		g.mu.Lock()
		target, f, closed, changed := g.target, g.faults[p.from], g.closed, g.changed
		g.mu.Unlock()
		switch {
		case closed || target == "" || f == EtcdRefused:
			return "", false
		case f == EtcdOpen:
			return target, true
		}
		<-changed
	}
}

// carry copies one direction. When it ends, so does the other: nobody here goes on
// to read when he has said all.
func (g *etcdGate) carry(p *etcdPassage, to, from net.Conn) {
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

// cut ends a passage without a goodbye: who reads or writes at its ends fails at
// once. Its caller has the gate's lock.
func (p *etcdPassage) cut() {
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
