package shadow

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

// Each event is the time in milliseconds, q or r, the ID, the name, and the client's port.
func TestMatch(t *testing.T) {
	type event struct {
		at       int
		response bool
		id       uint16
		name     string
		port     uint16
	}
	q := func(at int, id uint16, name string, port uint16) event { return event{at, false, id, name, port} }
	r := func(at int, id uint16, name string, port uint16) event { return event{at, true, id, name, port} }
	for _, c := range []struct {
		name      string
		events    []event
		latencies []time.Duration
		want      Counts // Answered, Unanswered, Repeated, Unasked
	}{
		{"pairs", []event{q(0, 1, "a", 1), q(1, 1, "b", 2), r(5, 1, "b", 2), r(9, 1, "a", 1)}, []time.Duration{4, 9}, Counts{Answered: 2}},
		{"another ID", []event{q(0, 1, "a", 1), r(1, 2, "a", 1)}, nil, Counts{Unanswered: 1, Unasked: 1}},
		{"another question", []event{q(0, 1, "a", 1), r(1, 1, "b", 1)}, nil, Counts{Unanswered: 1, Unasked: 1}},
		{"upper case", []event{q(0, 1, "abc", 1), r(1, 1, "aBC", 1)}, []time.Duration{1}, Counts{Answered: 1}},
		{"sent again", []event{q(0, 1, "a", 1), q(5, 1, "a", 1), r(6, 1, "a", 1), r(7, 1, "a", 1)}, []time.Duration{6}, Counts{Answered: 1, Repeated: 1, Unasked: 1}},
		{"ID used again", []event{q(0, 1, "a", 1), q(1, 1, "b", 1), r(2, 1, "b", 1), r(3, 1, "a", 1)}, []time.Duration{1}, Counts{Answered: 1, Unanswered: 1, Unasked: 1}},
		{"response first", []event{r(5, 1, "a", 1), q(3, 1, "a", 1)}, []time.Duration{2}, Counts{Answered: 1}},
		{"too late", []event{q(0, 1, "a", 1), r(10_001, 1, "a", 1)}, nil, Counts{Unanswered: 1, Unasked: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counts Counts
			m := newMatcher(&counts)
			var latencies []time.Duration
			for _, e := range c.events {
				data := request(e.id, e.name)
				if e.response {
					data = reply(data, 0)
				}
				at := captured.Add(time.Duration(e.at) * time.Millisecond)
				message := Message{Time: at, Client: netip.AddrPortFrom(clientAddr.Addr(), e.port), Server: serverAddr, Response: e.response, Data: data}
				if p := m.add(&message); p != nil {
					if p.query[2]&0x80 != 0 || p.response[2]&0x80 == 0 {
						t.Errorf("got the pair %x %x, want a query and a response", p.query, p.response)
					}
					latencies = append(latencies, p.latency/time.Millisecond)
				}
			}
			got := Counts{Answered: counts.Answered, Unanswered: counts.Unanswered, Repeated: counts.Repeated, Unasked: counts.Unasked}
			if !slices.Equal(latencies, c.latencies) || got.Answered != c.want.Answered || got.Unanswered != c.want.Unanswered || got.Repeated != c.want.Repeated || got.Unasked != c.want.Unasked {
				t.Errorf("got latencies %d and %+v, want %d and %+v", latencies, got, c.latencies, c.want)
			}
		})
	}
}

// A response may lack the question, as those of servers that cannot parse the query.
func TestMatchNoQuestion(t *testing.T) {
	counts := Counts{Skipped: map[Skipped]int{}}
	m := newMatcher(&counts)
	m.add(&Message{Time: captured, Client: clientAddr, Data: request(1, "a")})
	formerr := reply(request(1, "a"), 1)[:wire.HeaderLen]
	clear(formerr[4:])
	if m.add(&Message{Time: captured, Client: clientAddr, Response: true, Data: formerr}) == nil {
		t.Error("got no pair, want one")
	}
	if m.add(&Message{Time: captured, Client: clientAddr, Data: []byte{1}}); counts.Skipped[SkippedShort] != 1 {
		t.Errorf("got %+v, want 1 short message", counts)
	}
}

// Queries without responses take no more memory than the limits.
func TestMatchLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	var counts Counts
	m := newMatcher(&counts)
	large := append(request(0, "a"), make([]byte, 60_000)...)
	for i := range 2 * maxWaiting {
		data := request(uint16(i), "a")
		if i < 5000 {
			data = large
			binary.BigEndian.PutUint16(data, uint16(i))
		}
		client := netip.AddrPortFrom(clientAddr.Addr(), uint16(i>>16))
		m.add(&Message{Time: captured, Client: client, Data: data})
		if m.order.Len() > maxWaiting || m.bytes > maxWaitingBytes || len(m.byKey) != m.order.Len() {
			t.Fatalf("after %d queries: got %d messages of %d bytes and %d keys, want at most %d of %d bytes", i+1, m.order.Len(), m.bytes, len(m.byKey), maxWaiting, maxWaitingBytes)
		}
	}
	if counts.Unanswered != 2*maxWaiting {
		t.Errorf("got %d unanswered queries, want %d", counts.Unanswered, 2*maxWaiting)
	}
}

