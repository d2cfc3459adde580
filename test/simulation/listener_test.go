package simulation

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/transport/streams"
)

// A listener serves one address: TCP by that of package transport, on a socket of the machine, and
// UDP without sockets, since package transport calls the system for it.
type listener struct {
	process *process
	addr    netip.AddrPort
	port    dns.Port
	metrics *metrics.Registry
	readers []*reader
	tcp     *transport.Listener
	reply   func(client netip.AddrPort, packet []byte)

	handedOver atomic.Bool

	mu     sync.Mutex
	parked int // and those that a reader has
	empty  *sync.Cond
}

// A reader answers queries one by one, like a UDP reader of package transport. It reuses
// the query and the memory of the packet and the reply, and clears that memory, so that
// anything that a parked query has not copied is lost.
type reader struct {
	listener *listener
	shard    *metrics.Shard
	query    *dns.Query
	packet   []byte
	arena    []byte
}

// open returns the Open of the options of the server, whose replies over UDP are passed to reply.
func (p *process) open(reply func(client netip.AddrPort, packet []byte)) func(context.Context, netip.AddrPort, transport.Options) (server.Listener, error) {
	return func(ctx context.Context, addr netip.AddrPort, o transport.Options) (server.Listener, error) {
		o.Listen, o.ListenPacket = p.listen, p.listenPacket
		switch {
		case addr.Port() == portQUIC:
			return streams.ListenQUIC(ctx, addr, streams.Options{Options: o, Name: fmt.Sprint("quic://:", portQUIC)})
		case addr.Port() == portHTTPS3:
			return streams.ListenHTTPS3(ctx, addr, streams.Options{Options: o, Name: fmt.Sprint("https3://:", portHTTPS3)})
		case addr.Port() == portHTTPS:
			return streams.ListenHTTPS(ctx, addr, streams.Options{Options: o, Name: fmt.Sprint("https://:", portHTTPS)})
		case o.TLS != nil:
			return transport.Listen(ctx, addr, o)
		}
		l := &listener{process: p, addr: addr, metrics: o.Metrics, reply: reply}
		return l, l.open(ctx, o)
	}
}

func (l *listener) open(ctx context.Context, o transport.Options) (err error) {
	l.empty = sync.NewCond(&l.mu)
	o.Port = &l.port
	if l.tcp, err = transport.Listen(ctx, l.addr, o); err != nil {
		return err
	}
	for range 2 {
		l.readers = append(l.readers, &reader{listener: l, shard: l.metrics.NewShard(), packet: make([]byte, 512), arena: make([]byte, 4096)})
	}
	return nil
}

func (l *listener) Port() *dns.Port                   { return &l.port }
func (l *listener) Addr() netip.AddrPort              { return l.addr }
func (l *listener) Readers() int                      { return len(l.readers) }
func (l *listener) SetLimits(o transport.Limits) bool { return l.tcp.SetLimits(o) }

func (l *listener) Serve() {
	l.tcp.Serve()
	for _, r := range l.readers {
		l.port.AddReader(r.shard)
	}
	l.process.add(l)
}

// The methods for a hand-over: TCP connections are not passed, as if they had TLS.

func (l *listener) Files() ([]*os.File, error)   { return l.tcp.Files() }
func (l *listener) Adopt(c transport.Conn) error { return l.tcp.Adopt(c) }
func (l *listener) LastQuery() time.Time         { return l.tcp.LastQuery() }

func (l *listener) HandOver(ctx context.Context, send func(transport.Conn) error) error {
	l.handedOver.Store(true)
	return l.tcp.HandOver(ctx, send)
}

func (l *listener) Resume() {
	l.handedOver.Store(false)
	l.tcp.Resume()
}

// Stop waits until no query is parked.
func (l *listener) Stop() {
	l.process.remove(l)
	if !l.handedOver.Load() { // as package transport does
		l.port.StopParking()
	}
	l.tcp.Stop()
	l.mu.Lock()
	for l.parked > 0 {
		l.empty.Wait()
	}
	l.mu.Unlock()
	for _, r := range l.readers {
		l.port.RemoveReader(r.shard)
		l.metrics.RemoveShard(r.shard)
	}
}

// serve answers a query, or parks it.
func (r *reader) serve(packet []byte, proto dns.Proto, client netip.AddrPort) {
	l := r.listener
	r.shard.Lock()
	defer r.shard.Unlock()
	if r.query == nil {
		r.query = dns.NewQuery(l)
		r.query.SetShard(r.shard)
	}
	q := r.query
	q.Reset(append(r.packet[:0], packet...), proto, time.Now())
	q.Peer, q.Local = client, l.addr
	l.begin() // before the query can be finished
	outcome := l.port.Serve(q, r.arena[:0])
	defer func() {
		clear(r.packet[:cap(r.packet)])
		clear(r.arena)
	}()
	if outcome == dns.Parked {
		r.query = nil // it has another owner
		return
	}
	l.done()
	if outcome == dns.Answered {
		l.send(q)
	}
	if outcome != dns.Ignored {
		q.Observe(time.Now())
	}
}

// Send sends the reply of a parked query.
func (l *listener) Send(q *dns.Query) {
	defer l.done()
	l.send(q)
}

// send sends the reply to a query, unless the process has died.
func (l *listener) send(q *dns.Query) {
	if l.process.isDead() {
		l.process.world.resend(q.Peer)
		return
	}
	l.reply(q.Peer, q.Reply())
}

func (l *listener) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked++
}

func (l *listener) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parked--; l.parked == 0 {
		l.empty.Broadcast()
	}
}
