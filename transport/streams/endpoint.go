package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

// maxQUICConns bounds the connections of an endpoint without another limit. They have no file
// descriptors: the memory for connections over QUIC is what bounds them then.
const maxQUICConns = 1 << 20

// quicConns returns the bound for a limit, where 0 is none.
func quicConns(limit int) int { return min(cmp.Or(limit, maxQUICConns), maxQUICConns) }

// busyHandshake is how long a handshake may wait for a packet of the client while many are incomplete.
const busyHandshake = time.Second

// An endpoint is a UDP socket with QUIC connections. Of two processes that have the socket
// only one may read it, since the packets of a connection must reach the process that has it.
type endpoint struct {
	listener
	protocol protocol
	serve    func(*connection) // answers the queries of a connection until it is closed
	socket   packetSocket
	sessions *transport.Sessions
	timeouts atomic.Pointer[transport.Limits]

	removeGauge func()

	mu     sync.Mutex
	active *activity // nil while the socket is not read
}

// A packetSocket is a *net.UDPConn, or a socket of Options.ListenPacket.
type packetSocket interface {
	net.PacketConn
	File() (*os.File, error)
}

// A protocol is one that QUIC connections have.
type protocol struct {
	name           string    // for ALPN
	streams        int64     // one-way streams of the client; -1 is none
	none, overload closeCode // for connections that are closed without an error, and over a limit
}

// activity is the state of an endpoint while it reads its socket.
type activity struct {
	transport *quic.Transport
	listener  *quic.Listener
	ctx       context.Context // ends when no more queries are accepted
	cancel    context.CancelFunc
	grace     context.Context // ends when the connections are closed; after ctx
	endGrace  context.CancelFunc
	closing   atomic.Bool
	running   sync.WaitGroup // goroutines of connections, and accept
}

// A connection is a QUIC connection whose handshake is complete.
type connection struct {
	*quic.Conn
	*transport.Session
	protocol protocol
	sessions *transport.Sessions
	stats    func() quic.ConnectionStats // of Conn
	pacer    pacer
	ctx      context.Context         // ends when no more queries are accepted
	end      context.CancelCauseFunc // ends ctx; a closeCode closes the connection at once
	grace    context.Context         // ends when the listener closes the connection
	running  *sync.WaitGroup         // for goroutines; not used after the connection is closed
	refs     atomic.Int64            // queries that are not finished, and one for accept
	idle     chan struct{}           // closed when refs is zero

	// lastReply is how long the connection stays open after its last reply, since closing it discards what
	// the client has not read: a part of the grace period, 200 ms of 5 s.
	lastReply time.Duration
}

// A closeCode is an error code of the protocol above QUIC.
type closeCode quic.ApplicationErrorCode

func (c closeCode) Error() string { return fmt.Sprintf("%#x", uint64(c)) }

// acceptStreams calls query for each stream until one side ends the connection, or the limit
// of streams is reached; 0 is no limit. Then it waits until the queries are finished, and
// closes the connection. query may read, but no longer than the connection may be open.
func (c *connection) acceptStreams(limit int, query func(*quic.Stream)) {
	closeWith := func(code closeCode) { _ = c.CloseWithError(quic.ApplicationErrorCode(code), "") }
	defer context.AfterFunc(c.grace, func() { closeWith(c.protocol.none) })()
	defer context.AfterFunc(c.ctx, func() {
		if code, failed := context.Cause(c.ctx).(closeCode); failed {
			closeWith(code)
		}
	})()

	for n := 0; limit == 0 || n < limit; n++ {
		s, err := c.AcceptStream(c.ctx)
		if err != nil {
			break
		}
		c.refs.Add(1)
		c.StartQuery()
		query(s)
	}
	c.release()

	code, failed := context.Cause(c.ctx).(closeCode)
	if !failed {
		code = c.protocol.none
		waitFor(c, c.idle)
		waitFor(c, time.After(c.lastReply-c.Inactive()))
	}
	closeWith(code)
}