// prefixed returns messages as TCP carries them.
func prefixed(messages ...[]byte) (b []byte) {
	for _, m := range messages {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(m))), m...)
	}
	return b
}

func TestStreams(t *testing.T) {
	a, b := request(1, "a.example"), request(2, "b.example")
	two := prefixed(a, b)
	n := uint32(len(two))
	type part struct {
		sequence uint32
		flags    byte
		payload  []byte
	}
	syn := part{4294967290, flagSYN, nil} // the numbers overflow
	at := func(off uint32) uint32 { return 4294967291 + off }
	for _, c := range []struct {
		name    string
		parts   []part
		want    int // messages
		skipped int
	}{
		{"one segment", []part{syn, {at(0), 0, two}}, 2, 0},
		{"byte by byte", append([]part{syn}, func() (parts []part) {
			for i := range n {
				parts = append(parts, part{at(i), 0, two[i : i+1]})
			}
			return parts
		}()...), 2, 0},
		{"sent again", []part{syn, {at(0), 0, two[:9]}, {at(0), 0, two[:9]}, {at(5), 0, two[5:]}, {at(0), 0, two}}, 2, 0},
		{"keep-alive", []part{syn, {at(0), 0, two}, {at(n - 1), 0, []byte{0}}}, 2, 0},
		{"gap", []part{syn, {at(0), 0, two[:9]}, {at(12), 0, two[12:]}, {at(n), 0, two}}, 0, 2},
		{"no beginning", []part{{at(0), 0, two}}, 0, 1},
		{"reset", []part{syn, {at(0), 0, two[:9]}, {at(9), flagRST, nil}, {at(9), 0, two[9:]}}, 0, 1},
		{"end with data", []part{syn, {at(0), flagFIN, two}, {at(n + 1), 0, two}}, 2, 1},
		{"port used again", []part{syn, {at(0), 0, two[:9]}, {77, flagSYN, nil}, {78, 0, two}}, 2, 0},
	} {
		w := newCapture()
		for _, p := range c.parts {
			w.packet(captured, tcp(clientAddr, serverAddr, p.sequence, p.flags, p.payload), 0)
		}
		got, counts, err := messages(t, Pcap{Reader: &w.Buffer, Port: 53})
		if err != nil || len(got) != c.want || counts.Skipped[SkippedStream] != c.skipped {
			t.Errorf("%s: got %q, skipped %v and error %v, want %d messages and %d skipped segments", c.name, got, counts.Skipped, err, c.want, c.skipped)
		}
		for _, m := range got {
			if !strings.Contains(m, " tcp ") {
				t.Errorf("%s: got %s, want TCP", c.name, m)
			}
		}
	}
}

// Connections that send incomplete messages take no more memory than the limits.
func TestStreamLimits(t *testing.T) {
	streams := newStreams()
	payload := append([]byte{0xff, 0xff}, bytes.Repeat([]byte{1}, 60_000)...)
	for i := range 3 * maxStreams {
		s := segment{source: netip.AddrPortFrom(clientAddr.Addr(), uint16(i)), destination: serverAddr, tcp: true, syn: true}
		streams.add(&s, nil)
		s.syn, s.sequence, s.payload = false, 1, payload
		if i >= 2*maxStreams {
			s.payload = payload[:10]
		}
		streams.add(&s, nil)
		if streams.order.Len() > maxStreams || streams.bytes > maxStreamBytes || len(streams.byKey) != streams.order.Len() {
			t.Fatalf("after %d connections: got %d of %d bytes, want at most %d of %d bytes", i+1, streams.order.Len(), streams.bytes, maxStreams, maxStreamBytes)
		}
	}
	if streams.order.Len() != maxStreams {
		t.Errorf("got %d connections, want %d", streams.order.Len(), maxStreams)
	}
}

// A server that forwards from port 53 has its port at both ends.
func TestBothPorts(t *testing.T) {
	upstream := netip.MustParseAddrPort("192.0.2.1:53")
	query := request(1, "a.example")
	w := newCapture()
	w.packet(captured, udp(serverAddr, upstream, query), 0)
	w.packet(captured, udp(upstream, serverAddr, reply(query, 0)), 0)
	got, _, err := messages(t, Pcap{Reader: &w.Buffer, Port: 53})
	want := []string{
		"10:00:00.123456 udp 10.96.0.10:53 192.0.2.1:53 query a.example.",
		"10:00:00.123456 udp 10.96.0.10:53 192.0.2.1:53 response a.example.",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
}

func TestLatency(t *testing.T) {
	var l latency
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Microsecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond} {
		if got := l.quantile(share); got < want*96/100 || got > want*104/100 {
			t.Errorf("quantile %v: got %v, want %v", share, got, want)
		}
	}
	var none latency
	if got := none.quantiles(); got != (Quantiles{}) {
		t.Errorf("without durations: got %+v, want none", got)
	}
	none.add(-time.Second)
	if got := none.quantile(0.5); got != 1 {
		t.Errorf("negative duration: got %v, want 1ns", got)
	}
}
