package cache

import (
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// serve returns a function that serves one packet as a reader does.
func (w *harness) serve(m *mdns.Msg) func() dns.Outcome {
	packet, err := m.Pack()
	if err != nil {
		panic(err)
	}
	q, lent, now := dns.NewQuery(w), make([]byte, 0, 1<<16), time.Now()
	return func() dns.Outcome {
		q.Reset(packet, dns.UDP, now)
		outcome := w.port.Serve(q, lent)
		q.Observe(now)
		return outcome
	}
}

// Neither a hit nor an answer of this server's own allocates.
func TestAllocations(t *testing.T) {
	for _, test := range []struct {
		name, options string
		local         func(q *dns.Query) dns.Verdict
		m             *mdns.Msg
		answer        func(q *dns.Query, n int) error
	}{
		{name: "a hit", m: newQuery("www.example.org", mdns.TypeA), answer: addressAnswer(300)},
		{name: "a denial", m: newQuery("www.example.org", mdns.TypeA), answer: answerWith(wire.NXDomain, ";\n"+soa)},
		{name: "a hit with a subnet", answer: addressAnswer(300), m: withOptions(newQuery("www.example.org", mdns.TypeA), true, subnet(1))},
		{name: "a hit with a cookie", answer: addressAnswer(300),
			m: withOptions(newQuery("www.example.org", mdns.TypeA), true, &mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0011223344556677"})},
		{name: "a hit with prefetch and stale", options: "prefetch 2\nserve_stale\nkeepttl\n", m: newQuery("www.example.org", mdns.TypeA), answer: addressAnswer(300)},
		{name: "an answer that passes", m: newQuery("www.example.org", mdns.TypeA), local: func(q *dns.Query) dns.Verdict {
			q.Answer.AppendString(wire.Answers, "\xC0\x0C\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x01\x02\x03\x04", 1)
			return dns.Done
		}},
		{name: "a denial that passes", options: "disable success\ndisable denial\n", m: newQuery("www.example.org", mdns.TypeA), local: func(q *dns.Query) dns.Verdict {
			q.RCode = wire.NXDomain
			return dns.Done
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newHarness(t, ".:53 {\n cache {\n"+test.options+"}\n local\n upstream a\n}\n")
			if test.local != nil {
				w.local = test.local
			} else {
				w.upstreams["a"].answer = test.answer
			}
			w.ask(test.m)
			serve := w.serve(test.m)
			if n := testing.AllocsPerRun(1000, func() {
				if serve() != dns.Answered {
					t.Fatal("query parked, want an answer at once")
				}
			}); n != 0 {
				t.Errorf("%v allocations, want 0", n)
			}
		})
	}
}

func BenchmarkHit(b *testing.B)  { benchmark(b, " cache\n", false) }
func BenchmarkPass(b *testing.B) { benchmark(b, " cache\n", true) }

// BenchmarkBare measures a server block without cache.
func BenchmarkBare(b *testing.B) { benchmark(b, "", true) }

func BenchmarkDisabled(b *testing.B) {
	benchmark(b, " cache {\n disable success cluster.local\n disable denial cluster.local\n}\n", true)
}

func benchmark(b *testing.B, directive string, known bool) {
	w := newHarness(b, ".:53 {\n"+directive+" local\n upstream a\n}\n")
	const record = "\xC0\x0C\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x01\x02\x03\x04"
	w.local = func(q *dns.Query) dns.Verdict {
		if !known {
			return dns.Next
		}
		q.Answer.AppendString(wire.Answers, record, 1)
		return dns.Done
	}
	m := newQuery("kubernetes.default.svc.cluster.local", mdns.TypeA)
	w.ask(m)
	serve := w.serve(m)
	b.ReportAllocs()
	for b.Loop() {
		serve()
	}
}
