package forward

import (
	"fmt"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Records of names in zones of this server's own data are dropped, unless the queried
// name is in the zone. A CNAME record that leads there is the last one.
func TestSelectRecordsOwnZones(t *testing.T) {
	zone, _ := wire.ParseName("own.test.")
	for name, c := range map[string]struct {
		name    string
		qtype   uint16
		records []string
		want    string // the records that are kept
		target  string
	}{
		"CNAME into the zone": {"a.example.", mdns.TypeA,
			[]string{"b.OWN.test. 60 IN A 192.0.2.1", "c.example. 60 IN CNAME B.own.test.", "a.example. 60 IN CNAME c.example."},
			"a.example.CNAME c.example.CNAME", "B.own.test."},
		"CNAME into the zone and out of it": {"a.example.", mdns.TypeA,
			[]string{"a.example. 60 IN CNAME b.own.test.", "b.own.test. 60 IN CNAME c.example.", "c.example. 60 IN A 192.0.2.1"},
			"a.example.CNAME", "b.own.test."},
		"CNAME into the zone and back to the query name": {"a.example.", mdns.TypeA,
			[]string{"a.example. 60 IN CNAME b.own.test.", "b.own.test. 60 IN CNAME a.example."},
			"a.example.CNAME", "b.own.test."},
		"DNAME into the zone": {"x.a.example.", mdns.TypeA,
			[]string{"a.example. 60 IN DNAME own.test.", "x.a.example. 60 IN CNAME x.own.test.", "x.own.test. 60 IN A 192.0.2.1"},
			"a.example.DNAME x.a.example.CNAME", "x.own.test."},
		"negative answer for a name in the zone": {"a.example.", mdns.TypeA,
			[]string{"a.example. 60 IN CNAME b.own.test.", "--", ". 60 IN SOA ns. host. 1 2 3 4 5"},
			"a.example.CNAME", "b.own.test."},
		"proofs of a wildcard CNAME, with DO": {"a.example.", mdns.TypeA, []string{
			"a.example. 60 IN CNAME c.test.", signature("a.example.", "CNAME", 1, "example."),
			"c.test. 60 IN CNAME b.own.test.", signature("c.test.", "CNAME", 2, "test."), "b.own.test. 60 IN A 192.0.2.1", "--",
			"0.example. 60 IN NSEC z.example. A RRSIG NSEC", signature("0.example.", "NSEC", 2, "example."),
			"1.example. 60 IN NSEC3 1 0 0 - 9P4L77MN1TK0ERTK9PLUNQQ1V9QB3D7P A", signature("1.example.", "NSEC3", 2, "example."),
			"example. 60 IN SOA ns. host. 1 2 3 4 5", signature("example.", "SOA", 1, "example."),
			"0.test. 60 IN NSEC z.test. A RRSIG NSEC", signature("0.test.", "NSEC", 2, "test."),
			"a.own.test. 60 IN NSEC z.test. A RRSIG NSEC", signature("a.own.test.", "NSEC", 3, "example."),
			"x.example. 60 IN NSEC z.example. A RRSIG NSEC"},
			"a.example.CNAME a.example.RRSIG c.test.CNAME c.test.RRSIG 0.example.NSEC 0.example.RRSIG 1.example.NSEC3 1.example.RRSIG", "b.own.test."},
		"proofs of a wildcard CNAME, without DO": {"a.example.", mdns.TypeA, []string{
			"a.example. 60 IN CNAME b.own.test.", signature("a.example.", "CNAME", 1, "example."), "--",
			"0.example. 60 IN NSEC z.example. A RRSIG NSEC", signature("0.example.", "NSEC", 2, "example.")},
			"a.example.CNAME", "b.own.test."},
		"query for the CNAME record": {"a.example.", mdns.TypeCNAME,
			[]string{"a.example. 60 IN CNAME b.own.test.", "b.own.test. 60 IN CNAME c.example."},
			"a.example.CNAME", ""},
		"query in the zone": {"a.own.test.", mdns.TypeA,
			[]string{"a.own.test. 60 IN CNAME b.own.test.", "b.own.test. 60 IN A 192.0.2.1"},
			"a.own.test.CNAME b.own.test.A", ""},
		"additional records": {"example.", mdns.TypeMX,
			[]string{"example. 60 IN MX 1 b.own.test.", "example. 60 IN MX 1 b.example.", "--", "--", "b.own.test. 60 IN A 192.0.2.1", "b.example. 60 IN A 192.0.2.2"},
			"example.MX example.MX b.example.A", ""},
		"addresses of name servers": {"a.example.", mdns.TypeA,
			[]string{"a.example. 60 IN A 192.0.2.1", "--", ". 60 IN NS b.own.test.", "--", "b.own.test. 60 IN A 192.0.2.2"},
			"a.example.A .NS", ""},
	} {
		packet, question := packReply(t, c.name, c.qtype, c.records...)
		p := parser{ownZones: new(dns.OwnZones)}
		p.ownZones.Fixed.Set(zone, struct{}{})
		r, why := p.parse(packet, question, strings.HasSuffix(name, "with DO"))
		if why != valid {
			t.Errorf("%s: got %q, want a valid reply", name, why)
			continue
		}
		var m mdns.Msg
		if err := m.Unpack(replyMessage(r, question)); err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, section := range [][]mdns.RR{m.Answer, m.Ns, m.Extra} {
			for _, record := range section {
				kept = append(kept, record.Header().Name+mdns.TypeToString[record.Header().Rrtype])
			}
		}
		target := ""
		if r.target != nil {
			target = wire.Name(r.target).String()
		}
		if got := strings.Join(kept, " "); got != c.want || target != c.target {
			t.Errorf("%s: got records %q, target %q; want %q, %q", name, got, target, c.want, c.target)
		}
	}
}

// signature returns an RRSIG record for an owner name. labels is less than the number of
// labels in owner if the record is from a wildcard.
func signature(owner, covered string, labels int, signer string) string {
	return fmt.Sprintf("%s 60 IN RRSIG %s 8 %d 60 20300101000000 20200101000000 1 %s AAAA", owner, covered, labels, signer)
}

// Clients of servers with different zones do not share a reply.
func TestRequestEqualOwnZones(t *testing.T) {
	newRequest := func(zones ...wire.Name) *request {
		r := &request{question: questionOf("\x01a\x00", wire.TypeA), ownZones: new(dns.OwnZones)}
		for _, zone := range zones {
			r.ownZones.Fixed.Set(zone, struct{}{})
		}
		return r
	}
	none, one := newRequest(), newRequest("\x01z\x00")
	if none.equal(one) || one.equal(none) || !one.equal(newRequest("\x01z\x00")) || !none.equal(&request{question: none.question}) {
		t.Errorf("equal: got %v and %v for requests with different zones, %v and %v for requests with equal zones; want false, false, true, true",
			none.equal(one), one.equal(none), one.equal(newRequest("\x01z\x00")), none.equal(&request{question: none.question}))
	}
}
