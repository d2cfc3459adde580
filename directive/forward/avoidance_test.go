package forward

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// The time grows with each failure after its end, and failures before are one.
func TestAvoidanceGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v avoidance
		for _, want := range []time.Duration{10, 40, 160, 600, 600} {
			want *= time.Second
			if !v.extend() || v.extend() || !v.active() {
				t.Fatalf("before %s: got no time, or two", want)
			}
			time.Sleep(want - time.Millisecond)
			if !v.active() {
				t.Errorf("got the end before %s", want)
			}
			time.Sleep(2 * time.Millisecond)
			if v.active() || !v.isKnown() {
				t.Errorf("after %s: got active %v, known %v, want false and true", want, v.active(), v.isKnown())
			}
		}
		if v.end(); v.isKnown() || !v.extend() || v.wait.Load() != int64(minAvoided) {
			t.Errorf("after the end: got %s, want %s", time.Duration(v.wait.Load()), minAvoided)
		}
	})
}

// repeatSoon makes all upstreams seem fast, so that queries are repeated soon.
func (r *harness) repeatSoon() {
	for _, u := range r.forward[0].set.current.Load().all {
		u.latency = latencyHistogram{}
		for range minSamples {
			u.latency.add(time.Millisecond)
		}
	}
}

// An upstream that does not answer over UDP is asked over TCP once: in the last attempt, in the third
// where UDP has never worked, and in the second where it has failed before. From then on TCP is used.
func TestSilenceOverUDPAskedOverTCP(t *testing.T) {
	for name, c := range map[string]struct {
		worked, failed bool
		options        string
		want           []string
	}{
		"never worked":           {false, false, "", []string{"udp+edns", "udp", "tcp+edns"}},
		"worked":                 {true, false, "", []string{"udp+edns", "udp+edns", "udp", "tcp+edns"}},
		"worked, last attempt":   {true, false, "attempts 3", []string{"udp+edns", "udp+edns", "tcp+edns"}},
		"never, last attempt":    {false, false, "attempts 3", []string{"udp+edns", "udp", "tcp+edns"}},
		"has failed before":      {false, true, "", []string{"udp+edns", "tcp+edns"}},
		"prefer_udp":             {false, false, "prefer_udp", []string{"udp+edns", "udp", "tcp+edns"}},
		"failed, two attempts":   {false, true, "attempts 2", []string{"udp+edns", "tcp+edns"}},
		"health checks disabled": {true, false, "max_fails 0", []string{"udp+edns", "udp+edns", "udp", "tcp+edns"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, answerWithAddress("1"))
			r := newHarness(t, "forward . "+up.addr+" {\n "+c.options+"\n}")
			u := r.forward[0].set.current.Load().all[0]
			before := 0
			if c.worked {
				r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")
				before = 1
			}
			if c.failed {
				u.udp.silent.wait.Store(1)
			}

			up.setBehavior(overUDP(noReply))
			r.repeatSoon()
			r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
			if got := up.sent()[before:]; len(got) < len(c.want) || !slices.Equal(got[:len(c.want)], c.want) {
				t.Errorf("got the queries %v, want %v first", got, c.want)
			}

			r.sendOnce()
			n := up.queryCount()
			r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
			if got := up.sent()[n:]; !slices.Contains(got, "tcp+edns") || len(got) > 1 {
				t.Errorf("after that got the queries %v, want one over TCP", got)
			}

			// A reply over UDP, here to a query that is repeated, ends it.
			up.setBehavior(answerWithAddress("1"))
			u.verify(&attempt{})
			chaintest.Eventually(t, "UDP is used again", func() bool { return !u.udp.silent.isKnown() })
			n = up.queryCount()
			r.wantAnswer("c.example.", mdns.TypeA, "192.0.2.1")
			if got, want := up.sent()[n:], []string{"udp+edns"}; !slices.Equal(got, want) {
				t.Errorf("with UDP again got the queries %v, want %v", got, want)
			}
		})
	}
}

// The silence of a name over UDP, such as one whose replies are too large for a firewall, does not
// change how others are sent: a health check over UDP is answered.
func TestSilenceOfNameOverUDP(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if tcp || !strings.HasPrefix(q.Question[0].Name, "large") {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	r := newHarness(t, "forward . "+up.addr)
	u := r.forward[0].set.current.Load().all[0]
	for i := range 3 {
		r.repeatSoon()
		r.wantAnswer(fmt.Sprintf("large%d.example.", i), mdns.TypeA, "192.0.2.1")
		chaintest.Eventually(t, "UDP is not avoided", func() bool { return !u.udp.silent.isKnown() })
		r.sendOnce()
		before := up.queryCount()
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
		if got, want := up.sent()[before:], []string{"udp+edns"}; !slices.Equal(got, want) {
			t.Errorf("got the queries %v, want %v", got, want)
		}
	}
}

// An upstream that is silent over TCP, too, or has none, gets no more queries than before, one of them
// over TCP, and the error is the silence over UDP.
func TestSilenceOverTCPAsWell(t *testing.T) {
	for name, refused := range map[string]bool{"silent": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, noReply)
			want := 1
			if refused {
				_ = up.tcp.Close()
				want = 0
			}
			r := newHarness(t, "forward . "+up.addr+" {\n attempts 6\n read_timeout 50ms\n max_fails 0\n}")
			u := r.forward[0].set.current.Load().all[0]
			r.repeatSoon()
			_, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
			if n, tcp, _ := up.counts(); tcp > want || n > 5+want || !isTimeout(err) {
				t.Errorf("got %d queries, %d over TCP, and error %v; want at most %d, %d, and a timeout", n, tcp, err, 5+want, want)
			}
			if u.udp.silent.isKnown() {
				t.Error("got UDP avoided, want UDP: TCP is no better")
			}
		})
	}
}

