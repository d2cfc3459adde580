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

// overUDPAlone returns those of the queries that were sent over UDP.
func overUDPAlone(queries []string) []string {
	return slices.DeleteFunc(slices.Clone(queries), func(q string) bool { return strings.HasPrefix(q, "tcp") })
}

// An upstream that does not answer over UDP is asked over TCP once, besides: with the third attempt, with
// the second where UDP has never worked or has failed before, and after the last. From then on TCP is used.
func TestSilenceOverUDPAskedOverTCP(t *testing.T) {
	for name, c := range map[string]struct {
		worked, failed bool
		options        string
		first          []string // over UDP, before or with the one over TCP
	}{
		"never worked":           {false, false, "", []string{"udp+edns", "udp"}},
		"worked":                 {true, false, "", []string{"udp+edns", "udp+edns", "udp"}},
		"worked, two attempts":   {true, false, "attempts 2", []string{"udp+edns", "udp"}},
		"worked, one attempt":    {true, false, "attempts 1", []string{"udp+edns"}},
		"never, one attempt":     {false, false, "attempts 1", []string{"udp+edns", "udp"}},
		"has failed before":      {true, true, "", []string{"udp+edns", "udp+edns"}},
		"prefer_udp":             {false, false, "prefer_udp", []string{"udp+edns", "udp"}},
		"failed, one attempt":    {true, true, "attempts 1", []string{"udp+edns"}},
		"health checks disabled": {true, false, "max_fails 0", []string{"udp+edns", "udp+edns", "udp"}},
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
			chaintest.Eventually(t, "the upstream has read all attempts", func() bool {
				return up.queryCount() > before+len(c.first)
			})
			got := up.sent()[before:]
			udp := overUDPAlone(got)
			if first := slices.Index(got, "tcp+edns"); !slices.Equal(udp[:len(c.first)], c.first) || first < len(c.first)-1 {
				t.Errorf("got the queries %v, want %v and then one over TCP", got, c.first)
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

// An upstream that is silent over TCP, too, or has none, gets one query over TCP besides, and the error
// is the silence over UDP.
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
			if n, tcp, _ := up.counts(); tcp > want || n > 6+want || !isTimeout(err) {
				t.Errorf("got %d queries, %d over TCP, and error %v; want at most %d, %d, and a timeout", n, tcp, err, 6+want, want)
			}
			if u.udp.silent.isKnown() {
				t.Error("got UDP avoided, want UDP: TCP is no better")
			}
		})
	}
}

// An upstream that has no port for UDP, which an ICMP error tells, is asked over TCP.
func TestNoPortForUDPAskedOverTCP(t *testing.T) {
	for _, worked := range []bool{false, true} {
		for _, options := range []string{"", "attempts 1", "max_connect_attempts 1"} {
			up := newFakeUpstream(t, answerWithAddress("1"))
			r := newHarness(t, "forward . "+up.addr+" {\n "+options+"\n}")
			if worked {
				r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")
			}
			_ = up.udp.Close()
			r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
		}
	}
}

// A health check finds out that an upstream answers over TCP alone.
func TestHealthCheckOverTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
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
		if !tcp && lost.Swap(true) {
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
	if got, want := overUDPAlone(up.sent()[before:]), []string{"udp+edns"}; !slices.Equal(got, want) || u.edns.fails.active() {
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

// An upstream where EDNS has worked, and that fails all queries with EDNS now, is asked without at each of
// them, and first after a run of them.
func TestEDNSRefusedAfterItWorked(t *testing.T) {
	for _, code := range []int{mdns.RcodeServerFailure, mdns.RcodeRefused} {
		up := newFakeUpstream(t, answerWithAddress("1"))
		r := newHarness(t, "forward . "+up.addr)
		r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")
		r.sendOnce()
		up.setBehavior(toEDNS(rcode(code)))
		for i := range maxOnlyWithout {
			r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
			if got, want := up.sent()[1+2*i:], []string{"udp+edns", "udp"}; !slices.Equal(got, want) {
				t.Fatalf("n%d.example.: got the queries %v, want %v", i, got, want)
			}
		}
		before := up.queryCount()
		r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
		if got, want := up.sent()[before:], []string{"udp"}; !slices.Equal(got, want) {
			t.Errorf("after %d answers without EDNS: got the queries %v, want %v", maxOnlyWithout, got, want)
		}
	}
}
