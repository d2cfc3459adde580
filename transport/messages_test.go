package transport

import (
	"bytes"
	"context"
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

// Messages answers queries at once or after they were parked, and reports messages that are
// no queries.
func TestMessages(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	close(s.wait.gate)
	m := NewMessages(Options{Metrics: new(metrics.Registry)})
	defer m.Close()
	m.Port().Swap(s.mux(1))
	at := netip.MustParseAddrPort("127.0.0.1:53")
	ask := func(packet []byte) (reply []byte, ok bool) {
		ok = m.Answer(t.Context(), packet, Origin{Peer: at, Local: at, Encrypted: true}, func(q *dns.Query) { reply = bytes.Clone(q.Reply()) })
		return reply, ok
	}
	for name, want := range map[string]int{"a.in.": mdns.RcodeSuccess, "a.wait.": mdns.RcodeSuccess, "o.in.": mdns.RcodeSuccess, "a.panic.": mdns.RcodeServerFailure, "a.drop.": -1} {
		got, reply := -1, new(mdns.Msg)
		packet, ok := ask(pack(t, newQuery(name, mdns.TypeA)))
		if packet != nil && reply.Unpack(packet) == nil {
			got = reply.Rcode
		}
		if !ok || got != want {
			t.Errorf("%s: got response code %d, a query %v; want %d, true", name, got, ok, want)
		}
	}
	s.wait.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !m.Answer(ctx, pack(t, newQuery("a.wait.", mdns.TypeA)), Origin{Peer: at, Local: at, Encrypted: true}, func(*dns.Query) { t.Error("a reply after the end of the context") }) {
		t.Error("parked query whose context has ended: got false, want true")
	}
	for _, packet := range [][]byte{nil, {1}, make([]byte, 11)} {
		if reply, ok := ask(packet); ok || reply != nil {
			t.Errorf("message %x: got reply %x, a query %v; want none, false", packet, reply, ok)
		}
	}
	if m.LastQuery().Before(m.start) {
		t.Errorf("the last query was at %v, want a time after %v", m.LastQuery(), m.start)
	}
}

// The header of a request costs no allocation, and is not kept.
func TestMessagesAllocations(t *testing.T) {
	s := serve(t, "127.0.0.1", Options{})
	m := NewMessages(Options{Metrics: new(metrics.Registry)})
	defer m.Close()
	m.Port().Swap(s.mux(1))
	only := dns.NewQuery(nil) // with the race detector a pool loses some of its elements
	m.queries.New = func() any { return only }
	packet := pack(t, newQuery("a.in.", mdns.TypeA))
	allocations := func(header map[string][]string) float64 {
		from := Origin{Peer: netip.MustParseAddrPort("192.0.2.1:1"), Header: header}
		return testing.AllocsPerRun(100, func() {
			m.Serve(packet, from, nil, func(q *dns.Query) {
				if len(q.Header) != len(header) {
					t.Errorf("got the header %v, want %v", q.Header, header)
				}
			})
		})
	}
	// The handler of this package's tests allocates.
	if got, want := allocations(map[string][]string{"B3": {"0"}}), allocations(nil); got != want {
		t.Errorf("got %v allocations with a header, %v without one", got, want)
	}
	if only.Header != nil {
		t.Errorf("the idle query has the header %v, want none", only.Header)
	}
}
