package forward

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func TestCaseMemory(t *testing.T) {
	upper, lower := []byte("\x01A\x00\x00\x01\x00\x01"), []byte("\x01a\x00\x00\x01\x00\x01")
	synctest.Test(t, func(t *testing.T) {
		var m caseMemory
		observe := func(times int, spelled []byte, exact, want bool) {
			t.Helper()
			for range times {
				a := &attempt{randomCase: spelled}
				_, a.exactCase = m.randomizes()
				if got := m.accepts(a, exact); got != want {
					t.Errorf("reply to %q, exact %v: got accepted %v, want %v", spelled, exact, got, want)
				}
			}
		}
		randomizes := func(want bool) {
			t.Helper()
			if got, _ := m.randomizes(); got != want {
				t.Errorf("queries in random case: got %v, want %v", got, want)
			}
		}
		randomizes(true)
		observe(caseEchoes-1, upper, true, true)
		observe(100, lower, true, true) // Replies in lower case to names in lower case show nothing.
		observe(1, upper, false, true)
		randomizes(false)
		observe(100, upper, true, true) // queries sent before
		time.Sleep(plainCaseFor)
		randomizes(true)
		observe(caseEchoes, upper, true, true)
		for range 10 { // Each reply in the right case outweighs one in another.
			observe(maxWrongCase-1, upper, false, false)
			observe(maxWrongCase-1, upper, true, true)
		}
		randomizes(true)
		observe(maxWrongCase-1, upper, false, false)
		observe(100, lower, true, true)
		randomizes(true)
		observe(1, upper, false, false)
		randomizes(false)
		time.Sleep(plainCaseFor)
		randomizes(true)
		observe(1, upper, false, true)
		randomizes(false)
	})
}

// All packets for one query count once, and none of them is accepted if the upstream was known to
// preserve letter case when the query was sent.
func TestCaseForgeriesOfOneQuery(t *testing.T) {
	a := &attempt{randomCase: []byte("\x01A\x00\x00\x01\x00\x01"), exactCase: true}
	m := caseMemory{echoes: caseEchoes}
	for i := range 100 {
		if m.accepts(a, false) {
			t.Fatalf("packet %d in the wrong case is accepted", i)
		}
		a.sawInvalid = true // as discard sets it
	}
	if m.wrong != 1 {
		t.Errorf("got %d wrong replies, want 1", m.wrong)
	}

	m.echoes, m.plainUntil = 0, time.Now().Add(time.Minute) // by other queries
	if m.accepts(a, false) {
		t.Errorf("a packet in the wrong case is accepted after queries in plain case have begun")
	}
}

func TestRandomCase(t *testing.T) {
	const name = "\x06zaZA09\x02@[\x02`{\x0fabcdefghijklmno\x00"
	question := questionOf(name, wire.TypeA)
	seen := map[string]bool{}
	for range 100 {
		spelled := inRandomCase(question)
		if !strings.EqualFold(string(spelled), string(question)) {
			t.Fatalf("got %q, want %q in any letter case", spelled, question)
		}
		seen[string(spelled)] = true
	}
	if len(seen) < 99 {
		t.Errorf("got %d spellings of 100 queries, want 99 or more", len(seen))
	}
}

// With each reply the client sees its own letter case, whether the upstream preserves
// the case of queries or not. A reply in the wrong case is ignored if it does, and the query is
// sent again over TCP.
func TestCaseRandomization(t *testing.T) {
	var lowered, compress atomic.Bool
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 IN CNAME mail."+q.Question[0].Name)) // points into the question
		m.Answer[0], m.Answer[1] = m.Answer[1], m.Answer[0]
		m.Answer[1].Header().Name = "mail." + q.Question[0].Name
		m.Compress = compress.Load()
		if lowered.Load() {
			m.Question[0].Name = strings.ToLower(m.Question[0].Name)
		}
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr+" {\n case_randomization auto\n max_fails 0\n}")
	n := 0
	ask := func() (sent string) {
		t.Helper()
		n++
		compress.Store(n%2 == 0)
		name := fmt.Sprintf("Name%d.Of-Many-Letters.Example.", n)
		before := up.queryCount()
		m, _ := r.ask(query(name, mdns.TypeA), dns.UDP)
		if len(m.Answer) != 2 || m.Answer[0].Header().Name != name || m.Answer[1].Header().Name != "mail."+name ||
			m.Answer[0].(*mdns.CNAME).Target != "mail."+name {
			t.Errorf("%s: got %v, want a CNAME record and an address in the case of the query", name, m)
		}
		queries, _ := up.received()
		if sent = queries[before].Question[0].Name; !strings.EqualFold(sent, name) {
			t.Errorf("%s: upstream got %s, want the name in any case", name, sent)
		}
		return sent
	}
	random := func() bool { sent := ask(); return sent != fmt.Sprintf("Name%d.Of-Many-Letters.Example.", n) }
	for range caseEchoes {
		if !random() {
			t.Errorf("query %d: upstream got the client's letter case, want a random one", n)
		}
	}
	lowered.Store(true)
	for range maxWrongCase {
		before, overTCP, _ := up.counts()
		if !random() {
			t.Errorf("query %d: upstream got the client's letter case, want a random one", n)
		}
		if got, tcp, _ := up.counts(); got-before != 2 || tcp-overTCP != 1 {
			t.Errorf("query %d, reply in the wrong case: got %d queries, %d over TCP, want another, over TCP", n, got-before, tcp-overTCP)
		}
	}
	if got := r.discarded(up, wrongCase); got != fmt.Sprint(maxWrongCase) {
		t.Errorf("discarded replies in the wrong case: got %s, want %d", got, maxWrongCase)
	}
	if random() {
		t.Errorf("query %d: upstream got a random letter case, want the client's after %d replies in the wrong case", n, maxWrongCase)
	}
}

// A query over TCP and one with case_randomization off have the client's letter case.
func TestCaseRandomizationOff(t *testing.T) {
	for _, option := range []string{"case_randomization off", "case_randomization auto\n force_tcp"} {
		up := newFakeUpstream(t, answerWithAddress("1"))
		r := newHarness(t, "forward . "+up.addr+" {\n "+option+"\n}")
		r.wantAnswer("name.of-many-letters.example.", mdns.TypeA, "192.0.2.1")
		if queries, _ := up.received(); queries[0].Question[0].Name != "name.of-many-letters.example." {
			t.Errorf("%s: upstream got %s, want the client's letter case", option, queries[0].Question[0].Name)
		}
	}
}
