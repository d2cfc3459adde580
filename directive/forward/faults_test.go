package forward

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// packForged packs a reply after a change.
func packForged(q *mdns.Msg, change func(m *mdns.Msg)) []byte {
	m := answerOf(q, "66")
	change(m)
	return pack(m)
}

// Packets that are no reply to the query are counted and ignored, and the reply that
// follows is used.
// See DNS-01-003 in docs/reference/advisories.md.
func TestForgedRepliesIgnored(t *testing.T) {
	cases := map[string]struct {
		why   fault
		bytes func(q *mdns.Msg) []byte
	}{
		"another id": {unknownID, func(q *mdns.Msg) []byte { return packForged(q, func(m *mdns.Msg) { m.Id ^= 0x5555 }) }},
		"another name": {wrongQuestion, func(q *mdns.Msg) []byte {
			return packForged(q, func(m *mdns.Msg) { m.Question[0].Name = "b.example." })
		}},
		"another type": {wrongQuestion, func(q *mdns.Msg) []byte {
			return packForged(q, func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAAAA })
		}},
		"another class": {wrongQuestion, func(q *mdns.Msg) []byte { return packForged(q, func(m *mdns.Msg) { m.Question[0].Qclass = 3 }) }},
		"another spelling": {wrongCase, func(q *mdns.Msg) []byte {
			return packForged(q, func(m *mdns.Msg) { m.Question[0].Name = "a.eXAMPLE." })
		}},
		"no question":      {malformed, func(q *mdns.Msg) []byte { return packForged(q, func(m *mdns.Msg) { m.Question = nil }) }},
		"a query":          {malformed, func(q *mdns.Msg) []byte { return packForged(q, func(m *mdns.Msg) { m.Response = false }) }},
		"another opcode":   {malformed, func(q *mdns.Msg) []byte { return packForged(q, func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }) }},
		"garbage":          {malformed, func(q *mdns.Msg) []byte { return []byte("garbage") }},
		"long garbage":     {unknownID, func(q *mdns.Msg) []byte { return []byte(strings.Repeat("garbage", 20)) }},
		"cut off":          {malformed, func(q *mdns.Msg) []byte { b := pack(answerOf(q, "66")); return b[:len(b)-14] }},
		"too many records": {malformed, func(q *mdns.Msg) []byte { b := pack(answerOf(q, "66")); b[7] = 9; return b }},
		"short address": {malformed, func(q *mdns.Msg) []byte {
			m := answerOf(q, "66")
			m.Answer, m.Extra = []mdns.RR{&mdns.RFC3597{Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: 1, Class: 1}, Rdata: "c000"}}, nil
			return pack(m)
		}},
		"others' records": {unrelated, func(q *mdns.Msg) []byte {
			return packForged(q, func(m *mdns.Msg) { m.Answer = []mdns.RR{rr("bank.example. 9 IN A 192.0.2.66")} })
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
				if tcp { // to which a fault leads
					return
				}
				send(c.bytes(q))
				send(pack(answerOf(q, "1")))
			})
			r := newHarness(t, "forward . "+up.addr)
			r.wantAnswer("a.EXAMPLE.", mdns.TypeA, "192.0.2.1")
			// An invalid packet causes another attempt, so there may be several.
			if n := r.discarded(up, c.why); n == "" || n == "0" {
				t.Errorf("discarded packets, reason %s: got %q, want at least 1", c.why, n)
			}
		})
	}
}

// If an upstream sends only invalid packets, the client gets SERVFAIL.
func TestOnlyInvalidReplies(t *testing.T) {
	bad := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		send(packForged(q, func(m *mdns.Msg) { m.Answer = []mdns.RR{rr("bank.example. 9 IN A 192.0.2.66")} }))
	})
	r := newHarness(t, "forward . "+bad.addr+" {\n read_timeout 100ms\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")

	// With a second upstream the invalid packet costs one round trip: it causes an
	// attempt at that upstream at once.
	fine := newFakeUpstream(t, answerWithAddress("2"))
	r = newHarness(t, "forward . "+bad.addr+" "+fine.addr+" {\n policy sequential\n}")
	began := time.Now()
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
	if waited := r.forward[0].set.current.Load().all[0].latency95(); time.Since(began) >= waited {
		t.Logf("it took %s, with a tail of %s", time.Since(began), waited)
	}
}

