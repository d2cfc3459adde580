package forward

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// strays are messages that are not the reply, which nobody else can send over a connection.
var strays = map[string]behavior{
	"empty":            raw(func([]byte) []byte { return nil }),
	"one byte":         raw(func(b []byte) []byte { return b[:1] }),
	"four bytes":       raw(func(b []byte) []byte { return b[:4] }),
	"garbage":          raw(func([]byte) []byte { return []byte("garbage") }),
	"another ID":       changed(func(m *mdns.Msg) { m.Id++ }),
	"another question": changed(func(m *mdns.Msg) { m.Question[0].Name = "b.example." }),
	"another type":     changed(func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeTXT }),
	"a query":          changed(func(m *mdns.Msg) { m.Response = false }),
	"another opcode":   changed(func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }),
	"two questions":    changed(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question...) }),
	"no question":      changed(func(m *mdns.Msg) { m.Question = nil }),
}

// A message over a connection that is not the reply ends the attempt at once.
func TestStrayOverConnectionEndsAttempt(t *testing.T) {
	for name, do := range strays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newFakeUpstream(t, do), newFakeUpstream(t, answerWithAddress("2"))
			const options = " {\n force_tcp\n policy sequential\n read_timeout 1m\n max_fails 0\n}"
			r := newHarness(t, "forward . "+first.addr+" "+second.addr+options)
			r.sendOnce()
			r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")

			r = newHarness(t, "forward . "+first.addr+options)
			r.sendOnce()
			_, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
			if _, ok := errors.AsType[*faultError](err); !ok {
				t.Errorf("without a second upstream: got error %v, want a fault", err)
			}
			if got := first.sent(); !slices.Equal(got, []string{"tcp+edns", "tcp+edns"}) {
				t.Errorf("got the queries %v, want one of each exchange", got)
			}
		})
	}
}

// Where many queries wait on the connection, none of them waits for the time limit.
func TestStrayForManyQueries(t *testing.T) {
	up := newFakeUpstream(t, strays["empty"])
	r := newHarness(t, "forward . "+up.addr+" {\n force_tcp\n read_timeout 1m\n max_fails 0\n}")
	r.sendOnce()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := r.ask(query(fmt.Sprintf("n%d.example.", i), mdns.TypeA), dns.UDP); err == nil || isTimeout(err) {
				t.Errorf("query %d: got error %v, want one that is no timeout", i, err)
			}
		})
	}
	all.Wait()
}

// Over UDP a reply with another number of questions may be forged: the query is sent over TCP.
func TestQuestionCountOverUDP(t *testing.T) {
	nxdomain := changed(func(m *mdns.Msg) {
		m.Question, m.Answer, m.Rcode = nil, nil, mdns.RcodeNameError
		m.Ns = []mdns.RR{rr("example. 60 IN SOA ns.example. host.example. 1 2 3 4 5")}
	})
	for name, do := range map[string]behavior{
		"none, with answers": strays["no question"], "none, with SOA": nxdomain, "two": strays["two questions"], "four bytes": strays["four bytes"],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newFakeUpstream(t, overUDP(do))
			r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 1m\n}")
			r.sendOnce()
			r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
			if got := up.sent(); !slices.Equal(got, []string{"udp+edns", "tcp+edns"}) {
				t.Errorf("got the queries %v, want one over UDP and one over TCP", got)
			}
		})
	}
}

// A lame upstream gets a query once, however long the second one is silent.
func TestLameUpstreamAskedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Parallel()
	first, second := newFakeUpstream(t, lame()), newFakeUpstream(t, noReply)
	r := newHarness(t, "forward . "+first.addr+" "+second.addr+" {\n policy sequential\n read_timeout 2s\n attempts 3\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")
	if n := first.queryCount(); n != 1 {
		t.Errorf("got %d queries, want 1", n)
	}
}

