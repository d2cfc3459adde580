package simulation

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport"
)

// A listener serves one address without sockets.
type listener struct {
	world   *world
	addr    netip.AddrPort
	port    dns.Port
	metrics *metrics.Registry
	readers []*reader

	mu     sync.Mutex
	parked int
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

// open is the Open of the server's options.
func (w *world) open(_ context.Context, addr netip.AddrPort, o transport.Options) (server.Listener, error) {
	l := &listener{world: w, addr: addr, metrics: o.Metrics}
	l.empty = sync.NewCond(&l.mu)
	for range 2 {
		l.readers = append(l.readers, &reader{listener: l, shard: l.metrics.NewShard(), packet: make([]byte, 512), arena: make([]byte, 4096)})
	}
	w.listeners = append(w.listeners, l)
	return l, nil
}

func (l *listener) Port() *dns.Port            { return &l.port }
func (l *listener) Addr() netip.AddrPort       { return l.addr }
func (l *listener) Readers() int               { return len(l.readers) }
func (l *listener) SetLimits(transport.Limits) {}

func (l *listener) Serve() {
	for _, r := range l.readers {
		l.port.AddReader(r.shard)
	}
}

// Stop waits until no query is parked.
func (l *listener) Stop() {
	l.port.StopParking()
	l.mu.Lock()
	for l.parked > 0 {
		l.empty.Wait()
	}
	l.mu.Unlock()
	for _, r := range l.readers {
		l.port.RemoveReader(r.shard)
		l.metrics.RemoveShard(r.shard)
	}
	l.world.listeners = slices.DeleteFunc(l.world.listeners, func(o *listener) bool { return o == l })
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
	l.mu.Lock()
	l.parked++ // before the query can be finished
	l.mu.Unlock()
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
		l.world.replied(client, q.Reply())
	}
	if outcome != dns.Ignored {
		q.Observe(time.Now())
	}
}

// Send sends the reply of a parked query.
func (l *listener) Send(q *dns.Query) {
	defer l.done()
	l.world.replied(q.Peer, q.Reply())
}

func (l *listener) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parked--; l.parked == 0 {
		l.empty.Broadcast()
	}
}