// A server that answers with the question in lower case is accepted.
func TestLowerCaseQuestionAccepted(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		q.Question[0].Name = strings.ToLower(q.Question[0].Name)
		send(pack(answerOf(q, "1")))
	})
	r := newHarness(t, "forward . "+up.addr)
	m, _ := r.ask(query("A.Example.", mdns.TypeA), dns.UDP)
	if brief(m) != "192.0.2.1" || m.Answer[0].Header().Name != "A.Example." {
		t.Errorf("A.Example. A: got\n%v\nwant 192.0.2.1 with the owner name A.Example.", m)
	}
}

// An upstream that answers with the question in upper case is asked again over TCP.
func TestUpperCaseQuestionOverTCP(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		q.Question[0].Name = strings.ToUpper(q.Question[0].Name)
		send(pack(answerOf(q, "1")))
	})
	for _, option := range []string{"auto", "off"} {
		r := newHarness(t, "forward . "+up.addr+" {\n case_randomization "+option+"\n}")
		for range 3 {
			r.wantAnswer("a.Example.", mdns.TypeA, "192.0.2.1")
		}
	}
}

// Records that do not belong to the query are dropped from a valid reply.
func TestUnrelatedRecordsDropped(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Answer = []mdns.RR{
			rr("web.example. 60 IN A 192.0.2.1"), // before the CNAME that leads to it
			rr("www.example. 60 IN CNAME mid.example."),
			rr("mid.example. 60 IN CNAME web.example."),
			rr("bank.test. 60 IN A 192.0.2.66"),
			rr("www.example. 60 IN TXT \"not queries for\""),
		}
		m.Ns = []mdns.RR{rr("example. 60 IN NS ns.example."), rr("test. 60 IN NS ns.example."), rr("example. 60 IN A 192.0.2.66")}
		m.Extra = append(m.Extra, rr("ns.example. 60 IN A 192.0.2.53"), rr("bank.test. 60 IN A 192.0.2.66"))
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr)
	m, err := r.ask(query("www.example.", mdns.TypeA), dns.UDP)
	if err != nil || len(m.Answer) != 3 || len(m.Ns) != 1 || len(m.Extra) != 1 {
		t.Fatalf("www.example. A: got error %v and\n%v\nwant 3, 1 and 1 records in the sections", err, m)
	}
	if strings.Contains(m.String(), "192.0.2.66") {
		t.Errorf("www.example. A: got\n%v\nwant no unrelated records", m)
	}
	if n := r.discarded(up, extraRecord); n != "1" {
		t.Errorf("discarded records: got %q, want 1", n)
	}
}

// A reply after another upstream's is counted, and its latency recorded.
func TestLateReplyDiscarded(t *testing.T) {
	release := make(chan struct{})
	slow := newFakeUpstream(t, answerAfter(release, "66"))
	fine := newFakeUpstream(t, answerWithAddress("2"))
	r := newHarness(t, "forward . "+slow.addr+" "+fine.addr+" {\n policy sequential\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
	slow.setBehavior(noReply)
	close(release)
	chaintest.Eventually(t, "the late reply is counted", func() bool { return r.discarded(slow, late) == "1" })
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")

	// A reply after the last timeout is late too, and not an unknown ID.
	release = make(chan struct{})
	slow.setBehavior(answerAfter(release, "66"))
	r = newHarness(t, "forward . "+slow.addr+" {\n read_timeout 50ms\n max_connect_attempts 1\n}")
	r.wantAnswer("b.example.", mdns.TypeA, "SERVFAIL")
	close(release)
	chaintest.Eventually(t, "the late reply is counted", func() bool { return r.discarded(slow, late) != "0" })
	if n := r.discarded(slow, unknownID); n != "0" {
		t.Errorf("discarded packets with an unknown ID: got %s, want 0", n)
	}
}

// Duplicate replies, and replies in another order than the queries, are accepted.
func TestReorderedAndDuplicateReplies(t *testing.T) {
	const names = 20
	var mu sync.Mutex
	var held []func()
	seen := map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		name := q.Question[0].Name
		reply := pack(answerOf(q, strings.TrimPrefix(strings.SplitN(name, ".", 2)[0], "n")))
		seen[name] = true
		held = append(held, func() { send(reply) })
		if len(seen) < names { // Some queries may be sent twice.
			return
		}
		random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for range 2 {
			for _, send := range held {
				send()
			}
		}
		held = nil
	})
	r := newHarness(t, "forward . "+up.addr+" {\n max_fails 0\n}")
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() { r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, fmt.Sprintf("192.0.2.%d", i)) })
	}
	all.Wait()
}

