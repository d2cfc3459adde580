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
		ok = m.Answer(t.Context(), packet, at, at, true, func(q *dns.Query) { reply = bytes.Clone(q.Reply()) })
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
	if !m.Answer(ctx, pack(t, newQuery("a.wait.", mdns.TypeA)), at, at, true, func(*dns.Query) { t.Error("a reply after the end of the context") }) {
		t.Error("parked query whose context has ended: got false, want true")
	}
	for _, packet := range [][]byte{nil, {1}, make([]byte, 12)} {
		if reply, ok := ask(packet); ok || reply != nil {
			t.Errorf("message %x: got reply %x, a query %v; want none, false", packet, reply, ok)
		}
	}
	if m.LastQuery().Before(m.start) {
		t.Errorf("the last query was at %v, want a time after %v", m.LastQuery(), m.start)
	}
}
