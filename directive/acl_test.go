package directive

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	seamark "github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An addressHandler answers every query, in every class, with n addresses.
type addressHandler struct{ n int }

func (*addressHandler) AnyClass() seamark.ClassUse { return seamark.ClassAnswered }

func (a *addressHandler) ServeDNS(q *seamark.Query) seamark.Verdict {
	for i := range a.n {
		q.Answer.Append(wire.Answers, wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})), 1)
	}
	return seamark.Done
}

// addBelow adds a handler at the end of the chain.
func (r *testBlock) addBelow(h any) {
	r.block.SetDirective("below")
	r.block.Handle(h)
	r.route()
}

// replyText returns the response code of the reply and its extended error if it has
// one, or "silence" if there is no reply.
func replyText(t *testing.T, reply []byte) string {
	t.Helper()
	if len(reply) == 0 {
		return "silence"
	}
	var m dns.Msg
	if err := m.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	text := dns.RcodeToString[m.Rcode]
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				text += fmt.Sprint(" ", e.InfoCode)
			}
		}
	}
	return text
}

func TestACL(t *testing.T) {
	for _, c := range []struct{ lines, peer, qtype, class, want string }{
		{"block", "10.0.0.1:1", "A", "IN", "REFUSED 15"},
		{"block type * net *", "10.0.0.1:1", "A", "IN", "REFUSED 15"},
		{"block net 10.0.0.0/8", "10.0.0.1:1", "A", "IN", "REFUSED 18"},
		{"block net 10.0.0.0/8", "11.0.0.1:1", "A", "IN", "NOERROR"},
		{"block net 10.0.0.0/8", "[fd00::1]:1", "A", "IN", "NOERROR"},
		{"block net 10.1.2.3/8", "10.0.0.1:1", "A", "IN", "REFUSED 18"},
		{"block net ::/0", "10.0.0.1:1", "A", "IN", "NOERROR"},
		{"block net ::/0", "[fe80::1%eth0]:1", "A", "IN", "REFUSED 18"},
		{"block net fe80::1", "[fe80::1%eth0]:1", "A", "IN", "REFUSED 18"},
		{"block net fe80::/10", "[fe80::1%eth0]:1", "A", "IN", "REFUSED 18"},
		{"filter net 10.0.0.1", "10.0.0.1:1", "A", "IN", "NOERROR 17"},
		{"filter net 10.0.0.1", "10.0.0.2:1", "A", "IN", "NOERROR"},
		{"drop", "10.0.0.1:1", "A", "IN", "silence"},
		{"allow net 10.0.0.0/8\nblock", "10.0.0.1:1", "A", "IN", "NOERROR"},
		{"allow net 10.0.0.0/8\nblock", "11.0.0.1:1", "A", "IN", "REFUSED 15"},
		{"block type A AAAA net 10.0.0.0/8", "10.0.0.1:1", "AAAA", "IN", "REFUSED 18"},
		{"block net 10.0.0.0/8 type A AAAA", "10.0.0.1:1", "MX", "IN", "NOERROR"},
		{"block type TYPE0", "10.0.0.1:1", "A", "IN", "NOERROR"}, // a type like any other
		{"block type TYPE1", "10.0.0.1:1", "A", "IN", "REFUSED 15"},
		{"block net 10.0.0.1\nblock net 10.0.0.2\nallow net 10.0.0.2 10.0.0.3\nblock net 10.0.0.0/24", "10.0.0.2:1", "A", "IN", "REFUSED 18"},
		{"block net 10.0.0.1\nblock net 10.0.0.2\nallow net 10.0.0.2 10.0.0.3\nblock net 10.0.0.0/24", "10.0.0.3:1", "A", "IN", "NOERROR"},
		{"block type MX net 10.0.0.1\nblock net 10.0.0.2", "10.0.0.1:1", "A", "IN", "NOERROR"},
		// IPv4-mapped IPv6 addresses are IPv4 addresses.
		{"block net 10.0.0.0/8", "[::ffff:10.0.0.1]:1", "A", "IN", "REFUSED 18"},
		{"allow net ::/0\nblock", "[::ffff:10.0.0.1]:1", "A", "IN", "REFUSED 15"},
		{"block net ::ffff:10.0.0.0/104", "10.0.0.1:1", "A", "IN", "REFUSED 18"},
		{"block net ::ffff:10.0.0.1", "10.0.0.1:1", "A", "IN", "REFUSED 18"},
		// acl applies to every class.
		{"block type TXT", "10.0.0.1:1", "TXT", "CH", "REFUSED 15"},
		{"block type TXT", "10.0.0.1:1", "TXT", "HS", "REFUSED 15"},
		{"block type MX", "10.0.0.1:1", "TXT", "CH", "NOERROR"},
	} {
		r := run(t, ".:53 {\nacl {\n"+c.lines+"\n}\n}")
		r.addBelow(&addressHandler{1})
		m := new(dns.Msg).SetQuestion("a.example.", dns.StringToType[c.qtype])
		m.Question[0].Qclass = dns.StringToClass[c.class]
		m.SetEdns0(1232, false)
		p, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if got := replyText(t, r.exchange(p, seamark.UDP, c.peer)); got != c.want {
			t.Errorf("%s\n%s %s from %s: got %s, want %s", c.lines, c.class, c.qtype, c.peer, got, c.want)
		}
	}
}

func TestACLErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"acl", "Corefile:2: acl: want lines of allow, block, filter or drop in braces"},
		{"acl a..b {\nblock\n}", `Corefile:2: acl: not a zone: "a..b": empty label`},
		{"acl {\nblok\n}", `Corefile:3: acl: unknown option "blok"; did you mean "block"?`},
		{"acl {\nblock A\n}", `Corefile:3: acl: block: want type or net, got "A"`},
		{"acl {\nblock type\n}", "Corefile:3: acl: block: type: want at least one, got none"},
		{"acl {\nblock type net 10.0.0.1\n}", "Corefile:3: acl: block: type: want at least one, got none"},
		{"acl {\nblock type A net\n}", "Corefile:3: acl: block: net: want at least one, got none"},
		{"acl {\nallow type B\n}", `Corefile:3: acl: allow: type: want a type like A or TYPE65, or *, got "B"`},
		{"acl {\nfilter net 10.0.0.0/33\n}", `Corefile:3: acl: filter: net: want an address, a CIDR or *, got "10.0.0.0/33"`},
		{"acl {\ndrop net LOCAL 10.0.0.256\n}", `Corefile:3: acl: drop: net: want an address, a CIDR or *, got "LOCAL"
Corefile:3: acl: drop: net: want an address, a CIDR or *, got "10.0.0.256"`},
		{"acl {\ndrop net 10.0.0.1 {\nx\n}\n}", "Corefile:3: acl: drop: takes no braces"},
	} {
		wantErrors(t, ".:53 {\n"+c.text+"\n}", c.want)
	}
}

func TestACLMetrics(t *testing.T) {
	r := run(t, ".:53 {\nacl a.example b.a.example {\nblock type A\nfilter type AAAA\ndrop type MX\n}\n}")
	r.addBelow(&addressHandler{1})
	for name, n := range map[string]int{"a.example": 1, "x.b.a.example": 2, "c.example": 3} {
		for range n {
			for _, qtype := range []wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeMX, wire.TypeTXT} {
				r.exchange(packet(t, name, qtype), seamark.UDP, client)
			}
		}
	}
	const want = `coredns_acl_allowed_requests_total{server="dns://:53",view=""} 15
coredns_acl_blocked_requests_total{server="dns://:53",zone="a.example.",view=""} 1
coredns_acl_blocked_requests_total{server="dns://:53",zone="b.a.example.",view=""} 2
coredns_acl_dropped_requests_total{server="dns://:53",zone="a.example.",view=""} 1
coredns_acl_dropped_requests_total{server="dns://:53",zone="b.a.example.",view=""} 2
coredns_acl_filtered_requests_total{server="dns://:53",zone="a.example.",view=""} 1
coredns_acl_filtered_requests_total{server="dns://:53",zone="b.a.example.",view=""} 2
`
	if got := r.metrics("coredns_acl_"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// tenThousand returns a Corefile that blocks 10,000 prefixes, one on each line.
func tenThousand() string {
	var b strings.Builder
	b.WriteString(".:53 {\nacl {\n")
	for i := range 10000 {
		fmt.Fprintf(&b, "block net 172.%d.%d.%d/%d\n", 16+i>>12, i>>4&255, i<<4&255, 26+i%6)
	}
	b.WriteString("}\n}")
	return b.String()
}

// Consecutive lines that differ only in their sources are merged, so the cost of a
// query depends on the number of prefix lengths, not on the number of prefixes.
func TestACLTenThousandPrefixes(t *testing.T) {
	r := run(t, tenThousand())
	l := find[*ACL](r)[0]
	if lines, lengths := len(l.lists[0].lines), len(l.lists[0].lines[0].sources.bits); lines != 1 || lengths != 6 {
		t.Errorf("got %d lines of %d lengths, want 1 of 6", lines, lengths)
	}
	r.addBelow(&addressHandler{1})
	for peer, want := range map[string]string{"172.16.0.1:1": "REFUSED", "172.18.112.241:1": "REFUSED", "172.18.113.1:1": "NOERROR", "10.0.0.1:1": "NOERROR"} {
		if got := replyText(t, r.exchange(packet(t, "a.example", wire.TypeA), seamark.UDP, peer)); got != want {
			t.Errorf("client %s: got %s, want %s", peer, got, want)
		}
	}
}

func BenchmarkACL(b *testing.B) {
	for name, text := range map[string]string{"one": ".:53 {\nacl {\nblock net 192.168.0.0/16\n}\n}", "10000": tenThousand()} {
		b.Run(name, func(b *testing.B) {
			block, err := plan(b, text)
			if err != nil {
				b.Fatal(err)
			}
			l := config.Find[*ACL](block)[0]
			q := seamark.NewQuery(nil)
			n, _ := wire.ParseName("www.shop.example.org")
			q.Reset(wire.AppendRequest(nil, 1, 0, []byte(n), wire.TypeA), seamark.UDP, time.Unix(0, 0))
			q.Parse(q.Packet())
			q.Peer = netip.MustParseAddrPort(client)
			b.ReportAllocs()
			for b.Loop() {
				if line, _ := l.find(q); line != nil {
					b.Fatalf("got the line %v, want no match", line)
				}
			}
		})
	}
}