// Many packets with wrong IDs move the query to TCP.
func TestWrongIDsMoveQueriesToTCP(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if tcp {
			send(pack(answerOf(q, "1")))
			return
		}
		for i := range uint16(maxSpoofed + 1) {
			send(packForged(q, func(m *mdns.Msg) { m.Id += i + 1 }))
		}
	})
	r := newHarness(t, "forward . "+up.addr)
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	if _, tcp, _ := up.counts(); tcp != 1 {
		t.Errorf("got %d queries over TCP, want 1", tcp)
	}
}

// IDs are unpredictable, and ports change.
// See CVE-2026-50252 in docs/reference/advisories.md.
func TestRandomIDsAndPorts(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n expire 200ms\n}")
	for i := range 100 {
		r.query(fmt.Sprintf("n%d.example.", i), mdns.TypeA)
	}
	ids, steps := map[uint16]bool{}, map[uint16]bool{}
	queries, _ := up.received()
	for i, m := range queries {
		ids[m.Id] = true
		if i > 0 {
			steps[m.Id-queries[i-1].Id] = true
		}
	}
	if len(ids) < 95 || len(steps) < 95 {
		t.Errorf("100 queries: got %d different IDs and %d different steps between them, want at least 95 of each", len(ids), len(steps))
	}
	_, _, ports := up.counts()
	chaintest.Eventually(t, "another port", func() bool {
		r.query("more.example.", mdns.TypeA)
		_, _, now := up.counts()
		return now > ports
	})
}

// Truncated and oversize replies are queried again over TCP.
func TestTruncatedRetriedOverTCP(t *testing.T) {
	cut := func(q *mdns.Msg, tcp bool, send func([]byte)) {
		m := answerOf(q, "1")
		if !tcp {
			m.Answer, m.Truncated = nil, true
		}
		send(pack(m))
	}
	big := func(q *mdns.Msg, tcp bool, send func([]byte)) {
		m := answerOf(q, "1")
		if !tcp {
			for i := range 100 {
				m.Answer = append(m.Answer, rr(fmt.Sprintf("%s 60 IN A 192.0.3.%d", q.Question[0].Name, i)))
			}
		}
		send(pack(m))
	}
	middle := func(q *mdns.Msg, tcp bool, send func([]byte)) {
		m := answerOf(q, "1")
		b := pack(m)
		if !tcp {
			b = b[:len(b)-20]
			binary.BigEndian.PutUint16(b[2:], binary.BigEndian.Uint16(b[2:])|1<<9)
		}
		send(b)
	}
	for name, do := range map[string]behavior{"TC": cut, "oversize": big, "TC in the middle of a record": middle} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, do)
			r := newHarness(t, "forward . "+up.addr)
			m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
			if err != nil || brief(m) != "192.0.2.1" || m.Truncated {
				t.Errorf("a.example. A: got error %v and\n%v\nwant 192.0.2.1 without TC", err, m)
			}
			if n, tcp, _ := up.counts(); n != 2 || tcp != 1 {
				t.Errorf("got %d queries, %d over TCP; want 2, 1 over TCP", n, tcp)
			}
		})
	}
}

// Without TCP, clients get the truncated reply.
func TestTruncatedWithoutTCP(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Truncated = true
		send(pack(m))
	})
	_ = up.tcp.Close()
	r := newHarness(t, "forward . "+up.addr)
	m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
	if err != nil || !m.Truncated || brief(m) != "192.0.2.1" {
		t.Errorf("a.example. A: got error %v and\n%v\nwant 192.0.2.1 with TC", err, m)
	}
}

// An upstream that does not support EDNS is queried without it from then on.
func TestUpstreamWithoutEDNS(t *testing.T) {
	for name, whole := range map[string]bool{"a header alone": false, "with the question": true} {
		t.Run(name, func(t *testing.T) {
			up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
				if q.IsEdns0() == nil {
					send(pack(answerOf(q, "1")))
					return
				}
				m := new(mdns.Msg).SetRcode(q, mdns.RcodeFormatError)
				if !whole {
					m.Question = nil
				}
				send(pack(m))
			})
			r := newHarness(t, "forward . "+up.addr)
			r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
			r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
			if n := up.queryCount(); n != 3 {
				t.Errorf("queries to the upstream: got %d, want 3", n)
			}
		})
	}
}

