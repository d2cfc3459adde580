package forward

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// forged is a packet of ours with something about it changed.
func forged(q *mdns.Msg, change func(m *mdns.Msg)) []byte {
	m := answerOf(q, "66")
	change(m)
	return pack(m)
}

// Whatever comes that is not the answer is counted and ignored, and the answer
// that comes behind it counts. None of it reaches a client.
func TestForgeries(t *testing.T) {
	cases := map[string]struct {
		why   fault
		bytes func(q *mdns.Msg) []byte
	}{
		"another id":       {unasked, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Id ^= 0x5555 }) }},
		"another name":     {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Question[0].Name = "b.example." }) }},
		"another type":     {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAAAA }) }},
		"another class":    {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Question[0].Qclass = 3 }) }},
		"another spelling": {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Question[0].Name = "a.eXAMPLE." }) }},
		"no question":      {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Question = nil }) }},
		"a query":          {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Response = false }) }},
		"another opcode":   {question, func(q *mdns.Msg) []byte { return forged(q, func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }) }},
		"garbage":          {malformed, func(q *mdns.Msg) []byte { return []byte("garbage") }},
		"long garbage":     {unasked, func(q *mdns.Msg) []byte { return []byte(strings.Repeat("garbage", 20)) }},
		"cut off":          {malformed, func(q *mdns.Msg) []byte { b := pack(answerOf(q, "66")); return b[:len(b)-14] }},
		"too many records": {malformed, func(q *mdns.Msg) []byte { b := pack(answerOf(q, "66")); b[7] = 9; return b }},
		"two OPTs": {malformed, func(q *mdns.Msg) []byte {
			return forged(q, func(m *mdns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) })
		}},
		"short address": {malformed, func(q *mdns.Msg) []byte {
			m := answerOf(q, "66")
			m.Answer, m.Extra = []mdns.RR{&mdns.RFC3597{Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: 1, Class: 1}, Rdata: "c000"}}, nil
			return pack(m)
		}},
		"others' records": {foreign, func(q *mdns.Msg) []byte {
			return forged(q, func(m *mdns.Msg) { m.Answer = []mdns.RR{rr("bank.example. 9 IN A 192.0.2.66")} })
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
				send(c.bytes(q))
				send(pack(answerOf(q, "1")))
			})
			r := run(t, "forward . "+up.addr)
			r.want("a.EXAMPLE.", mdns.TypeA, "192.0.2.1")
			// It may have been asked several times: such a packet makes us try again.
			if n := r.discarded(up, c.why); n == "" || n == "0" {
				t.Errorf("%s: counted %q times", c.why, n)
			}
		})
	}
}

// An upstream that never says anything else is given up, not believed.
func TestNothingButGarbage(t *testing.T) {
	bad := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		send(forged(q, func(m *mdns.Msg) { m.Answer = []mdns.RR{rr("bank.example. 9 IN A 192.0.2.66")} }))
	})
	r := run(t, "forward . "+bad.addr+" {\n read_timeout 100ms\n}")
	r.want("a.example.", mdns.TypeA, "SERVFAIL")

	// Beside a good one it costs a round trip: what cannot be the answer makes
	// us ask the next at once.
	fine := upstreamOf(t, good("2"))
	r = run(t, "forward . "+bad.addr+" "+fine.addr+" {\n policy sequential\n}")
	began := time.Now()
	r.want("a.example.", mdns.TypeA, "192.0.2.2")
	if waited := r.forward[0].set.roster.Load().all[0].tail(); time.Since(began) >= waited {
		t.Logf("it took %s, with a tail of %s", time.Since(began), waited)
	}
}

// A server that makes lower case of questions is understood.
func TestLowerCase(t *testing.T) {
	up := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		q.Question[0].Name = strings.ToLower(q.Question[0].Name)
		send(pack(answerOf(q, "1")))
	})
	r := run(t, "forward . "+up.addr)
	m, _ := r.ask(query("A.Example.", mdns.TypeA), dns.UDP)
	if brief(m) != "192.0.2.1" || m.Answer[0].Header().Name != "A.Example." {
		t.Error(m)
	}
}

