package screen

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"screen", "Corefile:2: screen: want options in braces: local, plain_names, least_labels, private_reverse, rebind or drop"},
		{"screen test {\nplain_names\n}", "Corefile:2: screen: want no argument, got 1"},
		{"screen {\nplain_names\n}\nscreen {\nplain_names\n}", "Corefile:5: screen: already given at Corefile:2, and can be given once in a server block"},
		{"screen {\nlocal\nexcept\nplain_names yes\nprivate_reverse yes\nrebind_localhost_ok yes\ndrop\nallow x\n}", `Corefile:3: screen: local: got no arguments, usage: local ZONES...
Corefile:4: screen: except: got no arguments, usage: except ZONES...
Corefile:5: screen: plain_names: want no argument, got 1
Corefile:6: screen: private_reverse: want no argument, got 1
Corefile:7: screen: rebind_localhost_ok: want no argument, got 1
Corefile:8: screen: drop: got no arguments, usage: drop TYPE...
Corefile:9: screen: unknown option "allow"`},
		{"screen {\nlocal a..b test\nexcept c..d Test.\nrebind e..f\n}", `Corefile:3: screen: local: not a zone: "a..b": empty label
Corefile:4: screen: except: not a zone: "c..d": empty label
Corefile:4: screen: except: test. is in both local and except
Corefile:5: screen: rebind: not a zone: "e..f": empty label`},
		{"screen {\nrebind_localhost_ok\n}", "Corefile:2: screen: rebind_localhost_ok requires rebind"},
		{"screen {\ndrop A six CNAME aaaa ANY TYPE65280\n}", `Corefile:3: screen: drop: want types such as A or AAAA, got "six"
Corefile:3: screen: drop: CNAME cannot be dropped
Corefile:3: screen: drop: ANY cannot be dropped`},
	} {
		if _, err := plan(".:53 {\n"+c.body+"\n}", slog.New(slog.DiscardHandler)); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.body, err, c.want)
		}
	}
}

// A cacheableAddress answers every query with addr, as if an upstream had. Without addr
// it answers with 10.0.0.1, as a handler of this server.
type cacheableAddress struct{ addr netip.Addr }

func (l cacheableAddress) ServeDNS(q *dns.Query) dns.Verdict {
	q.Cacheable, q.RA, q.AD = l.addr.IsValid(), true, true
	addr := l.addr
	if !q.Cacheable {
		addr = netip.MustParseAddr("10.0.0.1")
	}
	var buf [64]byte
	q.Answer.Append(wire.Answers, wire.AppendAddress(buf[:0], wire.OwnerIsQuestion, 5, addr), 1)
	return dns.Done
}

// One refused answer a second is logged, with the number of those not logged.
func TestRebindLogRate(t *testing.T) {
	r := run(t, "screen {\nrebind\n}", fakeUpstream{})
	r.setBelow(cacheableAddress{netip.MustParseAddr("192.168.1.2")})
	start := time.Unix(1000, 0)
	for i, after := range []time.Duration{0, 10 * time.Millisecond, 999 * time.Millisecond, time.Second, 5 * time.Second} {
		if m := r.exchange(fmt.Sprintf("evil%d.test.", i), "A", start.Add(after)); digest(m) != "NOERROR ra" || m.AuthenticatedData {
			t.Errorf("evil%d.test. A: got\n%v\nwant NOERROR ra without records and without AD", i, m)
		}
	}
	var lines []string
	for line := range strings.Lines(r.log.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines = append(lines, text)
	}
	want := `level=WARN msg="screen: Possible DNS-rebind attack detected" qname=evil0.test. type=A address=192.168.1.2
level=WARN msg="screen: Possible DNS-rebind attack detected" qname=evil3.test. type=A address=192.168.1.2 suppressed=2
level=WARN msg="screen: Possible DNS-rebind attack detected" qname=evil4.test. type=A address=192.168.1.2`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("log: got\n%s\nwant\n%s", got, want)
	}
	if got, want := r.metrics(), "drop 0, few_labels 0, local 0, plain_name 0, private_reverse 0, rebind 5"; got != want {
		t.Errorf("metrics: got %s, want %s", got, want)
	}
}

// Answers of handlers of this server are not checked.
func TestOwnAnswers(t *testing.T) {
	r := run(t, "screen {\nrebind\ndrop A\n}", fakeUpstream{})
	r.setBelow(cacheableAddress{})
	if got, want := digest(r.exchange("own.test.", "A", time.Now())), "NOERROR ra\n\town.test. 5 IN A 10.0.0.1"; got != want {
		t.Errorf("own.test. A: got %s, want %s", got, want)
	}
}