// waitFor waits for an event, but not longer than the connection is open.
func waitFor[T any](c *connection, event <-chan T) {
	select {
	case <-event:
	case <-c.grace.Done():
	case <-c.Context().Done():
	}
}

// finish is called once for each query.
func (c *connection) finish() {
	c.EndQuery()
	c.release()
}

func (c *connection) release() {
	if c.refs.Add(-1) == 0 {
		close(c.idle)
	}
}

// open opens addr for a protocol.
func (e *endpoint) open(
	ctx context.Context, addr netip.AddrPort, o Options, p protocol, serve func(*connection),
) error {
	e.protocol, e.serve = p, serve
	o.MaxConns = cmp.Or(o.MaxConns, quicConns(o.Limits.Connections))
	if err := e.listen(ctx, addr, o.Options); err != nil {
		return err
	}
	e.init(o)
	e.sessions = transport.NewSessions(e.Messages)
	e.SetLimits(o.Options.Limits)
	e.removeGauge = o.Metrics.TemporaryGauge("seamark_transport_connections", "Open connections.",
		e.sessions.Count, "address", o.Name)
	return nil
}

// listen opens the socket.
func (e *endpoint) listen(ctx context.Context, addr netip.AddrPort, o transport.Options) error {
	if o.ListenPacket == nil {
		socket, at, _, err := transport.ListenUDP(ctx, addr, o)
		e.socket, e.addr = socket, at
		return err
	}
	address := addr.String()
	if !addr.Addr().IsValid() { // all addresses
		address = fmt.Sprint(":", addr.Port())
	}
	socket, err := o.ListenPacket(ctx, "udp", address)
	if err != nil {
		return err
	}
	e.socket, e.addr = socket.(packetSocket), addr
	return nil
}

// packets returns the socket as quic-go gets it: it reads and writes many packets by one system call if
// the socket has the methods of a net.UDPConn.
func (e *endpoint) packets() net.PacketConn {
	if udp, ok := e.socket.(*net.UDPConn); ok {
		return &quietSocket{UDPConn: udp}
	}
	return e.socket
}

// SetLimits sets the timeouts. The idle timeout is that of future connections.
func (e *endpoint) SetLimits(limits transport.Limits) (applied bool) {
	limits = limits.OrDefaults()
	e.timeouts.Store(&limits)
	return true
}

// SetStreamLimits sets the limits of future connections.
func (e *endpoint) SetStreamLimits(limits Limits) (applied bool) {
	e.limits.Store(&limits)
	e.sessions.SetMaxConns(quicConns(limits.Connections))
	return true
}

// config returns the configuration of a new connection.
func (e *endpoint) config(*quic.ClientInfo) (*quic.Config, error) {
	// A client that sends more than one message of the largest size waits until it is read.
	const window = wire.MaxMessage + 3
	timeouts := e.timeouts.Load()
	handshake := timeouts.MessageTimeout
	if e.sessions.NeedsVerification() { // many are incomplete, and the client has received a packet
		handshake = min(handshake, busyHandshake)
	}
	return &quic.Config{
		HandshakeIdleTimeout:           handshake,
		MaxIdleTimeout:                 timeouts.IdleTimeout,
		InitialStreamReceiveWindow:     window / 4,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
		MaxIncomingStreams:             int64(e.limits.Load().Streams),
		MaxIncomingUniStreams:          e.protocol.streams,
	}, nil
}

// Serve starts to read the socket and returns at once.
func (e *endpoint) Serve() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.start()
}

// start is Serve with the lock held.
func (e *endpoint) start() {
	e.sessions.Resume()
	a := &activity{transport: &quic.Transport{
		Conn:                e.packets(),
		VerifySourceAddress: func(net.Addr) bool { return e.sessions.NeedsVerification() },
		ConnContext: func(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
			return e.sessions.Begin(ctx, client.RemoteAddr, e.timeouts.Load().MessageTimeout)
		},
	}}
	var err error
	a.listener, err = a.transport.Listen(e.o.TLS.Config(e.protocol.name), &quic.Config{GetConfigForClient: e.config})
	if err != nil {
		e.o.Log.Error("Serving QUIC failed", "address", e.o.Name, "error", err)
		return
	}

	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.grace, a.endGrace = context.WithCancel(context.Background())
	a.running.Go(func() { e.accept(a) })
	e.active = a
}