// Records that do not belong to the question are left out of a good reply.
func TestScrub(t *testing.T) {
	up := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Answer = []mdns.RR{
			rr("web.example. 60 IN A 192.0.2.1"), // before the CNAME that leads to it
			rr("www.example. 60 IN CNAME mid.example."),
			rr("mid.example. 60 IN CNAME web.example."),
			rr("bank.test. 60 IN A 192.0.2.66"),
			rr("www.example. 60 IN TXT \"not asked for\""),
		}
		m.Ns = []mdns.RR{rr("example. 60 IN NS ns.example."), rr("test. 60 IN NS ns.example."), rr("example. 60 IN A 192.0.2.66")}
		m.Extra = append(m.Extra, rr("ns.example. 60 IN A 192.0.2.53"), rr("bank.test. 60 IN A 192.0.2.66"))
		send(pack(m))
	})
	r := run(t, "forward . "+up.addr)
	m, err := r.ask(query("www.example.", mdns.TypeA), dns.UDP)
	if err != nil || len(m.Answer) != 3 || len(m.Ns) != 1 || len(m.Extra) != 1 {
		t.Fatalf("%v: %v", err, m)
	}
	if strings.Contains(m.String(), "192.0.2.66") {
		t.Error(m)
	}
	if n := r.discarded(up, scrubbed); n != "1" {
		t.Errorf("counted %q", n)
	}
}

// An answer that comes when another has been given is counted, and tells how
// long the upstream takes.
func TestLate(t *testing.T) {
	late := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		go func() {
			time.Sleep(1500 * time.Millisecond)
			send(pack(answerOf(q, "66")))
		}()
	})
	fine := upstreamOf(t, good("2"))
	r := run(t, "forward . "+late.addr+" "+fine.addr+" {\n policy sequential\n}")
	r.want("a.example.", mdns.TypeA, "192.0.2.2")
	eventually(t, "the late answer is counted", func() bool { return r.discarded(late, "late") == "1" })
	r.want("a.example.", mdns.TypeA, "192.0.2.2")

	// One that comes when nobody waits any more is no guess.
	r = run(t, "forward . "+late.addr+" {\n read_timeout 50ms\n max_connect_attempts 1\n}")
	r.want("b.example.", mdns.TypeA, "SERVFAIL")
	eventually(t, "it is counted", func() bool { return r.discarded(late, "late") != "0" })
	if n := r.discarded(late, unasked); n != "0" {
		t.Errorf("%s guesses", n)
	}
}

// Duplicates and answers in another order than the questions are no trouble.
func TestReorderAndDuplicate(t *testing.T) {
	var mu sync.Mutex
	var held [][2]any
	up := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, [2]any{pack(answerOf(q, strings.TrimPrefix(strings.SplitN(q.Question[0].Name, ".", 2)[0], "n"))), send})
		if len(held) < 20 {
			return
		}
		rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for range 2 {
			for _, h := range held {
				h[1].(func([]byte))(h[0].([]byte))
			}
		}
		held = nil
	})
	r := run(t, "forward . "+up.addr)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { r.want(fmt.Sprintf("n%d.example.", i), mdns.TypeA, fmt.Sprintf("192.0.2.%d", i)) })
	}
	all.Wait()
}

// Somebody who tries ids in the upstream's name does not get far: the question
// goes over TCP.
func TestGuesses(t *testing.T) {
	up := upstreamOf(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if tcp {
			send(pack(answerOf(q, "1")))
			return
		}
		for i := range uint16(mostGuesses + 1) {
			send(forged(q, func(m *mdns.Msg) { m.Id += i + 1 }))
		}
	})
	r := run(t, "forward . "+up.addr)
	r.want("a.example.", mdns.TypeA, "192.0.2.1")
	if _, tcp, _ := up.count(); tcp != 1 {
		t.Errorf("asked %d times over TCP", tcp)
	}
}

// Ids cannot be foreseen, and ports change.
func TestIdsAndPorts(t *testing.T) {
	up := upstreamOf(t, good("1"))
	r := run(t, "forward . "+up.addr+" {\n expire 200ms\n}")
	for i := range 100 {
		r.get(fmt.Sprintf("n%d.example.", i), mdns.TypeA)
	}
	ids, steps := map[uint16]bool{}, map[uint16]bool{}
	asked, _ := up.questions()
	for i, m := range asked {
		ids[m.Id] = true
		if i > 0 {
			steps[m.Id-asked[i-1].Id] = true
		}
	}
	if len(ids) < 95 || len(steps) < 95 {
		t.Errorf("%d ids in %d steps for 100 questions", len(ids), len(steps))
	}
	_, _, ports := up.count()
	eventually(t, "another port", func() bool {
		r.get("more.example.", mdns.TypeA)
		_, _, now := up.count()
		return now > ports
	})
}

