package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/slots"
)

// TLS is the source of a listener's TLS configuration. It may be replaced while the
// listener serves.
type TLS struct {
	Crypto *slots.Pool // for handshakes; nil is a pool of this listener

	source atomic.Pointer[func() *tls.Config]
}

// Set replaces the source: a function that returns the present configuration for each
// handshake.
func (t *TLS) Set(source func() *tls.Config) { t.source.Store(&source) }

// Config returns a configuration that uses the present one of the source for each
// handshake, with these application protocols (ALPN). Clients resume sessions with tickets
// (RFC 8446 §2.2) whose keys belong to the result.
func (t *TLS) Config(protocols ...string) *tls.Config {
	pool := t.Crypto
	if pool == nil {
		pool = slots.NewProcessors()
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols}
	c.GetConfigForClient = LimitHandshakes(pool, func() *tls.Config {
		c := (*t.source.Load())().Clone()
		c.NextProtos = protocols
		c.DynamicRecordSizingDisabled = true // a write is one record, and one system call
		return c
	})
	return c
}

// A tlsSocket is the socket of a connection with TLS. It takes all other methods from
// the TCP socket.
type tlsSocket struct {
	socket
	tls     *tls.Conn
	records records
}

func newTLSSocket(l *Listener, tcp socket) *tlsSocket {
	s := &tlsSocket{socket: tcp, records: records{socket: tcp, l: l}}
	s.tls = tls.Server(&s.records, l.tls)
	return s
}

// handshake reads the PROXY header if the peer may be a proxy, and completes the handshake
// of TLS if the listener has it. It returns false if that has failed, or the connection leaves
// for another process before its header is complete.
func (c *conn) handshake() bool {
	ok := c.proxyPolicy == ProxySkip || c.identify()
	if s, isTLS := c.sock.(*tlsSocket); ok && isTLS {
		s.records.peer = c.peer
		c.setHandshakeDeadline(time.Now().Add(c.l.limits.Load().MessageTimeout))
		if ok = s.tls.Handshake() == nil; !ok {
			c.l.counts.handshake.Add(1)
		}
		s.records.handshake.release()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handshaking = c.leaving
	if !ok || c.sock.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	c.lastActive.Store(c.l.clock(time.Now()))
	return true
}

// setHandshakeDeadline limits how long the connection is read before its first query.
func (c *conn) setHandshakeDeadline(deadline time.Time) {
	_ = c.sock.SetReadDeadline(deadline)
	c.shortenHandshake() // wake may have set a deadline before
}

// shortenHandshake limits it further if the listener stops or passes its connections.
func (c *conn) shortenHandshake() {
	switch {
	case c.l.isStopping():
		_ = c.sock.SetReadDeadline(c.l.stopTime.Add(c.l.lastQuery))
	case c.l.passing.Load():
		_ = c.sock.SetReadDeadline(pastDeadline())
	}
}

// Read reads all data that have been received, as a TCP socket does: crypto/tls returns
// one record at a time.
func (s *tlsSocket) Read(p []byte) (int, error) { return s.read(p, block) }

func (s *tlsSocket) tryRead(p []byte) (int, error) {
	n, err := s.read(p, doNotBlock)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errWouldBlock
	}
	return n, err
}

func (s *tlsSocket) read(p []byte, how receiving) (int, error) {
	s.records.how = how
	n, err := s.tls.Read(p)
	s.records.how = doNotReceive
	for err == nil && n < len(p) {
		var more int
		more, err = s.tls.Read(p[n:])
		n += more
	}
	if n > 0 {
		return n, nil // the next call returns the error
	}
	return 0, err
}

func (s *tlsSocket) Write(p []byte) (int, error) { return s.tls.Write(p) }

// tryWrite writes nothing: crypto/tls cannot write a part of a record.
func (s *tlsSocket) tryWrite([]byte) int { return 0 }

// SetWriteDeadline does nothing: records.Write sets a deadline where it is needed.
func (s *tlsSocket) SetWriteDeadline(time.Time) error { return nil }

// records is the socket below a tls.Conn, with the records of TLS.
type records struct {
	socket
	l         *Listener
	peer      netip.AddrPort
	handshake handshakeSlot
	how       receiving // of Read
	rest      []byte    // received together with a PROXY header
}

type receiving uint8

const (
	block receiving = iota
	doNotBlock
	doNotReceive // only use records that have been received before
)

// Read returns os.ErrDeadlineExceeded itself where nothing was received, after which
// crypto/tls can continue to read.
func (r *records) Read(p []byte) (n int, err error) {
	r.handshake.release()
	if len(r.rest) > 0 {
		n = copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	switch r.how {
	case block:
		n, err = r.socket.Read(p)
	case doNotBlock:
		n, err = r.tryRead(p)
	case doNotReceive:
		err = errWouldBlock
	}
	if err == errWouldBlock || errors.Is(err, os.ErrDeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func (r *records) Write(p []byte) (int, error) {
	r.handshake.release()
	n := r.tryWrite(p)
	if n == len(p) {
		return n, nil
	}
	_ = r.SetWriteDeadline(time.Now().Add(r.l.limits.Load().WriteTimeout))
	more, err := r.socket.Write(p[n:])
	return n + more, err
}

// LocalAddr is not used.
func (*records) LocalAddr() net.Addr { return nil }

// RemoteAddr returns the address of the client.
func (r *records) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(r.peer) }

// handshakeSlot implements handshaker.
func (r *records) handshakeSlot() *handshakeSlot { return &r.handshake }

func (r *records) SetDeadline(t time.Time) error {
	return errors.Join(r.SetReadDeadline(t), r.SetWriteDeadline(t))
}
