package zone_test

import (
	"crypto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A signer signs zones in tests.
type signer struct {
	t      *testing.T
	origin string
	key    *dns.DNSKEY
	secret crypto.Signer
}

func newSigner(t *testing.T, origin string) *signer {
	key := &dns.DNSKEY{Hdr: dns.RR_Header{Name: origin, Rrtype: dns.TypeDNSKEY, Class: 1, Ttl: 60}, Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256}
	secret, err := key.Generate(256)
	if err != nil {
		t.Fatalf("generating a key: %v", err)
	}
	return &signer{t, origin, key, secret.(crypto.Signer)}
}

// before reports whether a comes before b in canonical order (RFC 4034 §6.1).
func before(a, b string) bool { return slices.Compare(canonical(a), canonical(b)) < 0 }

// canonical returns the labels of a name from right to left.
func canonical(name string) (labels []string) {
	n, err := wire.ParseName(name)
	if err != nil {
		panic(err)
	}
	for n != wire.Root {
		labels = append(labels, string(n[1:1+n[0]]))
		n = n[1+n[0]:]
	}
	slices.Reverse(labels)
	return labels
}

// sign returns the text of a zone with NSEC records and signatures added, and the
// records without them.
func (s *signer) sign(text string) (signed string, rrs []dns.RR) {
	s.t.Helper()
	rrs = append(keep(s.t, text), s.key)
	n := &naive{s.origin, rrs}
	var names []string
	for _, rr := range rrs {
		name := rr.Header().Name
		if (n.authoritative(name) || n.cut(name) && n.authoritative(name[strings.Index(name, ".")+1:])) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	var out []dns.RR
	for i, name := range names {
		types := []uint16{dns.TypeRRSIG, dns.TypeNSEC}
		sets := map[uint16][]dns.RR{}
		for _, rr := range n.at(name, dns.TypeANY) {
			t := rr.Header().Rrtype
			if n.cut(name) && t != dns.TypeNS && t != dns.TypeDS {
				continue
			}
			if sets[t] == nil {
				types = append(types, t)
			}
			sets[t] = append(sets[t], rr)
		}
		slices.Sort(types)
		sets[dns.TypeNSEC] = []dns.RR{&dns.NSEC{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeNSEC, Class: 1, Ttl: 30}, NextDomain: names[(i+1)%len(names)], TypeBitMap: types}}
		out = append(out, sets[dns.TypeNSEC]...)
		for t, set := range sets {
			if t == dns.TypeNS && n.cut(name) {
				continue
			}
			sig := &dns.RRSIG{
				Hdr: dns.RR_Header{Ttl: set[0].Header().Ttl}, Algorithm: s.key.Algorithm, KeyTag: s.key.KeyTag(), SignerName: s.origin,
				Inception: uint32(time.Now().Unix() - 3600), Expiration: uint32(time.Now().Unix() + 3600),
			}
			if err := sig.Sign(s.secret, set); err != nil {
				s.t.Fatalf("signing %v: %v", set, err)
			}
			out = append(out, sig)
		}
	}
	out = append(rrs, out...)
	var b strings.Builder
	for _, rr := range out {
		b.WriteString(rr.String() + "\n")
	}
	return b.String(), rrs
}

// check verifies every signature of a reply, and that exactly the RRsets that must be
// signed are.
func (s *signer) check(n *naive, r reply) {
	s.t.Helper()
	for i, section := range [][]dns.RR{r.Answer, r.Ns, r.Extra} {
		type key struct {
			name string
			t    uint16
		}
		sets := map[key][]dns.RR{}
		sigs := map[key]*dns.RRSIG{}
		for _, rr := range section {
			h := rr.Header()
			if sig, ok := rr.(*dns.RRSIG); ok {
				sigs[key{h.Name, sig.TypeCovered}] = sig
			} else {
				sets[key{h.Name, h.Rrtype}] = append(sets[key{h.Name, h.Rrtype}], rr)
			}
		}
		for k, set := range sets {
			synthesized := k.t == dns.TypeCNAME && slices.ContainsFunc(section, func(rr dns.RR) bool {
				return rr.Header().Rrtype == dns.TypeDNAME && dns.IsSubDomain(rr.Header().Name, k.name) && rr.Header().Name != k.name
			})
			unsigned := synthesized || k.t == dns.TypeNS && i == 1 || i == 2 && !n.authoritative(k.name)
			sig := sigs[k]
			if unsigned {
				if sig != nil {
					s.t.Errorf("%s %s: got a signature, want none\n%s", k.name, dns.Type(k.t), r)
				}
				continue
			}
			if sig == nil {
				s.t.Errorf("%s %s: got no signature, want one\n%s", k.name, dns.Type(k.t), r)
				continue
			}
			for _, rr := range set { // the SOA record of a negative answer has another TTL
				rr.Header().Ttl = sig.OrigTtl
			}
			if err := sig.Verify(s.key, set); err != nil {
				s.t.Errorf("%s %s: got signature error %v, want a valid signature\n%s", k.name, dns.Type(k.t), err, r)
			}
		}
	}
}

// covered reports whether an NSEC record of the reply proves that name does not exist.
func covered(r reply, name string) bool {
	return slices.ContainsFunc(r.Ns, func(rr dns.RR) bool {
		nsec, ok := rr.(*dns.NSEC)
		if !ok || !before(nsec.Hdr.Name, name) {
			return false
		}
		return before(name, nsec.NextDomain) || !before(nsec.Hdr.Name, nsec.NextDomain)
	})
}

// lacks reports whether an NSEC record of the reply proves that name exists without a
// record of type t.
func lacks(r reply, name string, t uint16) bool {
	return slices.ContainsFunc(r.Ns, func(rr dns.RR) bool {
		nsec, ok := rr.(*dns.NSEC)
		if !ok {
			return false
		}
		if nsec.Hdr.Name == name {
			return !slices.Contains(nsec.TypeBitMap, t) && !slices.Contains(nsec.TypeBitMap, dns.TypeCNAME)
		}
		// The name is an empty non-terminal.
		return before(nsec.Hdr.Name, name) && dns.IsSubDomain(name, nsec.NextDomain)
	})
}

// encloser returns the closest encloser of a name.
func (n *naive) encloser(name string) string {
	for !n.exists(name) {
		name = name[strings.Index(name, ".")+1:]
	}
	return name
}

const signedZone = `$TTL 60
z. SOA a. b. 1 2 3 4 30
z. NS ns.z.
ns.z. A 192.0.2.53
a.z. A 192.0.2.1
a.z. MX 1 ns.z.
deep.ent.z. TXT "x"
*.w.z. A 192.0.2.2
*.w.z. MX 1 ns.z.
there.w.z. TXT "x"
below.*.went.z. TXT "x"
sub.z. NS ns.sub.z.
ns.sub.z. A 192.0.2.54
sec.z. NS ns.z.
sec.z. DS 1 13 2 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF
alias.z. CNAME a.z.
broken.z. CNAME no.w.z.
*.walias.z. CNAME gone.z.
old.z. DNAME w.z.
\001x.z. A 192.0.2.3
`

// Every answer of a signed zone has valid signatures and the required NSEC records.
func TestSignedZone(t *testing.T) {
	s := newSigner(t, "z.")
	text, rrs := s.sign(signedZone)
	z, n := read(t, "z.", text, nil), &naive{"z.", rrs}

	negative := func(name string, qtype uint16) {
		t.Helper()
		r := ask(t, z, name, qtype, true)
		s.check(n, r)
		last := name // the end of the CNAME chain
		for _, rr := range r.Answer {
			if c, ok := rr.(*dns.CNAME); ok {
				last = c.Target
			}
		}
		if last != name && !n.exists(name) && n.encloser(name) != "old.z." && !covered(r, name) {
			t.Errorf("%s %s: got no NSEC record that proves that the name does not exist, want one\n%s", name, dns.Type(qtype), r)
		}
		wild := "*." + n.encloser(last)
		switch {
		case r.RCode == 3 && !(covered(r, last) && covered(r, wild)):
			t.Errorf("%s %s: got no NSEC records that prove that %s and %s do not exist, want them\n%s", name, dns.Type(qtype), last, wild, r)
		case r.RCode == 0 && n.exists(last) && !lacks(r, last, qtype):
			t.Errorf("%s %s: got no NSEC record that proves that %s lacks the type, want one\n%s", name, dns.Type(qtype), last, r)
		case r.RCode == 0 && !n.exists(last) && !(covered(r, last) && lacks(r, wild, qtype)):
			t.Errorf("%s %s: got no NSEC records that prove that %s lacks the type and applies, want them\n%s", name, dns.Type(qtype), wild, r)
		}
	}
	for name, qtype := range map[string]uint16{
		"no.z.": dns.TypeA, "zzz.z.": dns.TypeA, "a.a.z.": dns.TypeA, "z.": dns.TypeA, "a.z.": dns.TypeAAAA, "ent.z.": dns.TypeA,
		"no.ent.z.": dns.TypeA, "w.z.": dns.TypeA, "x.w.z.": dns.TypeAAAA, "x.y.w.z.": dns.TypeTXT, "no.there.w.z.": dns.TypeA,
		"x.went.z.": dns.TypeA, "x.y.went.z.": dns.TypeTXT, "*.went.z.": dns.TypeTXT, "went.z.": dns.TypeTXT, "x.*.went.z.": dns.TypeTXT,
		"sub.z.": dns.TypeDS, "alias.z.": dns.TypeTXT, "x.walias.z.": dns.TypeA, "x.y.walias.z.": dns.TypeA, "x.old.z.": dns.TypeTXT,
		"\\000.z.": dns.TypeA, "\\001.z.": dns.TypeA, "\\001x.z.": dns.TypeTXT, "-.z.": dns.TypeA, "old.z.": dns.TypeA,
	} {
		negative(name, qtype)
	}

	for name, qtype := range map[string]uint16{
		"z.": dns.TypeSOA, "a.z.": dns.TypeMX, "alias.z.": dns.TypeA, "there.w.z.": dns.TypeTXT, "sec.z.": dns.TypeDS,
	} {
		r := ask(t, z, name, qtype, true)
		s.check(n, r)
		if len(r.Answer) < 2 || len(r.Ns) > 0 {
			t.Errorf("%s %s: got\n%s\nwant a signed answer without an authority section", name, dns.Type(qtype), r)
		}
	}
	for _, name := range []string{"x.w.z.", "x.y.w.z.", "broken.z.", "x.old.z."} {
		r := ask(t, z, name, dns.TypeMX, true)
		s.check(n, r)
		last := r.Answer[len(r.Answer)-1].Header().Name
		if !covered(r, last) || r.RCode != 0 {
			t.Errorf("%s MX: got\n%s\nwant NOERROR with an NSEC record that proves that %s does not exist", name, r, last)
		}
	}
	r := ask(t, z, "www.sub.z.", dns.TypeA, true)
	if s.check(n, r); r.AA || !lacks(r, "sub.z.", dns.TypeDS) {
		t.Errorf("www.sub.z. A: got\n%s\nwant a referral with an NSEC record that proves that there is no DS record", r)
	}
	r = ask(t, z, "www.sec.z.", dns.TypeA, true)
	if s.check(n, r); r.AA || !slices.ContainsFunc(r.Ns, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeDS }) || lacks(r, "sec.z.", dns.TypeDS) {
		t.Errorf("www.sec.z. A: got\n%s\nwant a referral with a DS record", r)
	}
}

