// Package transport reads queries from UDP sockets and TCP connections, has a
// dns.Port answer them, and sends the replies. It is the only package that opens
// sockets for clients. It knows nothing of names, zones and configuration, and reads
// nothing of a packet except the two bytes of length that precede it over TCP.
//
// The server makes a Listener for each address. On Linux a UDP reader receives up to
// 16 datagrams by one system call, answers them on its own goroutine and sends the
// replies by another call (batch_linux.go); elsewhere it reads single datagrams
// (udp.go). TCP connections are answered by conn.run (tcp.go). On Linux an acceptLoop
// calls it when a connection has sent a query, and an idle connection has no
// goroutine (accept_loop_linux.go); elsewhere each connection has one. The replies of
// parked queries are sent when they are ready: over UDP by the goroutine of the
// parked query, over TCP by a writer (tcp_write.go).
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/cgroup"
	"github.com/seamark/seamark/sys/descriptors"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// Options configure a Listener. The zero value of a field means its default.
type Options struct {
	Port     *dns.Port     // answers the queries; nil is a new one
	Readers  int           // of UDP, each with its own socket on Linux; default cgroup.Processors
	Portable bool          // read single packets, as on systems without recvmmsg
	Grace    time.Duration // for parked queries when the listener stops; default 5 s

	// TLS, if not nil, makes a listener for DNS over TLS (RFC 7858), without UDP.
	TLS *TLS
	// Descriptors bounds the connections of this and other listeners together; nil is no bound.
	Descriptors *descriptors.Budget

	// Memory bounds the connections and unsent replies of this and other listeners together; nil is
	// no bound.
	Memory *memory.Budget

	Inherited *Inherited // sockets to use instead of opening others; may be nil
	// Listen, if not nil, opens the TCP socket in place of the operating system, for simulations. Then
	// the listener has no UDP. The connections have the methods of a net.TCPConn for their halves.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// ListenPacket is the same for the UDP socket of QUIC, which has the method File of a net.UDPConn.
	ListenPacket func(ctx context.Context, network, address string) (net.PacketConn, error)

	Limits

	// MaxConns bounds the TCP connections; the default is 4,000, or half of the process's file
	// descriptors. An idle connection costs about 1 KB, one that sends queries 9 KB, and some kernel
	// memory: at worst 4,000 are a quarter of the 170 MB that clusters give their
	// DNS pods. With TLS, where a connection costs more
	// memory, the default is 2,000.
	MaxConns          int
	MaxConnsPerClient int // of an IPv4 address or an IPv6 /64; default 100
	MaxInFlight       int // parked queries of one connection, which is not read meanwhile; default 100

	Log     *slog.Logger
	Metrics *metrics.Registry
}

// Limits of one TCP connection. The zero value of a field means its default.
type Limits struct {
	IdleTimeout    time.Duration // while no query is parked; default 10 s
	MessageTimeout time.Duration // for the whole of one message; default 3 s
	WriteTimeout   time.Duration // for a client to accept its replies; default 5 s
	MaxQueries     int           // after which the connection is closed; zero means no limit

	keepGoroutine time.Duration // how long a connection keeps its goroutine after a query; 1 s
}

// OrDefaults returns the limits with the defaults in place of zeros.
func (l Limits) OrDefaults() Limits {
	orDefault(&l.IdleTimeout, 10*time.Second)
	orDefault(&l.MessageTimeout, 3*time.Second)
	orDefault(&l.WriteTimeout, 5*time.Second)
	orDefault(&l.keepGoroutine, time.Second)
	return l
}

// OrDefaults returns the options with the defaults in place of zeros.
func (o Options) OrDefaults() Options {
	o.Limits = o.Limits.OrDefaults()
	orDefault(&o.Readers, cgroup.Processors())
	orDefault(&o.Grace, 5*time.Second)

	most := 4000
	if o.TLS != nil {
		most, o.Readers = 2000, 0
	}
	if o.Listen != nil {
		o.Readers = 0
	}
	orDefault(&o.MaxConns, min(most, descriptors.Limit()/2))
	orDefault(&o.MaxConnsPerClient, 100)
	orDefault(&o.MaxInFlight, 100)

	if o.Port == nil {
		o.Port = new(dns.Port)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = new(metrics.Registry)
	}
	return o
}

