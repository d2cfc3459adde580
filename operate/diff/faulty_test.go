package diff_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/operate/diff"
)

// faulty serves UDP on a loopback port. reply returns the packets to send for a query.
func faulty(t *testing.T, reply func(packet []byte) [][]byte) (address string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, client, err := socket.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, p := range reply(slices.Clone(buf[:n])) {
				_, _ = socket.WriteTo(p, client)
			}
		}
	})
	t.Cleanup(func() { socket.Close(); running.Wait() })
	return socket.LocalAddr().String()
}

// answered returns a reply to the query with records.
func answered(t *testing.T, packet []byte, rcode int, records ...string) *dns.Msg {
	t.Helper()
	q, m := new(dns.Msg), new(dns.Msg)
	if err := q.Unpack(packet); err != nil {
		t.Error(err)
	}
	m.SetRcode(q, rcode)
	for _, r := range records {
		rr, err := dns.NewRR(r)
		if err != nil {
			t.Error(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}

func packed(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	p, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return p
}

func options(address string) diff.Options {
	return diff.Options{
		Directives: builtin.Directives(), Cluster: cluster.Options{Manifests: "../../examples"},
		Address: address, Timeout: 10 * time.Second, RetryAfter: time.Millisecond,
	}
}

// impatient returns options for a server without valid replies.
func impatient(address string) diff.Options {
	o := options(address)
	o.Timeout = 50 * time.Millisecond
	return o
}

// A server without a valid reply ends the comparison with the reason.
func TestInvalidReplies(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for _, c := range []struct {
		name, want string
		reply      func(packet []byte) [][]byte
	}{
		{"silent", "no reply within 50ms: check the address", func([]byte) [][]byte { return nil }},
		{"query back", "no valid reply within 50ms, but a message that is not a reply", func(p []byte) [][]byte { return [][]byte{p} }},
		{"two bytes", "no valid reply within 50ms, but a packet shorter than a message header", func(p []byte) [][]byte { return [][]byte{p[:2]} }},
		{"one byte", "no reply within 50ms", func(p []byte) [][]byte { return [][]byte{p[:1], {}} }},
		{"other ID", "no reply within 50ms", func(p []byte) [][]byte { p[0] ^= 0xff; p[2] |= 0x80; return [][]byte{p} }},
		{"garbage", "no valid reply within 50ms, but a malformed message", func(p []byte) [][]byte {
			return [][]byte{append(p[:2:2], "\x80\x00\x00\x01\x00\xff\x00\x00\x00\x00garbage"...)}
		}},
		{"other question", "but a reply to another question", func(p []byte) [][]byte {
			m := answered(t, p, dns.RcodeSuccess)
			m.Question[0].Name = "other."
			return [][]byte{packed(t, m)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := diff.Run(t.Context(), impatient(faulty(t, c.reply)))
			if report != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run: got %+v, error %v, want an error with %q", report, err, c.want)
			}
		})
	}
}

// A server that replies to the first query only ends the comparison after a bounded number
// of queries, with a report.
func TestRunServerSilent(t *testing.T) {
	var replies int
	address := faulty(t, func(p []byte) [][]byte {
		if replies++; replies > 1 {
			return nil
		}
		return [][]byte{packed(t, answered(t, p, dns.RcodeSuccess))}
	})
	report, err := diff.Run(t.Context(), impatient(address))
	if report == nil || err == nil || !strings.Contains(err.Error(), "no valid reply to 200 queries in a row, the last one: querying "+address) {
		t.Fatalf("Run: got %+v, error %v, want a report and an error", report, err)
	}
	if report.Same != 0 || report.Queries > 300 {
		t.Errorf("Run: got %+v, want no equal answers and at most 300 queries", report)
	}
}

// A server that ends before the last of a few queries has not been compared.
func TestRunServerEnds(t *testing.T) {
	var replies int
	o := impatient(faulty(t, func(p []byte) [][]byte {
		if replies++; replies > 20 {
			return nil
		}
		return [][]byte{packed(t, answered(t, p, dns.RcodeNameError))}
	}))
	o.Cluster.Manifests, o.Rate = t.TempDir(), 1000
	manifest := `{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIP":"10.96.0.4"}}`
	if err := os.WriteFile(filepath.Join(o.Cluster.Manifests, "web.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}

	report, err := diff.Run(t.Context(), o)
	if report == nil || report.Queries < 20 || report.Queries > 200 || err == nil || !strings.Contains(err.Error(), "the server does not answer any more") {
		t.Errorf("Run: got %+v, error %v, want a report of 20 to 200 queries, and that the server has ended", report, err)
	}
}

// Each answer differs; the groups are bounded, and so are examples.
func TestEveryAnswerDiffers(t *testing.T) {
	address := faulty(t, func(p []byte) [][]byte {
		m := answered(t, p, dns.RcodeSuccess)
		for i := range byte(30) {
			header := dns.RR_Header{Name: "\\001\\027[31m.example.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}
			m.Answer = append(m.Answer, &dns.A{Hdr: header, A: net.IPv4(192, 0, 2, i)})
		}
		return [][]byte{packed(t, m)}
	})
	report, err := diff.Run(t.Context(), options(address))
	if err != nil || report.Different+report.Documented < report.Queries*9/10 || len(report.Groups) == 0 || len(report.Groups) > 60 {
		t.Fatalf("Run: got %+v, error %v, want differences of most queries in at most 60 groups", report, err)
	}
	for _, g := range report.Groups {
		for _, line := range append(g.Example.Expected, g.Example.Received...) {
			if strings.ContainsFunc(line, func(c rune) bool { return c < ' ' }) {
				t.Errorf("%s: got control characters in %q", g.Cause, line)
			}
		}
		if len(g.Example.Received) > 12 {
			t.Errorf("%s: got %d lines of an answer, want at most 12", g.Cause, len(g.Example.Received))
		}
	}
}

// Names that no API server accepts are compared like others, and printed with escapes.
func TestUnusualNames(t *testing.T) {
	dir := t.TempDir()
	manifest := `{"apiVersion":"v1","kind":"List","items":[` +
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":"a.b","namespace":"shop"},"spec":{"clusterIP":"10.96.0.1"}},` +
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":"\u001b[31m\\\"; c","namespace":"shop"},"spec":{"clusterIP":"10.96.0.2","ports":[{"name":"x\u0000","port":1}]}},` +
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":"` + strings.Repeat("x", 70) + `","namespace":"shop"},"spec":{"clusterIP":"10.96.0.3"}},` +
		`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIP":"10.96.0.4"}}]}`
	if err := os.WriteFile(filepath.Join(dir, "all.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(faulty(t, func(p []byte) [][]byte { return [][]byte{packed(t, answered(t, p, dns.RcodeServerFailure))} }))
	o.Cluster.Manifests = dir
	report, err := diff.Run(t.Context(), o)
	if err != nil || report.Different < 20 {
		t.Fatalf("Run: got %+v, error %v, want differences", report, err)
	}
	for _, g := range report.Groups {
		if strings.ContainsFunc(g.Example.Name+strings.Join(g.Example.Expected, ""), func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("%s: got control characters in %+q", g.Cause, g.Example)
		}
	}
}

// A difference that does not last is none.
func TestChangedAnswer(t *testing.T) {
	want, wrong := "web.shop.svc.cluster.local. 30 IN A 10.96.10.10", "web.shop.svc.cluster.local. 30 IN A 10.96.10.11"
	var count atomic.Int32
	address := faulty(t, func(p []byte) [][]byte {
		m := answered(t, p, dns.RcodeSuccess)
		if q := m.Question[0]; q.Name == "web.shop.svc.cluster.local." && q.Qtype == dns.TypeA {
			record := wrong
			if count.Add(1) > 1 {
				record = want
			}
			m = answered(t, p, dns.RcodeSuccess, record)
			m.Authoritative = true
		}
		return [][]byte{packed(t, m)}
	})
	report, err := diff.Run(t.Context(), options(address))
	if err != nil || report.Changed != 1 || count.Load() != 2 {
		t.Errorf("Run: got %+v, error %v, %d queries for the name; want one changed answer and 2 queries", report, err, count.Load())
	}
}

// A context that ends stops the comparison, which reports what it has.
func TestRunCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := faulty(t, func(p []byte) [][]byte { return [][]byte{packed(t, answered(t, p, dns.RcodeSuccess))} })
	o := options(address)
	o.Rate = 20
	o.Progress = func(done, total int) {
		if total < 300 {
			t.Errorf("Progress: got %d queries in all, want at least 300", total)
		}
		cancel()
	}
	report, err := diff.Run(ctx, o)
	if report == nil || err == nil || !strings.HasSuffix(err.Error(), "context canceled") || report.Queries == 0 || report.Queries > 100 {
		t.Errorf("Run with a cancelled context: got %+v, error %v, want a report of at most 100 queries and the context's error", report, err)
	}
}