// Records of all sections are removed (cases that the scripts do not cover).
func TestRemovedRecords(t *testing.T) {
	w := parseAnswers(t, `
? mx.test MX
mx.test. 60 MX 10 in.test.
mx.test. 60 MX 20 out.test.
+in.test. 60 A 10.0.0.1
+out.test. 60 A 192.88.99.1
+out.test. 60 AAAA 2600::1
? glue.test NS
glue.test. 60 NS ns.glue.test.
+ns.glue.test. 60 A 10.0.0.1
? both.test AAAA
both.test. 60 AAAA 2600::1
^both.test. 60 NS ns.both.test.
+ns.both.test. 60 A 192.88.99.1
+ns.both.test. 60 AAAA 2600::1
? any.test ANY
any.test. 60 AAAA 2600::1
any.test. 60 A 10.0.0.1
`)
	r := run(t, "screen {\nrebind\ndrop AAAA\n}", w)
	for query, want := range map[string]string{
		"mx.test. MX":     "NOERROR ra\n\t+out.test. 60 IN A 192.88.99.1\n\tmx.test. 60 IN MX 10 in.test.\n\tmx.test. 60 IN MX 20 out.test.",
		"glue.test. NS":   "NOERROR ra\n\tglue.test. 60 IN NS ns.glue.test.",
		"both.test. AAAA": "NOERROR ra\n\t^both.test. 60 IN SOA . nobody.invalid. 1 3600 1200 604800 60",
		"any.test. ANY":   "NOERROR ra",
	} {
		name, qtype, _ := strings.Cut(query, " ")
		if got := digest(r.exchange(name, qtype, time.Now())); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", query, got, want)
		}
	}
	// The message with the private additional address counts for both reasons.
	if got, want := r.metrics(), "drop 2, few_labels 0, local 0, plain_name 0, private_reverse 0, rebind 3"; got != want {
		t.Errorf("metrics: got %s, want %s", got, want)
	}
}

