package dynupdate_test

import (
	"fmt"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

// Each prerequisite of RFC 2136 §3.2 is met or has its response code, and then nothing changes.
func TestPrerequisites(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		lines string
		want  int
	}{
		{"yxdomain a", mdns.RcodeSuccess},
		{"yxdomain none", mdns.RcodeNameError},
		{"yxdomain wild", mdns.RcodeNameError}, // an empty non-terminal has no records
		{"nxdomain none", mdns.RcodeSuccess},
		{"nxdomain A", mdns.RcodeYXDomain},
		{"yxrrset a A", mdns.RcodeSuccess},
		{"yxrrset a AAAA", mdns.RcodeNXRrset},
		{"nxrrset a AAAA", mdns.RcodeSuccess},
		{"nxrrset a A", mdns.RcodeYXRrset},
		{"yxrrset a A 192.0.2.2;yxrrset a A 192.0.2.1", mdns.RcodeSuccess},
		{"yxrrset a A 192.0.2.1", mdns.RcodeNXRrset},
		{"yxrrset a A 192.0.2.1;yxrrset a A 192.0.2.2;yxrrset a A 192.0.2.3", mdns.RcodeNXRrset},
		{"yxrrset m MX 10 mail.EXAMPLE.org.", mdns.RcodeSuccess},
		{"yxrrset m MX 20 mail.example.org.", mdns.RcodeNXRrset},
		{"yxdomain other.example.net.", mdns.RcodeNotZone},
		{"yxrrset a DS", mdns.RcodeNotImplemented},
		{"yxdomain a;nxdomain a", mdns.RcodeYXDomain},
	} {
		before := w.serial()
		w.update(c.want, append(strings.Split(c.lines, ";"), "add p"+fmt.Sprint(before)+" 60 A 192.0.2.9")...)
		if after := w.serial(); (after != before) != (c.want == mdns.RcodeSuccess) {
			t.Errorf("%s: got serial number %d after %d", c.lines, after, before)
		}
	}
}

// Each rule of RFC 2136 §3.4.2, with the records of the name after it, and whether the serial number
// was incremented.
func TestChanges(t *testing.T) {
	soa := func(serial int) string {
		return fmt.Sprintf("add @ 60 SOA ns.example.org. hostmaster.example.org. %d 3600 600 86400 30", serial)
	}
	for _, c := range []struct {
		name, lines, qname, qtype, want string
		changed                         bool
	}{
		{"a new name", "add new 30 A 192.0.2.9", "new", "A", "30 192.0.2.9", true},
		{"a second record", "add a 60 A 192.0.2.3", "a", "A", "60 192.0.2.1, 60 192.0.2.2, 60 192.0.2.3", true},
		{"the same record", "add a 60 A 192.0.2.1", "a", "A", "60 192.0.2.1, 60 192.0.2.2", false},
		{"the same record in other letters", "add m 60 MX 10 mail.example.org.", "m", "MX", "60 10 Mail.example.org.", false},
		{"another TTL", "add a 300 A 192.0.2.1", "a", "A", "300 192.0.2.1, 300 192.0.2.2", true},
		{"an unknown type", "add a 60 TYPE65280 \\# 2 0a0b", "a", "TYPE65280", "NOERROR", true},
		{"a CNAME beside others", "add a 60 CNAME b", "a", "A", "60 192.0.2.1, 60 192.0.2.2", false},
		{"others beside a CNAME", "add alias 60 A 192.0.2.9", "alias", "CNAME", "60 a.example.org.", false},
		{"another CNAME", "add alias 60 CNAME ns.example.org.", "alias", "CNAME", "60 ns.example.org.", true},
		{"a CNAME at the apex", "add @ 60 CNAME a.example.org.", "@", "CNAME", "NOERROR", false},
		{"another DNAME", "add d 60 DNAME example.com.", "d", "DNAME", "60 example.com.", true},
		{"a record", "delete a A 192.0.2.1", "a", "A", "60 192.0.2.2", true},
		{"a record that is not there", "delete a A 192.0.2.9", "a", "A", "60 192.0.2.1, 60 192.0.2.2", false},
		{"an RRset", "delete a A", "a", "A", "NOERROR", true},
		{"a name", "delete a", "a", "A", "NXDOMAIN", true},
		{"a name that is not there", "delete none", "none", "A", "NXDOMAIN", false},
		{"the apex", "delete @", "@", "NS", "60 ns.example.org., 60 ns2.example.org.", false},
		{"the NS records of the apex", "delete @ NS", "@", "NS", "60 ns.example.org., 60 ns2.example.org.", false},
		{"the SOA record", "delete @ SOA", "@", "NS", "60 ns.example.org., 60 ns2.example.org.", false},
		{"the last NS record", "delete @ NS ns.example.org.;delete @ NS ns2.example.org.", "@", "NS", "60 ns2.example.org.", true},
		{"a delegation", "delete sub NS", "sub", "A", "NOERROR", true},
		{"added and deleted", "add x 60 A 192.0.2.9;delete x", "x", "A", "NXDOMAIN", true},
		{"an older SOA record", soa(9), "@", "MX", "NOERROR", false},
		{"the same SOA record", soa(10), "@", "MX", "NOERROR", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.update(mdns.RcodeSuccess, strings.Split(c.lines, ";")...)
			if c.qtype != "TYPE65280" {
				w.expect(c.qname, c.qtype, c.want)
			}
			want := uint32(10)
			if c.changed {
				want++
			}
			if got := w.serial(); got != want {
				t.Errorf("got serial number %d, want %d", got, want)
			}
		})
	}
}

