package directive

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	seamark "github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func TestSmallDirectiveErrors(t *testing.T) {
	long := strings.Repeat("x", 512)
	for _, c := range []struct{ text, want string }{
		{"header", "Corefile:2: header: want lines of query or response, set or clear, and flags in braces"},
		{"header x {\nset aa\n}", "Corefile:2: header: want no argument, got 1"},
		{"header {\nquery set\n}", "Corefile:3: header: query: got 1 argument, usage: query set|clear FLAGS..."},
		{"header {\nresponse aa rd\n}", `Corefile:3: header: response: want set or clear, got "aa"`},
		{"header {\nset aa qr ad\n}", "Corefile:3: header: set: want aa, ra or rd, got \"qr\"\nCorefile:3: header: set: want aa, ra or rd, got \"ad\""},
		{"header {\nclear\n}", "Corefile:3: header: clear: got no arguments, usage: clear FLAGS..."},
		{"header {\nanswer set aa\n}", `Corefile:3: header: unknown option "answer"`},
		{"minimal x", "Corefile:2: minimal: want no argument, got 1"},
		{"minimal {\nx\n}", `Corefile:3: minimal: takes no options, got "x"`},
		{"any x", "Corefile:2: any: want no argument, got 1"},
		{"any\nany", "Corefile:3: any: already given at Corefile:2, and can be given once in a server block"},
		{"chaos {\nx\n}", `Corefile:3: chaos: unknown option "x"`},
		{"chaos {\nstatistics on\n}", "Corefile:3: chaos: statistics: want no argument, got 1"},
		{"chaos\nchaos", "Corefile:3: chaos: already given at Corefile:2, and can be given once in a server block"},
		{"nsid " + long, "Corefile:2: nsid: want DATA of 1..511 bytes, got 512"},
		{`nsid ""`, "Corefile:2: nsid: want DATA of 1..511 bytes, got 0"},
		{"nsid {\nx\n}", `Corefile:3: nsid: takes no options, got "x"`},
		{"bufsize 511", `Corefile:2: bufsize: want 512..4096, got "511"`},
		{"bufsize 4097", `Corefile:2: bufsize: want 512..4096, got "4097"`},
		{"bufsize 512 1", "Corefile:2: bufsize: want at most 1 argument, got 2"},
		{"bufsize {\nx\n}", `Corefile:3: bufsize: takes no options, got "x"`},
		{"local x", "Corefile:2: local: want no argument, got 1"},
		{"local {\nlocalhost_prefix yes\n}", `Corefile:3: local: localhost_prefix: want on or off, got "yes"`},
		{"local {\nlocalhost_prefix\n}", "Corefile:3: local: localhost_prefix: got no arguments, usage: localhost_prefix on|off"},
		{"erratic a..b", `Corefile:2: erratic: not a zone: "a..b": empty label`},
		{"erratic {\ndrop -1\n}", `Corefile:3: erratic: drop: want 0..2147483647, got "-1"`},
		{"erratic {\ntruncate 1 2\n}", "Corefile:3: erratic: truncate: got 2 arguments, usage: truncate [AMOUNT]"},
		{"erratic {\ndelay 1 10s\n}", `Corefile:3: erratic: delay: want a duration of 1ms..5s, got "10s"`},
		{"erratic {\nlarge 1\n}", "Corefile:3: erratic: large: want no argument, got 1"},
		{"erratic {\nslow\n}", `Corefile:3: erratic: unknown option "slow"`},
	} {
		wantErrors(t, ".:53 {\n"+c.text+"\n}", c.want)
	}
}

// A flagRecorder is a handler that records the flags of the query.
type flagRecorder struct{ seen uint16 }

func (f *flagRecorder) ServeDNS(q *seamark.Query) seamark.Verdict {
	f.seen = q.Flags
	return seamark.Done
}

// A cache above header may pass a query down a second time. header then changes the
// query again, not the reply.
func TestHeaderSecondPass(t *testing.T) {
	h := &Header{response: flagChange{clear: wire.FlagRD}}
	n, _ := wire.ParseName("a.example")
	packet := wire.AppendRequest(nil, 1, wire.FlagRD|wire.FlagCD, []byte(n), wire.TypeA)
	q := seamark.NewQuery(nil)
	q.Reset(packet, seamark.UDP, time.Now())
	if fault := q.Parse(packet); fault != wire.NoFault {
		t.Fatal(fault)
	}
	for range 2 {
		h.ServeDNS(q)
		if q.Flags != wire.FlagRD|wire.FlagCD {
			t.Errorf("after ServeDNS: got flags %#x, want RD and CD", q.Flags)
		}
		h.FinishDNS(q)
		if q.Flags != wire.FlagCD {
			t.Errorf("after FinishDNS: got flags %#x, want CD", q.Flags)
		}
	}
}