// During an outage the upstream goes down, clients get SERVFAIL at once, and the
// upstream is queried again once it is up.
func TestHealthChecks(t *testing.T) {
	up := newFakeUpstream(t, noReply)
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 20ms no_rec domain health.example\n failfast_all_unhealthy_upstreams\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")
	u := r.forward[0].set.current.Load().all[0]
	chaintest.Eventually(t, "the upstream is down", u.down)
	n := up.queryCount()
	q := query("b.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	m, err := r.ask(q, dns.UDP)
	if m.Rcode != mdns.RcodeServerFailure || err == nil || !strings.Contains(err.Error(), "no healthy upstream") {
		t.Errorf("b.example. A: got error %v and\n%v\nwant SERVFAIL, no healthy upstream", err, m)
	}
	if e, ok := m.IsEdns0().Option[0].(*mdns.EDNS0_EDE); !ok || e.InfoCode != 22 {
		t.Errorf("b.example. A: got\n%v\nwant the extended error 22", m)
	}
	queries, _ := up.received()
	checks := 0
	for i, m := range queries {
		switch of := m.Question[0]; {
		case of.Name == "b.example." && i >= n:
			t.Error("got a query to the upstream that is down, want health checks only")
		case of.Name == "health.example." && of.Qtype == mdns.TypeNS && !m.RecursionDesired:
			checks++
		}
	}
	if checks < 2 {
		t.Errorf("got %d health checks, want at least 2", checks)
	}
	if n := r.metric(fmt.Sprintf(`coredns_proxy_healthcheck_failures_total{proxy_name="forward",to=%q}`, up.addr)); n == "0" {
		t.Error("healthcheck_failures_total: got 0, want more")
	}
	if n := r.metric("coredns_forward_healthcheck_broken_total"); n != "1" {
		t.Errorf("healthcheck_broken_total: got %s, want 1", n)
	}
	up.setBehavior(func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if q.Question[0].Name == "health.example." {
			answerWithCode(mdns.RcodeRefused)(q, tcp, send) // Any reply shows that the upstream is up.
			return
		}
		answerWithAddress("1")(q, tcp, send)
	})
	chaintest.Eventually(t, "it is back", func() bool { return r.query("c.example.", mdns.TypeA) == "192.0.2.1" })
}

// The log and the metrics report when an upstream goes down and is up again, once
// each.
func TestUpstreamDownReported(t *testing.T) {
	up := newFakeUpstream(t, noReply)
	var log lockedBuffer
	b, err := setup(".:53 {\nforward . "+up.addr+" {\n read_timeout 50ms\n health_check 20ms\n}\n}", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := &harness{t: t}
	r.serve(b, nil)
	t.Cleanup(func() { r.lot.Close(t.Context()); r.start.Stop() })
	check := func(when, gauge, total string) {
		t.Helper()
		for name, want := range map[string]string{"seamark_forward_upstream_up": gauge, "seamark_forward_upstream_down_total": total} {
			if got := r.metric(fmt.Sprintf("%s{to=%q}", name, up.addr)); got != want {
				t.Errorf("%s: %s: got %s, want %s", when, name, got, want)
			}
		}
	}
	check("at the start", "1", "0")
	r.wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")
	u := r.forward[0].set.current.Load().all[0]
	chaintest.Eventually(t, "the upstream is down", u.down)
	chaintest.Eventually(t, "two more failed checks", func() bool { return u.failedChecks.Load() >= 4 })
	check("down", "0", "1")
	up.setBehavior(answerWithAddress("1"))
	chaintest.Eventually(t, "the upstream is up", func() bool { return !u.down() })
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	chaintest.Eventually(t, "the log line", func() bool { return strings.Contains(log.String(), "up again") })
	check("up again", "1", "1")
	for _, want := range []string{
		`level=WARN msg="forward: Upstream is down" upstream=` + up.addr + ` error="read udp `,
		`level=INFO msg="forward: Upstream is up again" upstream=` + up.addr + ` duration=`,
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("got %d lines with %s, want 1:\n%s", n, want, log.String())
		}
	}
}

// If only health checks fail, a client's query marks the upstream healthy.
func TestQueryMarksUpstreamHealthy(t *testing.T) {
	var dead atomic.Bool
	dead.Store(true)
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if !dead.Load() && q.Question[0].Name != "." {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 20ms\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")
	u := r.forward[0].set.current.Load().all[0]
	chaintest.Eventually(t, "the upstream is down", u.down)
	dead.Store(false)
	chaintest.Eventually(t, "a query marks the upstream healthy", func() bool { return r.query("b.example.", mdns.TypeA) == "192.0.2.1" })
	if up.checkCount() == 0 {
		t.Error("got no health check, want one")
	}
}

func TestMaxFailsZeroNeverDown(t *testing.T) {
	up := newFakeUpstream(t, noReply)
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 20ms\n max_connect_attempts 2\n max_fails 0\n health_check 10ms\n}")
	for i := range 5 {
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "SERVFAIL")
	}
	if up.checkCount() != 0 || r.forward[0].set.current.Load().all[0].down() {
		t.Error("max_fails 0: got a health check, want none")
	}
}