// newLarge returns a pool for large messages, of which a client has a quarter.
func newLarge(n int) *slots.Pool { return slots.New(n, max(1, n/4)) }

// maxLarge returns the bound on large messages: as many as fit into the memory for unsent replies.
func (o Options) maxLarge() int {
	const size = 2 * wire.MaxMessage // the query and its reply
	return min(maxLarge, max(fewest, int(o.Memory.Max(memory.Replies)/size)))
}

func orDefault[T int | time.Duration](v *T, standard T) {
	if *v <= 0 {
		*v = standard
	}
}

// A Listener serves one address, over UDP and TCP, or over TLS.
type Listener struct {
	o          Options
	addr       netip.AddrPort
	counts     counters
	tcp        net.Listener
	udp        []*net.UDPConn
	tls        *tls.Config // nil if connections have no TLS
	inherited  bool        // the UDP sockets stay open in the process that opened them
	handedOver atomic.Bool // another process serves the sockets
	reserved   int64       // bytes of the budget, for UDP readers

	limits        atomic.Pointer[Limits]
	once          sync.Once
	stopping      follow.Event
	ctx           context.Context // ends with stopping
	cancel        context.CancelFunc
	stopTime      time.Time     // set before stopping is closed
	lastQuery     time.Duration // after stopTime, for clients to send their last query; 500 ms
	udpStopping   follow.Event  // closed when UDP is not read any more
	udpReaders    []*reader     // set by Serve
	wantedReaders int
	readers       sync.WaitGroup // of UDP
	loop          *acceptLoop    // nil if each connection has a goroutine
	accepting     sync.WaitGroup // the goroutine of the acceptLoop, or of accept
	conns         conns
	parked        parkedCounter // UDP queries
	overload      overload      // of the UDP sockets
	proxies       proxySource
	removeGauge   func() // removes the gauge of conns

	// Shared by the TCP connections: see tcp.go.
	start   time.Time
	arenas  sync.Pool    // of *arena
	buffers sync.Pool    // of *buffer
	inputs  sync.Pool    // of *[inSize]byte
	serving sync.RWMutex // held for reading while a connection answers queries
	large   *slots.Pool  // for large messages
	passing atomic.Bool  // connections are passed to another process: see handover.go
	queued  atomic.Int64 // bytes of replies that wait to be written
	lastTCP atomic.Int64 // clock of the last query
}

// Listen opens addr. The zero address means all addresses of the machine, as [::]
// does; on a machine without IPv6 it means all IPv4 addresses. Port 0 means a port
// that is free for UDP and TCP. Its errors have advice for the operator.
//
// Nothing is read before Serve. The caller must call Stop.
func Listen(ctx context.Context, addr netip.AddrPort, o Options) (*Listener, error) {
	return listenAny(ctx, addr, o.OrDefaults())
}

// listenAny implements Listen. It returns a Listener that does not serve.
func listenAny(ctx context.Context, addr netip.AddrPort, o Options) (l *Listener, err error) {
	err = openAny(addr, o.Inherited, func(addr netip.AddrPort) error {
		l, err = listen(ctx, addr, o)

		// A port that the kernel picked for TCP may be taken for UDP.
		for try := 0; try < 10 && addr.Port() == 0 && errors.Is(err, syscall.EADDRINUSE); try++ {
			l, err = listen(ctx, addr, o)
		}
		return err
	})
	return l, err
}

// openAny calls open with addr, and with [::] for the zero address. If the machine has no
// IPv6, or if only that was inherited, it is 0.0.0.0 instead of [::].
func openAny(addr netip.AddrPort, in *Inherited, open func(netip.AddrPort) error) error {
	if !addr.Addr().IsValid() {
		addr = netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port())
	}
	addr = in.narrow(addr)

	err := open(addr)
	if errors.Is(err, syscall.EAFNOSUPPORT) && addr.Addr() == netip.IPv6Unspecified() {
		err = open(netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port()))
	}
	return err
}

