package transport

import (
	"context"
	"sync/atomic"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
)

// counters counts failures. All listeners share them.
type counters struct {
	unreadableUDP, unreadableTCP *metrics.Counter
	sendUDP, sendTCP             *metrics.Counter
	overClient, overTotal        *metrics.Counter
	evicted                      *metrics.Counter
	slowSender, slowReader       *metrics.Counter
	shedLimit, shedFull          *metrics.Counter
	handshake                    *metrics.Counter
	proxyUDP, proxyTCP           *metrics.Counter
	panics                       *metrics.Counter
}

func newCounters(r *metrics.Registry) counters {
	const (
		unreadable     = "seamark_transport_unreadable_total"
		unreadableHelp = "Packets without a reply because they had no header, or were replies themselves."
		send           = "seamark_transport_send_errors_total"
		sendHelp       = "Replies that could not be sent."
		refused        = "seamark_transport_connections_refused_total"
		refusedHelp    = "Connections refused, or closed in favour of another client, because the client, or all " +
			"clients together, had too many."
		closed     = "seamark_transport_connections_closed_total"
		closedHelp = "Connections closed, and queries of QUIC reset, because a message was not complete in time " +
			"(slow_sender), replies were not read in time (slow_reader), a new connection needed the place of an " +
			"idle one (idlest), or the TLS handshake failed (handshake)."
		shed     = "seamark_transport_shed_queries_total"
		shedHelp = "UDP queries that the kernel dropped under overload, because the client was above its share " +
			"(client) or the socket's buffer was full (full). The division is an estimate."
		proxy      = "seamark_transport_proxy_headers_rejected_total"
		proxyHelp  = "PROXY headers that were malformed, or of peers that may not send any."
		panics     = "seamark_transport_observer_panics_total"
		panicsHelp = "Panics of observers; the replies were sent."
	)

	return counters{
		unreadableUDP: r.Counter(unreadable, unreadableHelp, "proto", "udp"),
		unreadableTCP: r.Counter(unreadable, unreadableHelp, "proto", "tcp"),
		sendUDP:       r.Counter(send, sendHelp, "proto", "udp"),
		sendTCP:       r.Counter(send, sendHelp, "proto", "tcp"),
		overClient:    r.Counter(refused, refusedHelp, "cap", "client"),
		overTotal:     r.Counter(refused, refusedHelp, "cap", "total"),
		evicted:       r.Counter(closed, closedHelp, "why", "idlest"),
		slowSender:    r.Counter(closed, closedHelp, "why", "slow_sender"),
		slowReader:    r.Counter(closed, closedHelp, "why", "slow_reader"),
		handshake:     r.Counter(closed, closedHelp, "why", "handshake"),
		shedLimit:     r.Counter(shed, shedHelp, "reason", "client"),
		shedFull:      r.Counter(shed, shedHelp, "reason", "full"),
		proxyUDP:      r.Counter(proxy, proxyHelp, "proto", "udp"),
		proxyTCP:      r.Counter(proxy, proxyHelp, "proto", "tcp"),
		panics:        r.Counter(panics, panicsHelp),
	}
}

// A parkedCounter counts parked UDP queries, so that Stop can wait for them. A query
// may be finished before its reader has counted it, so the count may be negative
// briefly.
type parkedCounter struct {
	n       atomic.Int64
	waiting atomic.Bool
	empty   follow.Signal
}

func (p *parkedCounter) init() { p.empty = follow.NewSignal() }

// add counts a query that was parked.
func (p *parkedCounter) add() { p.n.Add(1) }

// done counts a query whose reply was sent.
func (p *parkedCounter) done() {
	if p.n.Add(-1) == 0 && p.waiting.Load() {
		p.empty.Send()
	}
}

// wait blocks until the count is zero or ctx ends. No more queries may be parked.
func (p *parkedCounter) wait(ctx context.Context) {
	p.waiting.Store(true)
	for p.n.Load() > 0 {
		select {
		case <-p.empty:
		case <-ctx.Done():
			return
		}
	}
}