func TestHeaderQuery(t *testing.T) {
	for _, c := range []struct {
		lines       string
		query       uint16
		seen, reply uint16
	}{
		{"query set rd", 0, wire.FlagRD, 0},
		{"query clear rd", wire.FlagRD, 0, wire.FlagRD},
		{"query set rd aa ra", 0, wire.FlagRD | wire.FlagAA | wire.FlagRA, 0},
		{"query set rd\nquery clear rd", wire.FlagRD, 0, wire.FlagRD},
		{"query clear rd\nquery set rd", wire.FlagRD, wire.FlagRD, wire.FlagRD},
		{"query set rd\nresponse set rd", 0, wire.FlagRD, wire.FlagRD},
		{"response clear rd", wire.FlagRD, wire.FlagRD, 0},
		{"clear rd", wire.FlagRD | wire.FlagCD, wire.FlagRD | wire.FlagCD, wire.FlagCD},
	} {
		f := &flagRecorder{}
		r := run(t, ".:53 {\nheader {\n"+c.lines+"\n}\n}")
		r.addBelow(f)
		n, _ := wire.ParseName("a.example")
		reply := r.exchange(wire.AppendRequest(nil, 1, c.query, []byte(n), wire.TypeA), seamark.UDP, client)
		replyFlags := (uint16(reply[2])<<8 | uint16(reply[3])) &^ wire.FlagQR
		if f.seen != c.seen || replyFlags != c.reply {
			t.Errorf("%s: query below: got %04x, want %04x; reply: got %04x, want %04x", c.lines, f.seen, c.seen, replyFlags, c.reply)
		}
	}
}

// bufsize limits the UDP size of the client.
func TestBufsize(t *testing.T) {
	for _, c := range []struct{ corefile, size, want uint16 }{{0, 4096, 1232}, {0, 600, 600}, {512, 1232, 512}, {4096, 4000, 4000}} {
		text := "bufsize"
		if c.corefile > 0 {
			text += fmt.Sprint(" ", c.corefile)
		}
		var seen uint16
		r := run(t, ".:53 {\n"+text+"\n}")
		r.addBelow(handlerFunc(func(q *seamark.Query) { seen = q.UDPSize }))
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		m.SetEdns0(c.size, false)
		p, _ := m.Pack()
		if r.exchange(p, seamark.UDP, client); seen != c.want {
			t.Errorf("%s, client size %d: got %d, want %d", text, c.size, seen, c.want)
		}
	}
}

type handlerFunc func(q *seamark.Query)

func (f handlerFunc) ServeDNS(q *seamark.Query) seamark.Verdict { f(q); return seamark.Done }

func TestChaosDefaults(t *testing.T) {
	r := run(t, ".:53 {\nchaos\n}")
	m := new(dns.Msg)
	for _, c := range []struct{ name, want string }{
		{"version.bind.", "Seamark"},
		{"authors.bind.", "The Seamark authors"},
	} {
		q := new(dns.Msg).SetQuestion(c.name, dns.TypeTXT)
		q.Question[0].Qclass = dns.ClassCHAOS
		p, _ := q.Pack()
		if err := m.Unpack(r.exchange(p, seamark.UDP, client)); err != nil {
			t.Fatal(err)
		}
		if txt, ok := m.Answer[0].(*dns.TXT); !ok || !strings.HasPrefix(txt.Txt[0], c.want) || txt.Hdr.Class != dns.ClassCHAOS {
			t.Errorf("%s: got %v", c.name, m.Answer)
		}
	}
	r = run(t, ".:53 {\nchaos "+strings.Repeat("x", 300)+"\n}")
	q := new(dns.Msg).SetQuestion("version.server.", dns.TypeTXT)
	q.Question[0].Qclass = dns.ClassCHAOS
	p, _ := q.Pack()
	if err := m.Unpack(r.exchange(p, seamark.UDP, client)); err != nil || len(m.Answer[0].(*dns.TXT).Txt[0]) != 255 {
		t.Errorf("version.server. with 300 bytes: got %v, error %v; want 255 bytes", m.Answer, err)
	}
}

// The default NSID is the host name.
func TestNSID(t *testing.T) {
	for text, want := range map[string]string{"nsid zone a": "zone a", `nsid "zone a"`: "zone a", "nsid": ""} {
		r := run(t, ".:53 {\n"+text+"\n}")
		r.addBelow(&addressHandler{1})
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
		p, _ := m.Pack()
		if err := m.Unpack(r.exchange(p, seamark.UDP, client)); err != nil {
			t.Fatal(err)
		}
		got := m.IsEdns0().Option
		if len(got) != 1 || want != "" && got[0].String() != fmt.Sprintf("%x", want) || got[0].String() == "" {
			t.Errorf("%s: got options %v, want only NSID %q (any if empty)", text, got, want)
		}
	}
}