func TestExtendedErrors(t *testing.T) {
	r := run(t, "screen {\nrebind\ndrop AAAA\n}", fakeUpstream{})
	for addr, want := range map[string]string{"10.0.0.1": "15: private address", "2600::1": "17: ", "192.88.99.1": ""} {
		r.setBelow(cacheableAddress{netip.MustParseAddr(addr)})
		got := ""
		for _, o := range r.exchange("x.test.", "A", time.Now()).IsEdns0().Option {
			e := o.(*mdns.EDNS0_EDE)
			got += fmt.Sprintf("%d: %s", e.InfoCode, e.ExtraText)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
}

// cache stores screened answers, even without records, and does not store refused
// answers.
func TestCacheability(t *testing.T) {
	w := parseAnswers(t, "? six.test AAAA\nsix.test. 60 AAAA 2600::1\n? evil.test A\nevil.test. 60 A 10.0.0.1\n? good.test A\ngood.test. 60 A 192.88.99.1\n")
	var received atomic.Int64
	r := run(t, "cache\nscreen {\nrebind\ndrop AAAA\n}", mdns.HandlerFunc(func(to mdns.ResponseWriter, query *mdns.Msg) {
		received.Add(1)
		w.ServeDNS(to, query)
	}))
	for _, c := range []struct {
		name, qtype, want string
		received          int64 // queries at the upstream, of three
	}{
		{"six.test.", "AAAA", "NOERROR ra\n\t^six.test. 60 IN SOA . nobody.invalid. 1 3600 1200 604800 60", 1},
		{"evil.test.", "A", "NOERROR ra", 3},
		{"good.test.", "A", "NOERROR ra\n\tgood.test. 60 IN A 192.88.99.1", 1},
	} {
		received.Store(0)
		for range 3 {
			m := r.exchange(c.name, c.qtype, time.Now())
			for _, rr := range slices.Concat(m.Answer, m.Ns) {
				rr.Header().Ttl = 60 // a second may have passed
			}
			if got := digest(m); got != c.want {
				t.Errorf("%s\ngot  %s\nwant %s", c.name, got, c.want)
			}
		}
		if got := received.Load(); got != c.received {
			t.Errorf("%s: upstream received %d queries, want %d", c.name, got, c.received)
		}
	}
}

// Signatures of dropped records are dropped, for uncompressed owner names too.
func TestSignatures(t *testing.T) {
	m := new(mdns.Msg).SetQuestion("a.test.", mdns.TypeAAAA)
	sign := func(name, qtype string) string {
		return name + " 60 RRSIG " + qtype + " 13 2 60 20300101000000 20200101000000 1 test. AAAA"
	}
	for _, text := range []string{"a.test. 60 CNAME b.test.", sign("a.test.", "CNAME"), "b.test. 50 AAAA 2600::1", sign("b.test.", "AAAA")} {
		rr, err := mdns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	msg, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, "screen {\ndrop AAAA\n}", fakeUpstream{})
	r.setBelow(message(msg))
	want := "NOERROR\n\t^b.test. 50 IN SOA . nobody.invalid. 1 3600 1200 604800 50\n\ta.test. 60 IN CNAME b.test.\n\ta.test. 60 IN RRSIG CNAME 13 2 60 20300101000000 20200101000000 1 test. AAAA"
	if got := digest(r.exchange("a.test.", "AAAA", time.Now())); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A message is the reply of an upstream with records only in the answer section.
type message []byte

func (m message) ServeDNS(q *dns.Query) dns.Verdict {
	q.Cacheable = true
	at := wire.HeaderLen
	_, at, _ = wire.ReadName(nil, m, at)
	at += 4
	for at < len(m) {
		next, err := q.Answer.AppendRecord(wire.Answers, m, at)
		if err != nil {
			panic(err)
		}
		at = next
	}
	return dns.Done
}

// Neither answering nor checking nor changing an answer allocates.
func TestAllocations(t *testing.T) {
	r := run(t, "screen {\nlocal local.test\nexcept x.local.test\nplain_names\nprivate_reverse\nrebind ok.test\ndrop AAAA\n}", fakeUpstream{})
	for _, c := range []struct{ addr, name, qtype string }{
		{"192.88.99.1", "a.test.", "A"}, {"192.88.99.1", "a.local.test.", "A"}, {"192.88.99.1", "plain.", "A"},
		{"192.88.99.1", "1.2.3.10.in-addr.arpa.", "PTR"}, {"2600::1", "a.test.", "AAAA"}, {"10.0.0.1", "a.ok.test.", "A"},
	} {
		r.setBelow(cacheableAddress{netip.MustParseAddr(c.addr)})
		packet, err := new(mdns.Msg).SetQuestion(c.name, mdns.StringToType[c.qtype]).Pack()
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if n := testing.AllocsPerRun(100, func() { r.send(packet, now) }); n != 0 {
			t.Errorf("%s %s: got %v allocations, want 0", c.name, c.qtype, n)
		}
	}
}

func TestReverseNames(t *testing.T) {
	for name, want := range map[string]string{
		"4.3.2.1.in-addr.arpa.": "1.2.3.4/32", "10.in-addr.arpa.": "10.0.0.0/8", "255.255.255.255.in-addr.arpa.": "255.255.255.255/32",
		"d.f.ip6.arpa.": "fd00::/8", "0.d.f.ip6.arpa.": "fd00::/12", "A.D.F.IP6.ARPA.": "fda0::/12",
		"0.0.0.0.0.0.a.0.f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.": "10.0.0.0/32",
		"a.0.f.f.f.f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.":             "10.0.0.0/8",
		"f.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.":                       "::f000:0:0/84",
		"in-addr.arpa.": "0.0.0.0/0", "ip6.arpa.": "::/0", "5.4.3.2.1.in-addr.arpa.": "", "256.1.in-addr.arpa.": "", "01.1.in-addr.arpa.": "", "1a.in-addr.arpa.": "",
		"x.10.in-addr.arpa.": "", "dd.f.ip6.arpa.": "", "g.ip6.arpa.": "", "1.2.3.4.in-addr.example.": "", ".": "", "arpa.": "", "1000.in-addr.arpa.": "",
		"-.in-addr.arpa.": "", ":.ip6.arpa.": "", "/.ip6.arpa.": "", "0." + strings.Repeat("0.", 32) + "ip6.arpa.": "",
	} {
		n, err := wire.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		q := dns.NewQuery(nil)
		q.Parse(wire.AppendRequest(nil, 1, 0, []byte(n), wire.TypePTR))
		p, ok := reversed(q)
		if got := p.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %s, %v, want %q", name, got, ok, want)
		}
	}
}

// An upstream can send any service parameters. privateHint finds a private address if
// and only if another library reads one.
func FuzzHints(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x00\x04\x00\x04\x0a\x00\x00\x01"))
	f.Add([]byte("\x00\x01\x01a\x00\x00\x01\x00\x03\x02h2\x00\x06\x00\x10\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x00\x01\x3fa"))
	f.Add([]byte("\x00\x01\x00\x00\x04\xff\xff\x0a"))
	f.Fuzz(func(t *testing.T, rdata []byte) {
		got := new(Screen).privateHint(rdata)
		if len(rdata) > 1<<14 {
			return
		}
		record := append([]byte("\x00\x00\x41\x00\x01\x00\x00\x00\x00"), byte(len(rdata)>>8), byte(len(rdata)))
		rr, _, err := mdns.UnpackRR(append(record, rdata...), 0)
		https, ok := rr.(*mdns.HTTPS)
		if err != nil || !ok {
			return // forward checks less than that, so privateHint must not panic
		}
		private := false
		for _, kv := range https.Value {
			var hints []net.IP
			switch kv := kv.(type) {
			case *mdns.SVCBIPv4Hint:
				hints = kv.Hint
			case *mdns.SVCBIPv6Hint:
				hints = kv.Hint
			}
			for _, ip := range hints {
				addr, _ := netip.AddrFromSlice(ip)
				private = private || isPrivate(addr)
			}
		}
		if private != got.IsValid() {
			t.Fatalf("privateHint(%x) = %v, want private %v: %v", rdata, got, private, https)
		}
	})
}