// A newer SOA record sets the serial number, also around 2^32 (RFC 1982), and it is never 0.
func TestSerialNumbers(t *testing.T) {
	w := newWorld(t)
	soa := func(serial uint32) string {
		return fmt.Sprintf("add @ 60 SOA ns.example.org. hostmaster.example.org. %d 3600 600 86400 30", serial)
	}
	for _, c := range []struct {
		lines []string
		rcode int
		want  uint32
	}{
		{[]string{soa(1 << 31), "add x 60 A 192.0.2.1"}, mdns.RcodeSuccess, 1 << 31},
		{[]string{soa(1<<32 - 1)}, mdns.RcodeSuccess, 1<<32 - 1},
		{[]string{"add x 60 A 192.0.2.2"}, mdns.RcodeSuccess, 1},
		{[]string{soa(0)}, mdns.RcodeFormatError, 1},
		{[]string{soa(1<<31 + 1)}, mdns.RcodeSuccess, 1}, // neither older nor newer
	} {
		if w.update(c.rcode, c.lines...); w.serial() != c.want {
			t.Errorf("%v: got serial number %d, want %d", c.lines, w.serial(), c.want)
		}
	}
}

// An update with one change that is refused or malformed changes nothing.
func TestUpdateAllOrNothing(t *testing.T) {
	w := newWorld(t, "max_update_records 4", "max_records 17", "max_bytes 2KB")
	raw := func(edit func(m *mdns.Msg)) *mdns.Msg {
		m := message(t, "add x 60 A 192.0.2.1")
		edit(m)
		return m
	}
	header := func(rrtype, class uint16, ttl uint32) mdns.RR {
		return &mdns.ANY{Hdr: mdns.RR_Header{Name: "a.example.org.", Rrtype: rrtype, Class: class, Ttl: ttl}}
	}
	for _, c := range []struct {
		name string
		m    *mdns.Msg
		want int
	}{
		{"outside the zone", message(t, "add x 60 A 192.0.2.1", "add www.example.net. 60 A 192.0.2.1"), mdns.RcodeNotZone},
		{"SOA below the apex", message(t, "add x 60 A 192.0.2.1", "add x 60 SOA a. b. 11 1 1 1 1"), mdns.RcodeFormatError},
		{"a type of DNSSEC", message(t, "add x 60 A 192.0.2.1", "add x 60 DS 1 13 2 "+strings.Repeat("AB", 32)), mdns.RcodeNotImplemented},
		{"too many records", message(t, "add x 60 A 192.0.2.1", "delete b", "delete c", "delete d", "delete e"), mdns.RcodeRefused},
		{"a zone with too many records", message(t, "add x 60 A 192.0.2.1", "add x 60 A 192.0.2.2", "add x 60 A 192.0.2.3", "add x 60 A 192.0.2.4"), mdns.RcodeRefused},
		{"a zone with too many bytes", message(t, "add x 60 TXT "+strings.Repeat(`"`+strings.Repeat("x", 200)+`" `, 10)), mdns.RcodeRefused},
		{"a prerequisite with a TTL", raw(func(m *mdns.Msg) { m.Answer = append(m.Answer, header(mdns.TypeA, mdns.ClassANY, 1)) }), mdns.RcodeFormatError},
		{"a prerequisite in class CH", raw(func(m *mdns.Msg) { m.Answer = append(m.Answer, header(mdns.TypeA, mdns.ClassCHAOS, 0)) }), mdns.RcodeFormatError},
		{"a prerequisite of type AXFR", raw(func(m *mdns.Msg) { m.Answer = append(m.Answer, header(mdns.TypeAXFR, mdns.ClassANY, 0)) }), mdns.RcodeFormatError},
		{"a deletion with a TTL", raw(func(m *mdns.Msg) { m.Ns = append(m.Ns, header(mdns.TypeA, mdns.ClassANY, 1)) }), mdns.RcodeFormatError},
		{"a deletion of type AXFR", raw(func(m *mdns.Msg) { m.Ns = append(m.Ns, header(mdns.TypeAXFR, mdns.ClassANY, 0)) }), mdns.RcodeFormatError},
		{"a deletion of ANY in class NONE", raw(func(m *mdns.Msg) { m.Ns = append(m.Ns, header(mdns.TypeANY, mdns.ClassNONE, 0)) }), mdns.RcodeFormatError},
		{"an addition without data", raw(func(m *mdns.Msg) { m.Ns = append(m.Ns, header(mdns.TypeA, mdns.ClassINET, 60)) }), mdns.RcodeFormatError},
		{"an addition of type ANY", raw(func(m *mdns.Msg) { m.Ns = append(m.Ns, header(mdns.TypeANY, mdns.ClassINET, 60)) }), mdns.RcodeFormatError},
		{"a change in class CH", raw(func(m *mdns.Msg) { m.Ns = append(m.Ns, header(mdns.TypeA, mdns.ClassCHAOS, 0)) }), mdns.RcodeFormatError},
		{"a zone section with type A", raw(func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeA }), mdns.RcodeFormatError},
		{"two zones", raw(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }), mdns.RcodeFormatError},
		{"another zone", raw(func(m *mdns.Msg) { m.Question[0].Name = "sub.example.org." }), mdns.RcodeNotAuth},
		{"a zone in class CH", raw(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }), mdns.RcodeNotAuth},
		{"a zone without a server block", raw(func(m *mdns.Msg) { m.Question[0].Name = "example.net." }), mdns.RcodeRefused},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if network == "udp" && c.m.Len() > 1000 {
				continue // UDP messages are limited
			}
			if r := w.exchange(c.m.Copy(), network, "key."); r.Rcode != c.want {
				t.Errorf("%s over %s: got %s, want %s", c.name, network, mdns.RcodeToString[r.Rcode], mdns.RcodeToString[c.want])
			}
		}
		w.expect("x", "A", "NXDOMAIN")
	}
	if got := w.serial(); got != 10 {
		t.Errorf("got serial number %d, want 10", got)
	}
}

