package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
)

// Messages answers single messages that a server of another protocol receives, such as
// HTTP. Its methods are safe for concurrent use.
type Messages struct {
	o       Options
	counts  counters
	start   time.Time
	last    atomic.Int64 // time of the last query, since start
	serving sync.RWMutex // held for reading while a query is answered
	queries sync.Pool    // of *dns.Query
	senders sync.Pool    // of *messageSender
	answers *answerPool
}

// NewMessages returns Messages for the Port of o. The caller must call Close.
func NewMessages(o Options) *Messages {
	o = o.OrDefaults()
	m := &Messages{o: o, counts: newCounters(o.Metrics), start: time.Now(), answers: newAnswerPool(answersAtOnce(), o.Memory)}
	m.queries.New = func() any { return dns.NewQuery(nil) }
	m.senders.New = func() any { return &messageSender{sent: make(chan struct{})} }
	o.Port.AddReader(&m.serving)
	return m
}

// Close ends the use of the Port. No query may be answered any more.
func (m *Messages) Close() {
	m.o.Port.RemoveReader(&m.serving)
	m.answers.close()
}

// Port returns the port that answers.
func (m *Messages) Port() *dns.Port { return m.o.Port }

// Readers returns 0: there are no UDP readers.
func (m *Messages) Readers() int { return 0 }

// LastQuery returns the time of the last query.
func (m *Messages) LastQuery() time.Time { return m.start.Add(time.Duration(m.last.Load())) }

// An Origin describes the client and the connection that a message came from.
type Origin struct {
	Peer, Local netip.AddrPort
	Encrypted   bool
	// Header is the header of the HTTP request, with keys in canonical form; nil if there is
	// none.
	Header    map[string][]string
	ProxyTLVs string // see dns.Session
}

// Answer answers the query in packet and calls use, which must not keep the query. Reply of
// the query is empty if the client is to get none. Answer blocks until use has returned, or
// until ctx ends: then use is not called any more. It returns false without calling use if packet
// cannot be a query.
func (m *Messages) Answer(ctx context.Context, packet []byte, from Origin, use func(*dns.Query)) bool {
	s := m.senders.Get().(*messageSender)
	s.use = use
	outcome := m.Serve(packet, from, s, use)
	if outcome != dns.Parked {
		s.use = nil
		m.senders.Put(s)
		return outcome != dns.Ignored
	}

	select {
	case <-s.sent:
	case <-ctx.Done():
		if s.claimed.Swap(true) {
			<-s.sent
		}
	}
	return true
}

// Serve is like Answer, but does not wait: if the query is parked, its reply is sent by s, at
// any time. use must not block. Serve does not keep packet.
func (m *Messages) Serve(packet []byte, from Origin, s dns.Sender, use func(*dns.Query)) dns.Outcome {
	answer := m.answers.take()
	defer m.answers.put(answer)
	q, now := m.queries.Get().(*dns.Query), time.Now()
	q.Sender, q.Peer, q.Local, q.Interface = s, from.Peer, from.Local, 0
	q.Reset(packet, dns.TCP, now)
	q.Encrypted, q.Header, q.ProxyTLVs = from.Encrypted, from.Header, from.ProxyTLVs

	m.serving.RLock()
	outcome := serveRecovered(m.o.Port, q, answer[:0])
	switch outcome {
	case dns.Answered, dns.Dropped:
		sealed := time.Now()
		use(q)
		m.counts.observe(m.o.Log, q, sealed)
	case dns.Parked:
		q = dns.NewQuery(nil)
	case dns.Ignored:
		m.counts.unreadableTCP.Add(1)
	}
	m.serving.RUnlock()
	m.last.Store(int64(now.Sub(m.start)))

	q.Sender, q.Header = nil, nil
	m.queries.Put(q)
	return outcome
}

// A messageSender passes the reply of a parked query to use.
type messageSender struct {
	use     func(*dns.Query)
	sent    chan struct{}
	claimed atomic.Bool // by Send, or by Answer when it does not wait any more
}

func (s *messageSender) Send(q *dns.Query) {
	if !s.claimed.Swap(true) {
		s.use(q)
		close(s.sent)
	}
}

// CountOverClient counts a request that was refused because its client has too many.
func (m *Messages) CountOverClient() { m.counts.overClient.Add(1) }

// serveRecovered answers q. If a handler panics, the reply is SERVFAIL.
func serveRecovered(p *dns.Port, q *dns.Query, lent []byte) (outcome dns.Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			outcome = p.Recover(q, lent, cause)
		}
	}()
	return p.Serve(q, lent)
}

func (c *counters) observe(log *slog.Logger, q *dns.Query, sealed time.Time) {
	defer func() {
		if cause := recover(); cause != nil {
			c.observerPanicked(log, cause)
		}
	}()
	q.Observe(sealed)
}

// ListenTCP opens a socket for a server of another protocol, as Listen does for DNS. It
// has at most most() connections at the same time, unless that is 0.
func ListenTCP(ctx context.Context, addr netip.AddrPort, o Options, most func() int) (*LimitedListener, error) {
	o = o.OrDefaults()
	o.TLS = new(TLS) // so that there is no UDP
	l, err := listenAny(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return &LimitedListener{
		Listener: l.tcp,
		Address:  l.addr,
		table:    NewConnTable(ConnLimits{Most: most, Descriptors: o.Descriptors, Memory: o.Memory, Metrics: o.Metrics}),
		owned:    true,
		log:      o.Log,
		failed:   acceptErrors{log: o.Log, address: l.addr},
		timeout:  o.MessageTimeout,
	}, nil
}

// ListenUDP opens a socket for a server of another protocol, as Listen does for DNS. The
// address has the port that was opened. shared reports whether the socket stays open in the
// process that opened it.
func ListenUDP(ctx context.Context, addr netip.AddrPort, o Options) (
	c *net.UDPConn, at netip.AddrPort, shared bool, err error,
) {
	err = openAny(addr, o.Inherited, func(addr netip.AddrPort) error {
		at = addr
		c, shared, err = listenUDP(ctx, addr, o.Inherited)
		return err
	})
	if err != nil {
		return nil, at, false, explain("udp", at, err)
	}
	return c, netip.AddrPortFrom(at.Addr(), AddrPort(c.LocalAddr()).Port()), shared, nil
}

func listenUDP(ctx context.Context, addr netip.AddrPort, in *Inherited) (c *net.UDPConn, shared bool, err error) {
	shared, err = in.take(false, addr, func(f *os.File) error {
		if c != nil {
			return errors.New("there are several inherited sockets for it: restart the server without them")
		}
		inherited, err := net.FilePacketConn(f)
		if err == nil {
			c = inherited.(*net.UDPConn)
		}
		return err
	})
	if err != nil && c != nil {
		_ = c.Close()
	}
	if err != nil || c != nil {
		return c, shared, err
	}

	var lc net.ListenConfig
	opened, err := lc.ListenPacket(ctx, network("udp", addr.Addr()), addr.String())
	if err != nil {
		return nil, false, err
	}
	return opened.(*net.UDPConn), false, nil
}