// listen binds TCP first, since only that reports whether the port is free: see
// listenUDP.
func listen(ctx context.Context, addr netip.AddrPort, o Options) (*Listener, error) {
	l := &Listener{
		o:           o,
		counts:      newCounters(o.Metrics),
		stopping:    follow.NewEvent(),
		lastQuery:   500 * time.Millisecond,
		udpStopping: follow.NewEvent(),
		start:       time.Now(),
		large:       newLarge(o.maxLarge()),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.setLimits(o.Limits)
	l.arenas.New = func() any { return newArena(o.Memory) }
	l.buffers.New = func() any { return new(buffer) }
	l.inputs.New = func() any { return new([inSize]byte) }
	if o.TLS != nil {
		l.tls = o.TLS.Config("dot")
	}
	l.conns.init()
	l.conns.memory = connMemory{o.Memory, memory.TCP, tcpSize}
	if o.TLS != nil {
		l.conns.memory = connMemory{o.Memory, memory.TLS, tlsSize}
	}
	l.parked.init()

	lc := net.ListenConfig{Control: controlTCP, KeepAlive: -1} // the idle timeout is shorter
	lc.SetMultipathTCP(false)
	open := lc.Listen
	if o.Listen != nil {
		open = o.Listen
	}
	var err error
	if l.tcp, err = o.Inherited.listenTCP(addr); l.tcp == nil && err == nil {
		l.tcp, err = open(ctx, network("tcp", addr.Addr()), addr.String())
	}
	if err != nil {
		return nil, explain("tcp", addr, err)
	}
	l.addr = netip.AddrPortFrom(addr.Addr(), AddrPort(l.tcp.Addr()).Port())

	if l.tls != nil || o.Listen != nil {
		return l, nil
	}
	if err := l.listenUDP(ctx); err != nil {
		l.close()
		return nil, explain("udp", l.addr, err)
	}
	return l, nil
}

// listenUDP opens the sockets. With SO_REUSEPORT the kernel would silently share a
// port between two processes of one user, and each would receive half of the
// packets. So a socket without the option must bind the port first.
func (l *Listener) listenUDP(ctx context.Context) (err error) {
	if l.udp, l.inherited, err = l.o.Inherited.listenUDP(l.addr); l.udp != nil || err != nil {
		l.reserveReaders(max(1, len(l.udp))) // each socket needs one
		return err
	}

	l.reserveReaders(1)
	var plain net.ListenConfig
	probe, err := plain.ListenPacket(ctx, network("udp", l.addr.Addr()), l.addr.String())
	if err != nil {
		return err
	}
	if err := probe.Close(); err != nil {
		return err
	}

	sockets := 1
	if sharded {
		sockets = l.o.Readers
	}
	lc := net.ListenConfig{Control: controlUDP(l.addr.Addr())}
	for range sockets {
		c, err := lc.ListenPacket(ctx, network("udp", l.addr.Addr()), l.addr.String())
		if err != nil {
			return err
		}
		l.udp = append(l.udp, c.(*net.UDPConn))
	}
	return nil
}

// reserveReaders reserves the memory of the UDP readers. If there is not enough, there are fewer, but a least
// number in any case.
func (l *Listener) reserveReaders(least int) {
	wanted := max(l.o.Readers, least)
	for l.o.Readers = 0; l.o.Readers < wanted; l.o.Readers++ {
		if err := l.o.Memory.ReserveLeast(memory.Listeners, readerBytes, l.o.Readers, least); err != nil {
			l.o.Log.Warn("Fewer UDP readers than wanted", "address", l.addr, "count", l.o.Readers,
				"wanted", wanted, "error", err)
			break
		}
	}
	l.reserved, l.wantedReaders = int64(l.o.Readers)*readerBytes, wanted
}

// network returns the name by which package net opens an address of its family only.
// [::] has both families.
func network(proto string, addr netip.Addr) string {
	switch {
	case addr.Is4():
		return proto + "4"
	case addr == netip.IPv6Unspecified():
		return proto
	}
	return proto + "6"
}

// AddrPort returns the address of a socket. An IPv4 address is not mapped into IPv6.
func AddrPort(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *proxiedAddr:
		return AddrPort(a.Addr)
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Port returns the port that answers. It must have a mux before Serve.
func (l *Listener) Port() *dns.Port { return l.o.Port }

// Addr returns the address that was opened, with the chosen port.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Readers returns the number of UDP readers that were wanted; there may be fewer for want of memory.
func (l *Listener) Readers() int { return l.wantedReaders }

// LastQuery returns the time of the last query, or a time before Serve if there was none.
func (l *Listener) LastQuery() time.Time {
	last := l.start.Add(time.Duration(l.lastTCP.Load()))
	for _, r := range l.udpReaders {
		r.shard.Lock()
		if r.lastQuery.After(last) {
			last = r.lastQuery
		}
		r.shard.Unlock()
	}
	return last
}

// SetTLS sets the source of the TLS configuration for future connections, if the
// listener has TLS.
func (l *Listener) SetTLS(source func() *tls.Config) {
	if l.tls != nil {
		l.o.TLS.Set(source)
	}
}

// SetLimits changes the limits of open and future connections. A connection that is
// just starting to wait may do so once with the old limits.
func (l *Listener) SetLimits(limits Limits) (applied bool) {
	if l.setLimits(limits) {
		l.conns.wake()
	}
	return true
}

// setLimits reports whether the limits have changed.
func (l *Listener) setLimits(limits Limits) bool {
	limits = limits.OrDefaults()
	old := l.limits.Swap(&limits)
	return old != nil && *old != limits
}

// Serve starts to answer and returns at once.
func (l *Listener) Serve() {
	for i := range l.o.Readers {
		r := newReader(l, l.udp[i%len(l.udp)])
		l.udpReaders = append(l.udpReaders, r)
		l.readers.Go(r.run)
	}

	l.conns.share = l.o.Descriptors.Join(l.evict)
	l.o.Port.AddReader(&l.serving)
	l.accepting.Add(1)
	if l.loop = openAcceptLoop(l); l.loop != nil {
		l.conns.running.Go(l.loop.run)
	} else {
		l.conns.running.Go(l.accept)
	}
	l.removeGauge = l.o.Metrics.TemporaryGauge("seamark_transport_connections", "Open connections.",
		l.conns.count, "address", l.addr.String())
}

// Stop ends the listener. It closes idle connections at once. Connections on which no query has
// been received yet, or one within the last second, have 500 ms to send one, and are
// closed with its reply. It stops reading UDP when no query
// is parked, after Options.Grace at the latest: until then, queries that would
// have to wait get SERVFAIL, so that none is lost in a socket buffer. Sockets that
// another process has open are not read any more: their packets wait for it. Replies of
// queries that take longer are discarded. When Stop returns, all sockets are closed
// and all goroutines have ended.
func (l *Listener) Stop() { l.once.Do(l.stop) }

func (l *Listener) stop() {
	grace, cancel := context.WithTimeout(context.Background(), l.o.Grace)
	defer cancel()

	// Packets in a shared socket wait for the other process. In any other socket they
	// would be lost, so it is read until no query is parked.
	shared := l.isShared()
	if shared {
		l.stopUDP()
	} else {
		l.o.Port.StopParking()
	}

	l.stopTime = time.Now()
	close(l.stopping)
	l.cancel()
	_ = l.tcp.Close()
	if l.loop != nil {
		l.loop.wake()
	}
	l.accepting.Wait() // after this there are no new connections
	l.conns.wake()

	l.parked.wait(grace)
	if !shared {
		l.stopUDP()
	}
	l.conns.wait(grace)
	l.conns.share.Leave()

	l.o.Port.RemoveReader(&l.serving)
	if l.loop != nil {
		l.loop.close()
	}
	l.close()
	if l.removeGauge != nil {
		l.removeGauge()
	}
}

// stopUDP ends the readers of UDP.
func (l *Listener) stopUDP() {
	close(l.udpStopping)
	for _, c := range l.udp {
		_ = c.SetReadDeadline(pastDeadline())
	}
	l.readers.Wait()
}

// isShared reports whether another process answers the packets that wait in the sockets
// when this listener stops.
func (l *Listener) isShared() bool { return l.inherited || l.handedOver.Load() }

// close closes the sockets that are open.
func (l *Listener) close() {
	_ = l.tcp.Close()
	for _, c := range l.udp {
		_ = c.Close()
	}
	l.o.Memory.Release(memory.Listeners, l.reserved)
	l.reserved = 0
}

func (l *Listener) isStopping() bool { return l.stopping.Happened() }

func (l *Listener) isUDPStopping() bool { return l.udpStopping.Happened() }

// pastDeadline returns a deadline that ends a blocked read or write at once.
func pastDeadline() time.Time { return time.Unix(1, 0) }
