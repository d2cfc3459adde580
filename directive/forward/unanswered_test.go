package forward

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// The time doubles with each failure up to the limit, and a reply ends it.
func TestUnansweredTimes(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.1")
	synctest.Test(t, func(t *testing.T) {
		u := unansweredNames{limit: 5 * time.Minute}
		for i, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			u.add(7, client)
			time.Sleep(time.Duration(want)*time.Second - 1)
			if !u.has(7) {
				t.Errorf("failure %d: got nothing remembered just before %d s, want the name", i+1, want)
			}
			time.Sleep(1 * time.Nanosecond)
			if u.has(7) {
				t.Errorf("failure %d: got the name after %d s, want that it is asked for again", i+1, want)
			}
			time.Sleep(5 * time.Second) // the next query fails
		}

		u.remove(7)
		u.add(7, client)
		time.Sleep(time.Second)
		if u.has(7) {
			t.Error("after a reply: got the name after 1 s, want that it is asked for again")
		}
		time.Sleep(time.Hour)
		u.add(7, client)
		time.Sleep(time.Second)
		if u.has(7) {
			t.Error("after an hour: got the name after 1 s, want that it is asked for again")
		}

		for _, limit := range []time.Duration{0, 500 * time.Millisecond} {
			u = unansweredNames{limit: limit}
			u.add(7, client)
			if got := u.has(7); got != (limit > 0) {
				t.Errorf("limit %s: got %v", limit, got)
			}
			if time.Sleep(limit); u.has(7) {
				t.Errorf("limit %s: got the name after it, want that it is asked for again", limit)
			}
		}
	})
}

// Random names of one client, or of many, neither displace a name nor need more memory.
func TestUnansweredFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := unansweredNames{limit: 5 * time.Minute}
		u.add(1, netip.MustParseAddr("192.0.2.1"))
		for i := range uint64(100_000) {
			u.add(1000+i, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i%65536)))
		}
		if got := len(u.names); got != 1+maxUnansweredClient {
			t.Errorf("names of one /64: got %d remembered in all, want %d", got, 1+maxUnansweredClient)
		}
		u.add(2, netip.MustParseAddr("192.0.2.2"))
		for i := range uint64(100_000) {
			u.add(1_000_000+i, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		}
		if len(u.names) != maxUnanswered || !u.has(1) || !u.has(2) {
			t.Errorf("got %d names, the first %v and the second %v, want %d with both", len(u.names), u.has(1), u.has(2), maxUnanswered)
		}

		time.Sleep(time.Minute)
		u.add(3, netip.MustParseAddr("192.0.2.3"))
		if len(u.names) != 1 || len(u.clients) != 1 || !u.has(3) {
			t.Errorf("a minute later: got %d names of %d clients, want 1", len(u.names), len(u.clients))
		}
	})
}

// A name that an upstream never answers, though it answers others, is not asked for again at once.
func TestUnansweredNameRemembered(t *testing.T) {
	silent := func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if !strings.HasPrefix(q.Question[0].Name, "silent") {
			answerWithAddress("1")(q, tcp, send)
		}
	}
	for name, do := range map[string]behavior{"silence": silent, "malformed": func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if strings.HasPrefix(q.Question[0].Name, "silent") {
			cut(q, tcp, send)
			return
		}
		answerWithAddress("1")(q, tcp, send)
	}} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("it takes more than a second")
			}
			t.Parallel()
			up := newFakeUpstream(t, do)
			r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 10ms\n}")
			r.wantAnswer("silent.example.", mdns.TypeA, "SERVFAIL")
			sent := up.queryCount()

			q := query("silent.example.", mdns.TypeA)
			q.SetEdns0(1232, true)
			m, err := r.ask(q, dns.UDP)
			if !errors.Is(err, errUnanswered) || m.Rcode != mdns.RcodeServerFailure {
				t.Errorf("again: got error %v and\n%v\nwant SERVFAIL, %v", err, m, errUnanswered)
			} else if e, ok := m.IsEdns0().Option[0].(*mdns.EDNS0_EDE); !ok || e.InfoCode != mdns.ExtendedErrorCodeCachedError {
				t.Errorf("again: got\n%v\nwant the extended error Cached Error", m)
			}
			if got := up.queryCount(); got != sent {
				t.Errorf("again: got %d more queries to the upstream, want none", got-sent)
			}
			explained := dns.NewQuery(nil)
			explained.Reset(pack(q), dns.UDP, time.Now())
			explained.Parse(pack(q))
			if got := r.forward[0].ExplainDNS(explained, dns.Wait); len(got) != 1 || !strings.Contains(got[0].Text, "(unanswered)") {
				t.Errorf("explanation: got %v, want that it is not asked for", got)
			}
			if got := r.metric("seamark_forward_unanswered_total"); got != "1" {
				t.Errorf("seamark_forward_unanswered_total: got %s, want 1", got)
			}

			r.wantAnswer("silent.example.", mdns.TypeTXT, "SERVFAIL") // which is asked for
			r.wantAnswer("other.example.", mdns.TypeA, "192.0.2.1")
			if got := up.queryCount(); got <= sent+1 {
				t.Errorf("another type: got no query to the upstream, want some")
			}
			set := r.forward[0].set
			set.unanswered.remove(silenceKey(set.hashOf([]byte("\x06silent\x07example\x00"), 1), wire.ClassIN, &usual))
			up.setBehavior(answerWithAddress("1"))
			r.wantAnswer("silent.example.", mdns.TypeA, "192.0.2.1")
		})
	}
}