// accept accepts connections until the listener is closed.
func (e *endpoint) accept(a *activity) {
	for {
		conn, err := a.listener.Accept(context.Background())
		if err != nil && !a.closing.Load() {
			e.o.Log.Error("Reading QUIC packets failed, retrying", "address", e.o.Name, "error", err)
			time.AfterFunc(restartPause, func() { e.restart(a) })
		}
		if err != nil {
			return
		}
		a.running.Go(func() {
			c := &connection{
				Conn: conn, protocol: e.protocol, sessions: e.sessions, stats: conn.ConnectionStats, grace: a.grace,
				running: &a.running, idle: make(chan struct{}), lastReply: e.o.Grace / 25,
			}
			c.refs.Store(1)
			c.pacer.most = slowWindow(e.o.Memory)
			c.ctx, c.end = context.WithCancelCause(a.ctx)
			defer c.end(nil)

			c.Session = e.sessions.Add(conn.Context(), conn.RemoteAddr(), func() { c.end(e.protocol.overload) })
			defer e.sessions.Remove(c.Session)
			e.serve(c)
		})
	}
}

// restartPause is how long after an error of the socket it is read again.
const restartPause = time.Second

// restart reads the socket again after an error, unless it has been suspended or closed since.
func (e *endpoint) restart(a *activity) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active != a {
		return
	}
	a.endGrace() // quic-go has closed the connections
	e.end(a)
	e.start()
}

// suspend ends the connections, and stops reading the socket. Queries that are being answered have
// time until grace ends. Clients that connect meanwhile are not answered: they try again.
func (e *endpoint) suspend(grace context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.active
	if a == nil {
		return
	}

	defer context.AfterFunc(grace, a.endGrace)()
	e.end(a)
}

// end ends an activity. The lock is held.
func (e *endpoint) end(a *activity) {
	e.sessions.Suspend()
	a.closing.Store(true)
	_ = a.listener.Close()
	a.cancel()
	a.running.Wait()
	_ = a.transport.Close()
	e.active = nil
}

// Stop ends the connections and closes the socket. Queries that are being answered have time
// for that until the grace period ends.
func (e *endpoint) Stop() {
	grace, cancel := context.WithTimeout(context.Background(), e.o.Grace)
	defer cancel()
	e.suspend(grace)
	_ = e.socket.Close()
	e.removeGauge()
	e.Close()
}

// A quietSocket does not let quic-go look at the sizes of its buffers, which is what the first
// two calls of SyscallConn are for: it would print a warning to standard error if the kernel
// allows less than it wants. It sets the sizes in any case.
type quietSocket struct {
	*net.UDPConn
	calls atomic.Int32
}

func (s *quietSocket) SyscallConn() (syscall.RawConn, error) {
	if s.calls.Add(1) <= 2 {
		return nil, errors.ErrUnsupported
	}
	return s.UDPConn.SyscallConn()
}

// Exclusive reports that another process may not read the socket at the same time.
func (e *endpoint) Exclusive() bool { return true }

// Files returns a copy of the socket, for another process. The caller must close it.
func (e *endpoint) Files() ([]*os.File, error) { return files(e.socket) }

// HandOver ends the connections, whose clients connect to the other process, and stops reading
// the socket. Queries that are being answered have time until ctx ends.
func (e *endpoint) HandOver(ctx context.Context, _ func(transport.Conn) error) error {
	e.suspend(ctx)
	return nil
}

// Resume reads the socket again after HandOver.
func (e *endpoint) Resume() {
	e.mu.Lock()
	suspended := e.active == nil
	e.mu.Unlock()
	if suspended {
		e.Serve()
	}
}
