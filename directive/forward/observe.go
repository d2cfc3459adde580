package forward

import (
	"net"
	"net/netip"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
)

// observe passes the finished exchange to the observers, once for all of its queries, and
// to the trace of q.
func (f *Forward) observe(q *dns.Query, x *exchange) {
	if x.upstream == nil {
		return
	}
	first := len(f.observers) > 0 && x.observed.CompareAndSwap(false, true)
	if !first && q.Trace() == nil {
		return
	}

	started := time.Now().Add(-clock.Now()) // of package clock
	e := dns.Exchange{Upstream: x.upstream.addr, Proto: dns.UDP}
	stream, sent := x.useStream, x.sentAt

	if a := x.used; a == nil {
		e.Query = x.request.packet(0, true)
	} else {
		stream, sent, e.Query = a.useStream, a.sent, a.packet()
		if a.socket != nil {
			if from, ok := a.socket.conn.LocalAddr().(*net.UDPAddr); ok {
				at := from.AddrPort()
				e.Local = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
			}
		}
	}
	if stream {
		e.Proto = dns.TCP
	}
	e.Sent = started.Add(sent)

	switch {
	case x.reply == nil:
	case x.reply.received > 0:
		e.Reply, e.Received = x.reply.packet, started.Add(x.reply.received)
	case !first: // the query that began the exchange is not followed
		e.Received = time.Now()
	}

	if first {
		for _, o := range f.observers {
			o.ObserveExchange(q, &e)
		}
	}
	if t := q.Trace(); t != nil {
		t.ObserveExchange(q, &e)
	}
}
