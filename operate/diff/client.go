package diff

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

	"github.com/seamark/seamark/operate/query"
)

const (
	sockets = 8   // connections or UDP sockets to the server
	workers = 128 // queries at a time

	attempts = 3
)

// A client sends queries to the compared server.
type client struct {
	Options
	network string
	first   [sockets]socket // of the transport of the options
	tcp     [sockets]socket // for replies that are truncated over UDP
}

func newClient(o Options) *client {
	c := &client{Options: o, network: "udp"}
	if o.Transport == "tcp" {
		c.network = "tcp"
	}
	return c
}

func (c *client) close() {
	for i := range c.first {
		c.first[i].close()
		c.tcp[i].close()
	}
}

// probe queries the SOA record of a zone. It returns an error unless the server replies.
func (c *client) probe(ctx context.Context, zone string) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(zone, dns.TypeSOA)
	reply, err := c.exchange(ctx, 0, m)
	if err != nil {
		return nil, fmt.Errorf("%w: check the address, and whether the server can be reached from here", err)
	}
	return reply, nil
}

// exchange sends a query and returns the reply. n selects the socket.
func (c *client) exchange(ctx context.Context, n int, m *dns.Msg) (reply *dns.Msg, err error) {
	for range attempts {
		reply, err = c.first[n%sockets].exchange(ctx, c, c.network, m)
		if err == nil && reply.Truncated && c.network == "udp" {
			reply, err = c.tcp[n%sockets].exchange(ctx, c, "tcp", m)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("querying %s over %s: %w", c.Address, c.network, err)
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
func (s *socket) open(ctx context.Context, c *client, network string) (*conn, error) {
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
	s.conn = &conn{Conn: opened, timeout: c.Timeout, stream: network == "tcp", waiting: map[uint16]*exchange{}, done: make(chan struct{})}
	go s.conn.read()
	return s.conn, nil
}

func (s *socket) exchange(ctx context.Context, c *client, network string, m *dns.Msg) (*dns.Msg, error) {
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
	waiting map[uint16]*exchange
	err     error // of the reader, set before done is closed

	writing sync.Mutex
}

// An exchange is a query that waits for its reply.
type exchange struct {
	query *dns.Msg
	reply chan *dns.Msg
	stray error // the last invalid reply, written by the reader under conn.mu
}

func (c *conn) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	e := &exchange{query: m, reply: make(chan *dns.Msg, 1)}
	c.mu.Lock()
	for c.waiting[c.nextID] != nil {
		c.nextID++ // at most workers IDs are in use
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
	if e.stray != nil {
		return nil, &noReply{c.timeout, e.stray}
	}
	return nil, &noReply{timeout: c.timeout}
}

// A noReply is the error of a query without a valid reply in time. stray is the last invalid
// one, or nil.
type noReply struct {
	timeout time.Duration
	stray   error
}

func (e *noReply) Error() string {
	if e.stray != nil {
		return fmt.Sprintf("no valid reply within %v, but %v", e.timeout, e.stray)
	}
	return fmt.Sprintf("no reply within %v", e.timeout)
}

func (c *conn) write(m *dns.Msg) error {
	buf := make([]byte, 2, 512)
	packet, err := m.PackBuffer(buf[2:512])
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

// received passes a reply to the exchange with its ID.
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
	reply, err := query.Accept(e.query, packet)
	if err != nil {
		e.stray = err
		return
	}
	select {
	case e.reply <- reply:
	default: // a second reply
	}
}
