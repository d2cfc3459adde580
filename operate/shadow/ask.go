package shadow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/operate/query"
)

// An Asker answers captured queries. Several goroutines call it.
type Asker interface {
	// Ask answers a query in wire form. n selects the socket, if there are several.
	Ask(ctx context.Context, n int, packet []byte, client netip.AddrPort, proto dns.Proto) (Answer, error)
}

// An Answer is the answer to a captured query.
type Answer struct {
	Reply     *mdns.Msg // nil if there is none
	Size      int       // of the reply in bytes
	Elapsed   time.Duration
	Directive string // that answered; "" if none did, or if it is not known
	Upstream  int    // queries to upstreams
}

// A Local is a server in this process: one of its ports.
type Local struct{ Port config.Port }

// errNoAnswer is returned if a server does not treat a packet as a query.
var errNoAnswer = errors.New("the packet is no query")

// Ask implements [Asker]. A truncated answer over UDP is asked for again over TCP, as clients do.
func (l Local) Ask(ctx context.Context, _ int, packet []byte, client netip.AddrPort, proto dns.Proto) (Answer, error) {
	local := l.Port.Address
	if !local.Addr().IsValid() || local.Addr().IsUnspecified() {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if client.Addr().Is6() {
			loopback = netip.IPv6Loopback()
		}
		local = netip.AddrPortFrom(loopback, local.Port())
	}
	client = netip.AddrPortFrom(client.Addr().Unmap(), client.Port())

	for {
		var t tracer
		e, ok := l.Port.Port.Explain(ctx, dns.Explained{
			Packet: packet, Client: client, Local: local, Proto: proto, Trace: &t,
		})
		switch {
		case !ok && ctx.Err() != nil:
			return Answer{}, ctx.Err()
		case !ok:
			return Answer{}, errNoAnswer
		case proto == dns.UDP && len(e.Reply) > 2 && e.Reply[2]&2 != 0:
			proto = dns.TCP
			continue
		}

		a := Answer{Size: len(e.Reply), Elapsed: e.Elapsed, Directive: t.directive, Upstream: t.upstream}
		if len(e.Reply) > 0 {
			a.Reply = new(mdns.Msg)
			if err := a.Reply.Unpack(e.Reply); err != nil {
				return Answer{}, fmt.Errorf("malformed reply of Seamark: %w", err)
			}
		}
		return a, nil
	}
}

// A tracer notes which directive answers a query, and counts the queries to upstreams.
type tracer struct {
	names     []string // of the steps of the query's chain
	directive string
	upstream  int
}

// BeginStep implements [dns.Trace].
func (t *tracer) BeginStep(q *dns.Query, step int, directive string) {
	if q.Depth() > 0 || step < 0 || step > 1000 {
		return
	}
	for len(t.names) <= step {
		t.names = append(t.names, "")
	}
	t.names[step] = directive
}

// EndStep implements [dns.Trace].
func (t *tracer) EndStep(q *dns.Query, step int, v dns.Verdict) {
	if q.Depth() > 0 || v != dns.Done && v != dns.Drop || step >= len(t.names) {
		return
	}
	if by := q.AnsweredStep(); by < 0 || by == step {
		t.directive = t.names[step]
	}
}

// ObserveExchange implements [dns.Trace].
func (t *tracer) ObserveExchange(*dns.Query, *dns.Exchange) { t.upstream++ }

// A Remote is a running server.
type Remote struct{ Client *query.Client }

// Ask implements [Asker].
func (r Remote) Ask(ctx context.Context, n int, packet []byte, _ netip.AddrPort, proto dns.Proto) (Answer, error) {
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil || len(m.Question) != 1 {
		return Answer{}, errNoAnswer
	}
	start := time.Now()
	reply, err := r.Client.Exchange(ctx, n, m, proto != dns.UDP)
	if err != nil {
		return Answer{}, err
	}
	reply.Compress = true
	return Answer{Reply: reply, Size: reply.Len(), Elapsed: time.Since(start)}, nil
}