func TestLocalMetric(t *testing.T) {
	r := run(t, ".:53 {\nlocal\n}")
	for _, name := range []string{"localhost", "a.localhost", "localhost.example", "LOCALHOST.a.example", "localhosts.example", "1.0.0.127.in-addr.arpa"} {
		r.exchange(packet(t, name, wire.TypeA), seamark.UDP, client)
	}
	if got := r.metrics("coredns_local_"); got != "coredns_local_localhost_requests_total 2\n" {
		t.Errorf("got %q, want 2 requests for localhost names", got)
	}
	for _, z := range find[*Local](r)[0].zones {
		if got := wire.Name(z.name); got.Labels() != z.labels || z.pointer != "" && !wire.Name(z.pointer).Within(got) {
			t.Errorf("zone %s: got %d labels and the PTR owner %s, want %d labels and an owner in the zone", got, z.labels, wire.Name(z.pointer), got.Labels())
		}
	}
}

// drop N, delay N and truncate N apply to every Nth query, beginning with the first.
func TestErratic(t *testing.T) {
	for _, c := range []struct{ options, want string }{
		{"", "silence answer silence answer"},
		{"{\ndrop\n}", "silence answer silence answer"},
		{"{\ndrop 3\n}", "silence answer answer silence"},
		{"{\ndrop 0\n}", "answer answer answer answer"},
		{"{\ntruncate\n}", "truncated answer truncated answer"},
		{"{\ndelay 2 1ms\n}", "parked answer parked answer"},
		{"{\nlarge\n}", "silence answer silence answer"},
	} {
		r := run(t, ".:53 {\nerratic "+c.options+"\n}")
		e := find[*Erratic](r)[0]
		var got []string
		for range 4 {
			q := r.query
			p := packet(t, "a.example", wire.TypeA)
			q.Reset(p, seamark.UDP, time.Unix(0, 0))
			q.Parse(q.Packet())
			q.Answer.Reset(r.lent, q.Question())
			switch verdict := e.ServeDNS(q); {
			case verdict == seamark.Drop:
				got = append(got, "silence")
			case verdict == seamark.Wait:
				got = append(got, "parked")
			case q.TC:
				got = append(got, "truncated")
			default:
				got = append(got, "answer")
			}
			if n := q.Answer.Count[0]; e.large && n != 30 && n != 0 {
				t.Errorf("large: got %d records, want 30", n)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("erratic %s: got %s, want %s", c.options, text, c.want)
		}
	}
}

func TestErraticReady(t *testing.T) {
	r := run(t, ".:53 {\nerratic {\ndrop 0\n}\n}")
	e, got := find[*Erratic](r)[0], ""
	for range 7 {
		got += fmt.Sprint(e.Ready(), " ")
		r.exchange(packet(t, "a.example", wire.TypeA), seamark.UDP, client)
	}
	if got != "false false false true true false false " {
		t.Errorf("got %s, want ready for the 5th and 6th query only", got)
	}
}

// Ordinary queries do not allocate.
func TestSmallDirectiveAllocations(t *testing.T) {
	r := run(t, `.:53 {
		nsid x
		bufsize
		local
		any
		chaos
		loadbalance {
			prefer 192.0.2.3/32
		}
		acl {
			block type MX net 10.0.0.0/8 10.1.0.0/16
			allow net 10.0.0.0/24
			block
		}
		header {
			response set ra
		}
		minimal
	}`)
	r.addBelow(&twoRecords{wire.AppendAddress(wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.MustParseAddr("192.0.2.1")), wire.OwnerIsQuestion, 60, netip.MustParseAddr("192.0.2.3"))})
	p := packet(t, "www.example.org", wire.TypeA)
	q, now := r.query, time.Unix(0, 0)
	q.Peer = netip.MustParseAddrPort(client)
	if n := testing.AllocsPerRun(100, func() {
		q.Reset(p, seamark.UDP, now)
		r.port.Serve(q, r.lent)
		q.Observe(now)
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
	if q.RCode != 0 || q.Answer.Count[0] != 2 {
		t.Errorf("got %v and %d records, want NOERROR and 2", q.RCode, q.Answer.Count[0])
	}
}

// twoRecords is a handler that answers with the same two records.
type twoRecords struct{ records []byte }

func (c *twoRecords) ServeDNS(q *seamark.Query) seamark.Verdict {
	q.Answer.Append(wire.Answers, c.records, 2)
	return seamark.Done
}