// A query with DO is sent with EDNS to the next upstream; the reply of the last one is used.
func TestRejectedEDNSWithDO(t *testing.T) {
	for name, c := range map[string]struct {
		do   behavior
		want string // if there is no other upstream, or it is silent
	}{
		"FORMERR": {rcode(mdns.RcodeFormatError), "FORMERR"},
		"NOTIMP":  {rcode(mdns.RcodeNotImplemented), "NOTIMP"},
		"BADVERS": {rcode(mdns.RcodeBadVers), "SERVFAIL"},
	} {
		for second, want := range map[string]string{"good": "192.0.2.2", "silent": c.want, "none": c.want} {
			t.Run(name+", second upstream "+second, func(t *testing.T) {
				t.Parallel()
				first := newFakeUpstream(t, c.do)
				to := first.addr
				switch second {
				case "good":
					to += " " + newFakeUpstream(t, answerWithAddress("2")).addr
				case "silent":
					if testing.Short() {
						t.Skip("it takes more than a second")
					}
					to += " " + newFakeUpstream(t, noReply).addr
				}
				r := newHarness(t, "forward . "+to+" {\n policy sequential\n read_timeout 2s\n}")
				q := query("a.example.", mdns.TypeA)
				q.SetEdns0(1232, true)
				if m, _ := r.ask(q, dns.UDP); brief(m) != want {
					t.Errorf("got\n%v\nwant %s", m, want)
				}
				if got := first.sent(); !slices.Equal(got, []string{"udp+edns"}) {
					t.Errorf("got the queries %v, want one with EDNS", got)
				}
			})
		}
	}
}

// The fault of one upstream is the error, and is remembered, though another one is silent.
func TestFaultBesideSilenceRemembered(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for name, do := range map[string]behavior{"cut": cut, "others' records": others, "lame": lame()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newFakeUpstream(t, do), newFakeUpstream(t, noReply)
			r := newHarness(t, "forward . "+first.addr+" "+second.addr+" {\n policy sequential\n read_timeout 2s\n}")
			m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
			if _, ok := errors.AsType[*faultError](err); !ok || m.Rcode != mdns.RcodeServerFailure {
				t.Errorf("got error %v and\n%v\nwant SERVFAIL and a fault", err, m)
			}
			if n := first.queryCount(); n > 2 {
				t.Errorf("got %d queries, want one over UDP and at most one over TCP", n)
			}
			if _, err = r.ask(query("a.example.", mdns.TypeA), dns.UDP); err != errUnanswered {
				t.Errorf("the next query: got error %v, want %v", err, errUnanswered)
			}
		})
	}
}

// The option attempts bounds what is sent, but for two queries after a reply with a fault.
func TestAttemptsBoundRepairs(t *testing.T) {
	rejects := toEDNS(rcode(mdns.RcodeFormatError))
	for name, c := range map[string]struct {
		do   behavior
		want string
		sent []string
	}{
		"TC":      {overUDP(tc), "192.0.2.1", []string{"udp+edns", "tcp+edns"}},
		"FORMERR": {rejects, "192.0.2.1", []string{"udp+edns", "udp"}},
		"FORMERR, and TC": {func(q *mdns.Msg, tcp bool, send func([]byte)) {
			if q.IsEdns0() != nil {
				rejects(q, tcp, send)
				return
			}
			overUDP(tc)(q, tcp, send)
		}, "192.0.2.1", []string{"udp+edns", "udp", "tcp"}},
		"malformed": {cut, "SERVFAIL", []string{"udp+edns", "tcp+edns"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, second := newFakeUpstream(t, c.do), newFakeUpstream(t, answerWithAddress("2"))
			r := newHarness(t, "forward . "+up.addr+" "+second.addr+" {\n policy sequential\n attempts 1\n}")
			r.sendOnce()
			r.wantAnswer("a.example.", mdns.TypeA, c.want)
			if got := up.sent(); !slices.Equal(got, c.sent) {
				t.Errorf("got the queries %v, want %v", got, c.sent)
			}
			if n := second.queryCount(); n != 0 {
				t.Errorf("got %d queries to the second upstream, want none", n)
			}
		})
	}
}
