// Package transport moves packets: it reads queries from UDP sockets and TCP
// connections, has a dns.Port answer them, and sends the replies. It is the
// only package that opens sockets for clients. The server makes a Listener for
// each address and swaps the muxes of its Port; this package knows nothing of
// names, zones or configuration, and never looks into a packet but for the two
// bytes of length that TCP puts in front.
package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// Options of a Listener. What is zero has its default.
type Options struct {
	Port     *dns.Port // what answers; a new one if nil
	Readers  int       // of UDP, each with a socket of its own on Linux; GOMAXPROCS
	Portable bool      // reads packets one by one, as where there is no recvmmsg
	Grace    time.Duration

	Limits

	// An idle connection costs about 1 KB of ours, some 9 KB once it has asked
	// more than a few times, and a little of the kernel's: at worst the default
	// of 4,000 is a quarter of the 170 MB that clusters give their DNS pods.
	MaxConns          int
	MaxConnsPerClient int // an IPv4 address or an IPv6 /64; 100
	MaxInFlight       int // parked queries of one connection; at that it is not read; 100

	Log     *slog.Logger
	Metrics *metrics.Registry
}

// Limits of one TCP connection. What is zero has its default.
type Limits struct {
	IdleTimeout    time.Duration // while nothing is under way; 10 s
	MessageTimeout time.Duration // for the whole of one message, once it has begun; 3 s
	WriteTimeout   time.Duration // for a client to take its replies; 5 s
	MaxQueries     int           // after which it is closed; zero is any number
}

func (l *Limits) defaults() {
	orDefault(&l.IdleTimeout, 10*time.Second)
	orDefault(&l.MessageTimeout, 3*time.Second)
	orDefault(&l.WriteTimeout, 5*time.Second)
}

func (o *Options) defaults() {
	orDefault(&o.Readers, runtime.GOMAXPROCS(0))
	orDefault(&o.Grace, 5*time.Second)
	orDefault(&o.MaxConns, 4000)
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
}

func orDefault[T int | time.Duration](v *T, standard T) {
	if *v <= 0 {
		*v = standard
	}
}

// A Listener has one address, over UDP and TCP.
type Listener struct {
	o      Options
	addr   netip.AddrPort
	counts counters
	tcp    net.Listener
	udp    []*net.UDPConn

	limits      atomic.Pointer[Limits]
	once        sync.Once
	stopping    chan struct{}
	udpStopping chan struct{}  // closed when UDP is not to be read any more
	readers     sync.WaitGroup // of UDP
	acceptor    sync.WaitGroup
	conns       conns
	parked      parkedCounter // queries that came by UDP
	removeGauge func()        // takes the gauge of conns out of the metrics

	// Shared by the TCP connections: see tcp.go.
	start           time.Time
	arenas, buffers sync.Pool
	large           chan struct{} // as many as there are large messages
	queued          atomic.Int64  // bytes of replies that wait to be written
}

// Listen opens addr. The zero address is every address of this machine, as
// [::] is: IPv4 too, and nothing but IPv4 where there is no IPv6. Port 0 picks
// one that is free for UDP and TCP. Its errors are sentences for operators.
//
// Nothing is read before Serve. A Listener that has come this far must be
// stopped.
func Listen(ctx context.Context, addr netip.AddrPort, o Options) (*Listener, error) {
	o.defaults()
	if !addr.Addr().IsValid() {
		addr = netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port())
	}
	l, err := listen(ctx, addr, o)
	if errors.Is(err, syscall.EAFNOSUPPORT) && addr.Addr() == netip.IPv6Unspecified() {
		addr = netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port())
		l, err = listen(ctx, addr, o)
	}
	// A port that the kernel picked for TCP may be taken for UDP.
	for try := 0; try < 10 && addr.Port() == 0 && errors.Is(err, syscall.EADDRINUSE); try++ {
		l, err = listen(ctx, addr, o)
	}
	return l, err
}

