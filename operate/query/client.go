package query

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	sockets  = 8 // UDP sockets, and TCP connections
	attempts = 3 // to send a query
)

// A Client sends many queries to one server. It is safe for concurrent use. Close closes its
// sockets, which are opened when they are needed.
type Client struct {
	Address string        // HOST:PORT
	Timeout time.Duration // of a reply, before the query is sent again, three times in all
	// Dial opens connections to the server.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	udp, tcp [sockets]socket
}

// Close closes the sockets. No query may wait for a reply.
func (c *Client) Close() {
	for i := range sockets {
		c.udp[i].close()
		c.tcp[i].close()
	}
}

// Probe queries the SOA record of a zone. It returns an error unless the server replies.
func (c *Client) Probe(ctx context.Context, zone string, tcp bool) (*dns.Msg, error) {
	reply, err := c.Exchange(ctx, 0, new(dns.Msg).SetQuestion(dns.Fqdn(zone), dns.TypeSOA), tcp)
	if err != nil {
		return nil, fmt.Errorf("%w: check the address, and whether the server can be reached from here", err)
	}
	return reply, nil
}

// Exchange sends m over UDP, and over TCP if the reply is truncated, or only over TCP. It replaces
// the ID of m. n selects the socket: at most a few thousand goroutines may have the same n.
func (c *Client) Exchange(ctx context.Context, n int, m *dns.Msg, tcp bool) (reply *dns.Msg, err error) {
	network, first := "udp", &c.udp[n%sockets]
	if tcp {
		network, first = "tcp", &c.tcp[n%sockets]
	}
	for range attempts {
		reply, err = first.exchange(ctx, c, network, m)
		if err == nil && reply.Truncated && !tcp {
			reply, err = c.tcp[n%sockets].exchange(ctx, c, "tcp", m)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("querying %s over %s: %w", c.Address, network, err)
	}
	return reply, nil
}

// A socket is a UDP socket or a TCP connection that is opened when it is needed, and opened
// again after an error. Several goroutines may use it.
type socket struct {
	mu   sync.Mutex
	conn *conn
}

func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
		<-s.conn.done
		s.conn = nil
	}
}

// open returns the connection. It opens it unless it is open.
func (s *socket) open(ctx context.Context, c *Client, network string) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		select {
		case <-s.conn.done:
		default:
			return s.conn, nil
		}
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	opened, err := c.Dial(ctx, network, c.Address)
	if err != nil {
		return nil, err
	}
	s.conn = &conn{
		Conn: opened, timeout: c.Timeout, stream: network == "tcp",
		waiting: map[uint16]*pending{}, done: make(chan struct{}),
	}
	go s.conn.read()
	return s.conn, nil
}

func (s *socket) exchange(ctx context.Context, c *Client, network string, m *dns.Msg) (*dns.Msg, error) {
	conn, err := s.open(ctx, c, network)
	if err != nil {
		return nil, err
	}
	return conn.exchange(ctx, m)
}

// A conn is an open connection or UDP socket with the queries that wait for replies.
type conn struct {
	net.Conn
	timeout time.Duration
	stream  bool
	done    chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	nextID  uint16
	waiting map[uint16]*pending
	err     error // of the reader, set before done is closed

	writing sync.Mutex
}

// A pending is a query that waits for its reply.
type pending struct {
	query *dns.Msg
	reply chan *dns.Msg
	stray error // the last invalid reply, written by the reader under conn.mu
}

func (c *conn) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	e := &pending{query: m, reply: make(chan *dns.Msg, 1)}
	c.mu.Lock()
	for c.waiting[c.nextID] != nil {
		c.nextID++
	}
	m.Id = c.nextID
	c.nextID++
	c.waiting[m.Id] = e
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, m.Id)
	}()

	if err := c.write(m); err != nil {
		return nil, err
	}

	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case reply := <-e.reply:
		return reply, nil
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, &NoReply{c.timeout, e.stray}
}

// A NoReply is the error of a Client for a query without a valid reply in time. Stray is the last
// invalid one, or nil.
type NoReply struct {
	timeout time.Duration
	Stray   error
}

func (e *NoReply) Error() string {
	if e.Stray != nil {
		return fmt.Sprintf("no valid reply within %v, but %v", e.timeout, e.Stray)
	}
	return fmt.Sprintf("no reply within %v", e.timeout)
}

func (c *conn) write(m *dns.Msg) error {
	packet, err := m.PackBuffer(make([]byte, 512))
	if err != nil {
		return err
	}

	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	if c.stream {
		packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	}
	_, err = c.Write(packet)
	return err
}

// read reads replies until the connection is closed.
func (c *conn) read() {
	defer close(c.done)
	defer c.Close()
	buf := make([]byte, 1<<16)
	for {
		packet, err := c.packet(buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server closed the connection")
			}
			c.err = err
			return
		}
		c.received(packet)
	}
}

func (c *conn) packet(buf []byte) ([]byte, error) {
	if !c.stream {
		n, err := c.Read(buf)
		return buf[:n], err
	}
	if _, err := io.ReadFull(c, buf[:2]); err != nil {
		return nil, err
	}
	packet := buf[:binary.BigEndian.Uint16(buf)]
	_, err := io.ReadFull(c, packet)
	return packet, err
}

// received passes a reply to the query with its ID.
func (c *conn) received(packet []byte) {
	if len(packet) < 2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.waiting[binary.BigEndian.Uint16(packet)]
	if e == nil {
		return
	}
	reply, err := Accept(e.query, packet)
	if err != nil {
		e.stray = err
		return
	}
	select {
	case e.reply <- reply:
	default: // a second reply
	}
}