// A name for which an upstream closes the connection, or resets the stream, is remembered if it
// answers others.
func TestClosedConnectionRemembered(t *testing.T) {
	tcp := newFakeUpstream(t, nil)
	tcp.setBehavior(func(q *mdns.Msg, overTCP bool, send func([]byte)) {
		if strings.HasPrefix(q.Question[0].Name, "closed") {
			tcp.closeConns()
			return
		}
		answerWithAddress("1")(q, overTCP, send)
	})
	ca := newTestCA(t)
	quicUp := newQUICUpstream(t, ca.config(false), func(q *mdns.Msg, s *quic.Stream) {
		if strings.HasPrefix(q.Question[0].Name, "closed") {
			s.CancelWrite(0)
			return
		}
		sendReplies(s, pack(answerOf(q, "1")))
	})

	for name, text := range map[string]string{
		"TCP":  "forward . " + tcp.addr + " {\n force_tcp\n health_check 1h\n}",
		"QUIC": "forward . quic://" + quicUp.addr + " {\n tls " + ca.file("ca.pem") + "\n health_check 1h\n}",
	} {
		r := newHarness(t, text)
		r.wantAnswer("other.example.", mdns.TypeA, "192.0.2.1")
		for i, want := range []bool{false, true} {
			m, err := r.ask(query("closed.example.", mdns.TypeA), dns.UDP)
			if m.Rcode != mdns.RcodeServerFailure || errors.Is(err, errUnanswered) != want {
				t.Errorf("%s, query %d: got error %v and\n%v\nwant SERVFAIL, from memory: %v", name, i, err, m, want)
			}
		}
		r.wantAnswer("other.example.", mdns.TypeA, "192.0.2.1")
	}
}

// A variant of a query that no upstream answers, with DO or of another class, does not keep the
// usual one from being sent; many variants at once are one failure each.
func TestUnansweredVariant(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		o := q.IsEdns0()
		if q.Question[0].Qclass == mdns.ClassINET && q.RecursionDesired && !q.CheckingDisabled && (o == nil || !o.Do()) {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 10ms\n}")
	for i, change := range []func(*mdns.Msg){
		func(m *mdns.Msg) { m.SetEdns0(1232, true) },
		func(m *mdns.Msg) { m.CheckingDisabled = true },
		func(m *mdns.Msg) { m.RecursionDesired = false },
		func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS },
	} {
		name := fmt.Sprintf("n%d.example.", i)
		m := query(name, mdns.TypeA)
		change(m)
		if reply, _ := r.ask(m, dns.UDP); reply.Rcode != mdns.RcodeServerFailure {
			t.Errorf("variant %d: got %v, want SERVFAIL", i, reply)
		}
		r.wantAnswer(name, mdns.TypeA, "192.0.2.1")
	}
}

// Names are not remembered while no upstream answers anything, nor with the option 0.
func TestUnansweredNotRemembered(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for option, do := range map[string]behavior{
		"": noReply,
		"unanswered 0s": func(q *mdns.Msg, tcp bool, send func([]byte)) {
			if q.Question[0].Name == "." {
				answerWithAddress("1")(q, tcp, send)
			}
		},
	} {
		t.Run("option "+option, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, do)
			r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 50ms\n health_check 10ms\n max_fails 0\n"+option+"\n}")
			r.wantAnswer("silent.example.", mdns.TypeA, "SERVFAIL")
			up.setBehavior(answerWithAddress("1"))
			r.wantAnswer("silent.example.", mdns.TypeA, "192.0.2.1")
		})
	}
}