// Truncated and oversize answers are asked for again over TCP.
func TestTruncated(t *testing.T) {
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
	for name, do := range map[string]behave{"TC": cut, "oversize": big, "TC in the middle of a record": middle} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := upstreamOf(t, do)
			r := run(t, "forward . "+up.addr)
			m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
			if err != nil || brief(m) != "192.0.2.1" || m.Truncated {
				t.Errorf("%v: %v", err, m)
			}
			if n, tcp, _ := up.count(); n != 2 || tcp != 1 {
				t.Errorf("asked %d times, %d over TCP", n, tcp)
			}
		})
	}
}

// If there is no TCP, clients get what came, and are told that it is not all.
func TestTruncatedWithoutTCP(t *testing.T) {
	up := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Truncated = true
		send(pack(m))
	})
	_ = up.tcp.Close()
	r := run(t, "forward . "+up.addr)
	m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
	if err != nil || !m.Truncated || brief(m) != "192.0.2.1" {
		t.Errorf("%v: %v", err, m)
	}
}

// A server that does not know EDNS is asked without, from then on.
func TestWithoutEDNS(t *testing.T) {
	for name, whole := range map[string]bool{"a header alone": false, "with the question": true} {
		t.Run(name, func(t *testing.T) {
			up := upstreamOf(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
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
			r := run(t, "forward . "+up.addr)
			r.want("a.example.", mdns.TypeA, "192.0.2.1")
			r.want("b.example.", mdns.TypeA, "192.0.2.1")
			if n := up.times(); n != 3 {
				t.Errorf("asked %d times, want 3", n)
			}
		})
	}
}

// TestHealth goes through an outage: the upstream is given up, clients are told
// at once, and it is asked again when it is back.
func TestHealth(t *testing.T) {
	up := upstreamOf(t, silent)
	r := run(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 20ms no_rec domain health.example\n failfast_all_unhealthy_upstreams\n}")
	r.want("a.example.", mdns.TypeA, "SERVFAIL")
	u := r.forward[0].set.roster.Load().all[0]
	eventually(t, "the upstream is down", u.down)
	n := up.times()
	q := query("b.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	m, err := r.ask(q, dns.UDP)
	if m.Rcode != mdns.RcodeServerFailure || err == nil || !strings.Contains(err.Error(), "no healthy upstream") {
		t.Errorf("%v %v", err, m)
	}
	if e, ok := m.IsEdns0().Option[0].(*mdns.EDNS0_EDE); !ok || e.InfoCode != 22 {
		t.Errorf("%v", m)
	}
	asked, _ := up.questions()
	checks := 0
	for i, m := range asked {
		switch of := m.Question[0]; {
		case of.Name == "b.example." && i >= n:
			t.Error("an upstream that is down was asked")
		case of.Name == "health.example." && of.Qtype == mdns.TypeNS && !m.RecursionDesired:
			checks++
		}
	}
	if checks < 2 {
		t.Errorf("%d health checks", checks)
	}
	if n := r.metric(fmt.Sprintf(`coredns_proxy_healthcheck_failures_total{proxy_name="forward",to=%q}`, up.addr)); n == "0" {
		t.Error("no failure was counted")
	}
	if n := r.metric("coredns_forward_healthcheck_broken_total"); n != "1" {
		t.Errorf("broken: %s", n)
	}
	up.becomes(func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if q.Question[0].Name == "health.example." {
			code(mdns.RcodeRefused)(q, tcp, send) // any reply is health
			return
		}
		good("1")(q, tcp, send)
	})
	eventually(t, "it is back", func() bool { return r.get("c.example.", mdns.TypeA) == "192.0.2.1" })
}

// Where only health checks are not answered, a question gets through and shows
// that the upstream is there.
func TestQuestionHeals(t *testing.T) {
	var dead atomic.Bool
	dead.Store(true)
	up := upstreamOf(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if !dead.Load() && q.Question[0].Name != "." {
			good("1")(q, tcp, send)
		}
	})
	r := run(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 20ms\n}")
	r.want("a.example.", mdns.TypeA, "SERVFAIL")
	u := r.forward[0].set.roster.Load().all[0]
	eventually(t, "the upstream is down", u.down)
	dead.Store(false)
	eventually(t, "a question heals it", func() bool { return r.get("b.example.", mdns.TypeA) == "192.0.2.1" })
	if up.checked() == 0 {
		t.Error("there was no health check")
	}
}

func TestNeverDown(t *testing.T) {
	up := upstreamOf(t, silent)
	r := run(t, "forward . "+up.addr+" {\n read_timeout 20ms\n max_connect_attempts 2\n max_fails 0\n health_check 10ms\n}")
	for i := range 5 {
		r.want(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "SERVFAIL")
	}
	if up.checked() != 0 || r.forward[0].set.roster.Load().all[0].down() {
		t.Error("max_fails 0 checks all the same")
	}
}