// A key changes what a line allow permits. Without a valid signature nothing does.
func TestPermissions(t *testing.T) {
	w := newWorld(t, "allow narrow. @ NS", "allow narrow. c.example.org. ANY")
	for _, c := range []struct {
		key, line string
		want      int
	}{
		{"", "add a 60 A 192.0.2.9", mdns.RcodeRefused},
		{"other.", "add a 60 A 192.0.2.9", mdns.RcodeRefused},
		{"unknown.", "add a 60 A 192.0.2.9", mdns.RcodeNotAuth},
		{"narrow.", "add a 60 TXT x", mdns.RcodeRefused},
		{"narrow.", "add b 60 A 192.0.2.9", mdns.RcodeRefused},
		{"narrow.", "delete a", mdns.RcodeRefused},
		{"narrow.", "yxdomain none", mdns.RcodeNameError},
		{"narrow.", "add c 60 A 192.0.2.9", mdns.RcodeRefused},
		{"narrow.", "delete c", mdns.RcodeSuccess},
		{"narrow.", "add @ 60 NS ns3.example.org.", mdns.RcodeSuccess},
		{"NARROW.", "add A 60 A 192.0.2.9", mdns.RcodeSuccess},
		{"key.", "delete a", mdns.RcodeSuccess},
	} {
		if r := w.exchange(message(t, c.line), "tcp", c.key); r.Rcode != c.want {
			t.Errorf("key %q, %s: got %s, want %s", c.key, c.line, mdns.RcodeToString[r.Rcode], mdns.RcodeToString[c.want])
		}
	}
	w.expect("a", "TXT", "NXDOMAIN")
	w.expect("@", "NS", "60 ns.example.org., 60 ns2.example.org., 60 ns3.example.org.")
}

// Lines of acl apply to updates.
func TestUpdateACL(t *testing.T) {
	for _, action := range []string{"block", "filter"} {
		w := newWorld(t, "+acl {\n "+action+" net 127.0.0.1\n}")
		if r := w.exchange(message(t, "add x 60 A 192.0.2.1"), "udp", "key."); r.Rcode != mdns.RcodeRefused {
			t.Errorf("%s: got %v, want REFUSED", action, r)
		}
		w.text = w.block("")
		w.start()
		w.expect("x", "A", "NXDOMAIN")
	}
}

// The zone is answered as that of the directive file, before and after an update.
func TestAnswers(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.expect("x.wild", "TXT", `60 "wild"`)
		w.expect("none", "A", "NXDOMAIN")
		w.expect("a", "MX", "NOERROR")
		w.expect("alias", "A", "60 192.0.2.1, 60 192.0.2.2, 60 a.example.org.")
		r := w.exchange(new(mdns.Msg).SetQuestion("x.sub.example.org.", mdns.TypeA), "udp", "")
		if r.Authoritative || len(r.Ns) != 1 || len(r.Extra) != 1 {
			t.Errorf("got %v, want a referral with glue", r)
		}
		r = w.exchange(new(mdns.Msg).SetQuestion("none.example.org.", mdns.TypeA), "udp", "")
		if len(r.Ns) != 1 || r.Ns[0].Header().Rrtype != mdns.TypeSOA || r.Ns[0].Header().Ttl != 30 {
			t.Errorf("got %v, want the SOA record with TTL 30", r)
		}
		w.update(mdns.RcodeSuccess, "add other 60 A 192.0.2.1")
	}
}