// listen binds TCP first, because that alone says whether the port is free: see
// listenUDP.
func listen(ctx context.Context, addr netip.AddrPort, o Options) (*Listener, error) {
	l := &Listener{
		o: o, counts: newCounters(o.Metrics), stopping: make(chan struct{}), udpStopping: make(chan struct{}),
		start: time.Now(), large: make(chan struct{}, maxLarge),
	}
	l.setLimits(o.Limits)
	l.arenas.New = func() any { return new(arena) }
	l.buffers.New = func() any { return new(buffer) }
	l.conns.init()
	l.parked.init()
	lc := net.ListenConfig{Control: controlTCP, KeepAlive: -1} // idle connections are closed anyway
	lc.SetMultipathTCP(false)
	var err error
	if l.tcp, err = lc.Listen(ctx, network("tcp", addr.Addr()), addr.String()); err != nil {
		return nil, explain("tcp", addr, err)
	}
	l.addr = netip.AddrPortFrom(addr.Addr(), addrPort(l.tcp.Addr()).Port())
	if err := l.listenUDP(ctx); err != nil {
		l.close()
		return nil, explain("udp", l.addr, err)
	}
	return l, nil
}

// listenUDP opens the sockets. SO_REUSEPORT would silently share a port that
// another process of the same user has bound with it, and the two would get
// half of the packets each. So a socket without it must have the port for a
// moment first.
func (l *Listener) listenUDP(ctx context.Context) error {
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

// network is the name by which package net opens an address of that family
// alone, except [::], which has both.
func network(proto string, addr netip.Addr) string {
	switch {
	case addr.Is4():
		return proto + "4"
	case addr == netip.IPv6Unspecified():
		return proto
	}
	return proto + "6"
}

// addrPort is the address of a socket; IPv4 is never mapped into IPv6.
func addrPort(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Port is what the listener serves. It must have a mux before Serve.
func (l *Listener) Port() *dns.Port { return l.o.Port }

// Addr is the address that was opened, with the port that was picked.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Readers is how many readers of UDP there are.
func (l *Listener) Readers() int { return l.o.Readers }

// SetLimits changes the limits of the connections that are there and of those
// to come. One that is just beginning to wait may do so once as before.
func (l *Listener) SetLimits(limits Limits) {
	if l.setLimits(limits) {
		l.conns.wake()
	}
}

// setLimits says whether they are others.
func (l *Listener) setLimits(limits Limits) bool {
	limits.defaults()
	old := l.limits.Swap(&limits)
	return old != nil && *old != limits
}

// Serve starts to answer. It returns at once.
func (l *Listener) Serve() {
	for i := range l.o.Readers {
		r := newReader(l, l.udp[i%len(l.udp)])
		l.readers.Go(r.run)
	}
	l.acceptor.Go(l.accept)
	l.removeGauge = l.o.Metrics.TemporaryGauge("seamark_transport_connections", "TCP connections that are open now.", l.conns.count, "address", l.addr.String())
}

// Stop ends the listener. Connections are not read any more. UDP is, as long as
// queries are parked, for at most Options.Grace: what can be answered at once is,
// and the rest is SERVFAIL, so that no query disappears in a socket that nobody
// reads. Replies that take longer than the grace go nowhere. All sockets are
// closed and all goroutines of this package have ended when it returns.
func (l *Listener) Stop() { l.once.Do(l.stop) }

func (l *Listener) stop() {
	grace, cancel := context.WithTimeout(context.Background(), l.o.Grace)
	defer cancel()
	l.o.Port.StopParking() // no new parked queries
	close(l.stopping)
	_ = l.tcp.Close()
	l.acceptor.Wait() // from here on there are no new connections
	l.conns.wake()
	l.parked.wait(grace)
	close(l.udpStopping)
	for _, c := range l.udp {
		_ = c.SetReadDeadline(pastDeadline())
	}
	l.readers.Wait()
	l.conns.wait(grace)
	l.close()
	if l.removeGauge != nil {
		l.removeGauge()
	}
}

// close closes whatever is open.
func (l *Listener) close() {
	_ = l.tcp.Close()
	for _, c := range l.udp {
		_ = c.Close()
	}
}

func (l *Listener) isStopping() bool { return closed(l.stopping) }

func (l *Listener) isUDPStopping() bool { return closed(l.udpStopping) }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// longAgo is a deadline that wakes whoever waits.
func pastDeadline() time.Time { return time.Unix(1, 0) }