// Without DO, answers have signatures and NSEC records only if the query type requires
// them.
func TestSignedZoneWithoutDO(t *testing.T) {
	s := newSigner(t, "z.")
	text, rrs := s.sign(signedZone)
	z, n := read(t, "z.", text, nil), &naive{"z.", rrs}
	for _, name := range []string{"z.", "a.z.", "x.w.z.", "no.z.", "ent.z.", "www.sub.z.", "www.sec.z.", "broken.z.", "x.old.z."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeMX, dns.TypeTXT} {
			if got, want := ask(t, z, name, qtype, false).text(), n.ask(name, qtype); got != want {
				t.Errorf("%s %s\ngot\n%swant\n%s", name, dns.Type(qtype), got, want)
			}
		}
	}
	if r := ask(t, z, "a.z.", dns.TypeRRSIG, false); len(r.Answer) != 3 {
		t.Errorf("a.z. RRSIG: got %d signatures, want 3\n%s", len(r.Answer), r)
	}
	if r := ask(t, z, "a.z.", dns.TypeANY, false); len(r.Answer) != 6 {
		t.Errorf("a.z. ANY: got %d records, want three and their signatures\n%s", len(r.Answer), r)
	}
	if r := ask(t, z, "ent.z.", dns.TypeRRSIG, false); len(r.Answer) != 0 || len(r.Ns) != 1 {
		t.Errorf("ent.z. RRSIG: got\n%s\nwant a negative answer", r)
	}
	if r := ask(t, z, "a.z.", dns.TypeNSEC, false); len(r.Answer) != 1 {
		t.Errorf("a.z. NSEC: got %d records, want 1\n%s", len(r.Answer), r)
	}
}