// A health check finds out that an upstream answers over TCP alone.
func TestHealthCheckOverTCP(t *testing.T) {
	up := newFakeUpstream(t, overUDP(noReply))
	r := newHarness(t, "forward . "+up.addr+" {\n health_check 10ms\n}")
	u := r.forward[0].set.current.Load().all[0]
	u.failedChecks.Store(2)
	u.startChecks()
	chaintest.Eventually(t, "the upstream is up", func() bool { return !u.down() })
	r.sendOnce()
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	if got, want := up.sent(), []string{"tcp+edns"}; !slices.Equal(got, want) {
		t.Errorf("got the queries %v, want %v", got, want)
	}
}

// A query that is lost at the start, when EDNS has not worked yet, does not switch it off.
func TestFirstQueryLostKeepsEDNS(t *testing.T) {
	var lost atomic.Bool
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if lost.Swap(true) {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	r := newHarness(t, "forward . "+up.addr)
	u := r.forward[0].set.current.Load().all[0]
	r.repeatSoon()
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	chaintest.Eventually(t, "a health check shows that EDNS works", func() bool { return !u.edns.fails.active() })
	r.sendOnce()
	before := up.queryCount()
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	if got, want := up.sent()[before:], []string{"udp+edns"}; !slices.Equal(got, want) || u.edns.fails.active() {
		t.Errorf("got the queries %v, EDNS avoided %v, want %v and false", got, u.edns.fails.active(), want)
	}
}

// Where EDNS has worked, it is avoided after a run of queries that are answered only without, if
// health checks with EDNS have no reply either: never by the names of one zone.
func TestEDNSWorksNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(name string) bool // with EDNS
		avoids bool
	}{
		"upstream":        {func(string) bool { return true }, true},
		"names of a zone": {func(name string) bool { return strings.HasSuffix(name, "attacker.example.") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, answerWithAddress("1"))
			r := newHarness(t, "forward . "+up.addr)
			u := r.forward[0].set.current.Load().all[0]
			r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")
			up.setBehavior(func(q *mdns.Msg, tcp bool, send func([]byte)) {
				do := answerWithAddress("1")
				if c.broken(q.Question[0].Name) {
					do = toEDNS(rcode(1))
				}
				do(q, tcp, send)
			})

			r.sendOnce()
			for i := range maxOnlyWithout {
				if u.edns.fails.active() || !u.edns.works.Load() {
					t.Errorf("before query %d: got EDNS avoided, want that after %d", i+1, maxOnlyWithout)
				}
				r.wantAnswer(fmt.Sprintf("n%d.attacker.example.", i), mdns.TypeA, "192.0.2.1")
			}
			if !c.avoids {
				chaintest.Eventually(t, "a health check shows that EDNS works", func() bool { return !u.edns.fails.active() })
			}

			before := up.queryCount()
			r.wantAnswer("other.example.", mdns.TypeA, "192.0.2.1")
			want := []string{"udp+edns"}
			if c.avoids {
				want = []string{"udp"}
			}
			if got := up.sent()[before:]; !slices.Equal(got, want) {
				t.Errorf("got the queries %v, want %v", got, want)
			}
			signed := query("signed.example.", mdns.TypeA)
			signed.SetEdns0(1232, true)
			_, _ = r.ask(signed, dns.UDP)
			if got := up.sent(); got[len(got)-1] != "udp+edns" {
				t.Errorf("with DO: got the query %s, want EDNS", got[len(got)-1])
			}
		})
	}
}

// An upstream where EDNS has worked, and that refuses all queries with EDNS now, is asked without after
// a run of them.
func TestEDNSRefusedAfterItWorked(t *testing.T) {
	for _, code := range []int{mdns.RcodeServerFailure, mdns.RcodeRefused} {
		up := newFakeUpstream(t, answerWithAddress("1"))
		r := newHarness(t, "forward . "+up.addr)
		r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")
		r.sendOnce()
		up.setBehavior(toEDNS(rcode(code)))
		for i := range maxOnlyWithout - 1 {
			r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, mdns.RcodeToString[code])
		}
		for _, name := range []string{"a.example.", "b.example."} {
			r.wantAnswer(name, mdns.TypeA, "192.0.2.1")
		}
		if got, want := up.sent()[maxOnlyWithout:], []string{"udp+edns", "udp", "udp"}; !slices.Equal(got, want) {
			t.Errorf("after %d errors: got the queries %v, want %v", maxOnlyWithout-1, got, want)
		}
	}
}
