package transport

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"
)

// A Conn is an open TCP connection that one process passes to another.
type Conn struct {
	File    *os.File
	Unread  []byte         // the part of a query that was read
	Queries int            // the number of queries received
	Client  netip.AddrPort // the client that a proxy has named; not valid if there is none
	// HeaderPending is set if a PROXY header may follow. Unread is the part of it that was
	// read.
	HeaderPending bool
	ProxyTLVs     string // of Client: see dns.Session
}

// Files returns copies of the sockets, for another process. The caller must close them.
func (l *Listener) Files() (files []*os.File, err error) {
	sockets := []any{l.tcp}
	for _, c := range l.udp {
		sockets = append(sockets, c)
	}
	for _, s := range sockets {
		f, err := s.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// HandOver passes the open TCP connections to send, each when none of its queries is
// parked. It returns when all connections are passed, or when ctx ends. If it returns
// nil, no connection is accepted any more, and Stop leaves waiting packets to the other
// process, which must have the sockets of Files and serve them already. Resume
// reverses that. After an error the listener serves as before.
//
// Connections can be passed only on Linux, where they wait in an acceptLoop, and without
// TLS.
func (l *Listener) HandOver(ctx context.Context, send func(Conn) error) (err error) {
	l.handedOver.Store(true)
	if l.loop == nil {
		return nil
	}
	l.loop.pause(true)
	if l.tls != nil {
		return nil // the state of TLS cannot be passed
	}

	l.passing.Store(true)
	l.conns.wake()
	for err == nil && ctx.Err() == nil {
		for _, c := range l.conns.takeLeaving() {
			if err == nil {
				err = c.pass(send)
			}
			if err != nil {
				c.resume()
			}
		}
		if len(l.conns.list()) == 0 {
			break
		}

		select {
		case <-l.conns.left:
		case <-l.conns.empty:
		case <-ctx.Done():
		}
	}

	for _, c := range l.conns.stopLeaving(l) {
		c.resume()
	}
	if err != nil {
		l.Resume()
	}
	return err
}

// Resume makes the listener serve as before HandOver.
func (l *Listener) Resume() {
	l.handedOver.Store(false)
	if l.loop != nil {
		l.loop.pause(false)
	}
}

// leave adds c to the connections that HandOver passes. It returns false if the
// connection must be closed instead.
func (s *conns) leave(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byID[c.id] != c: // evicted
		return false
	case !c.l.passing.Load():
		c.resume()
	default:
		s.leaving = append(s.leaving, c)
		s.left.Send()
	}
	return true
}

func (s *conns) takeLeaving() (leaving []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leaving, s.leaving = s.leaving, nil
	return leaving
}

// stopLeaving ends the hand-over and returns the connections that were not passed.
func (s *conns) stopLeaving(l *Listener) (leaving []*conn) {
	s.mu.Lock()
	l.passing.Store(false)
	s.mu.Unlock()
	return s.takeLeaving()
}

// pass passes c, which has no reader and no parked query, and closes this process's
// descriptor.
func (c *conn) pass(send func(Conn) error) error {
	c.mu.Lock()
	dead := c.isCut
	c.mu.Unlock()
	if !dead {
		f, ok := c.sock.(interface{ blocking() *os.File })
		if !ok {
			return errors.ErrUnsupported
		}
		passed := Conn{File: f.blocking(), Unread: c.unread, Queries: c.queries, HeaderPending: c.handshaking}
		if c.proxyPolicy == ProxyUse && !c.handshaking {
			passed.Client, passed.ProxyTLVs = c.peer, c.tlvs
		}
		if err := send(passed); err != nil {
			return err
		}
	}
	c.close()
	c.l.conns.removeClosed(c)
	return nil
}

// resume reads from c again.
func (c *conn) resume() {
	c.mu.Lock()
	c.leaving = false
	c.refs.Store(readerRef)
	c.mu.Unlock()
	c.in, c.unread = c.unread, nil
	c.start()
}

// Adopt serves a connection that another process has passed. The listener must have
// the address on which it was accepted, and keeps the file. An error closes it.
func (l *Listener) Adopt(in Conn) error {
	if l.tls != nil {
		_ = in.File.Close()
		return errors.ErrUnsupported
	}
	sock, peer, local, err := adopt(in.File)
	if err != nil {
		_ = in.File.Close()
		return err
	}

	var c *conn
	switch {
	case in.HeaderPending:
		c = l.accepted(sock, peer, local)
	case in.Client.IsValid():
		c = newConn(l, sock, in.Client, local)
		c.proxyPolicy, c.tlvs = ProxyUse, in.ProxyTLVs
	default:
		c = newConn(l, sock, peer, local)
	}

	c.in, c.queries, c.messageStart = in.Unread, in.Queries, time.Now()
	c.asked.Store(in.Queries > 0)
	if !l.admit(c) {
		return errors.New("too many connections")
	}
	c.start()
	return nil
}
