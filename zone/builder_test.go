package zone_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

func TestBuilderErrors(t *testing.T) {
	for _, c := range []struct{ before, text, want string }{
		{"a CNAME b", "a A 192.0.2.1", "a.example.org.: A record beside a CNAME"},
		{"a A 192.0.2.1", "A CNAME b", "a.example.org.: A record beside a CNAME"},
		{"a CNAME b", "a CNAME c", "a.example.org.: a second CNAME record"},
		{"a DNAME b", "a DNAME c", "a.example.org.: a second DNAME record"},
		{"@ SOA a b 1 2 3 4 5", "@ SOA a b 2 2 3 4 5", "example.org.: a second SOA record"},
		{"@ A 192.0.2.1", "a SOA a b 2 2 3 4 5", "a.example.org.: SOA record below the zone's name example.org."},
		{"@ A 192.0.2.1", "example.net. A 192.0.2.1", "example.net.: out of zone example.org."},
		{"@ A 192.0.2.1", "org. A 192.0.2.1", "org.: out of zone example.org."},
		{"@ A 192.0.2.1", "@ NSEC3PARAM 2 0 0 -", "example.org.: NSEC3PARAM: hash algorithm 2 is not supported: sign the zone with NSEC, or with NSEC3 and SHA-1"},
		{"@ A 192.0.2.1", "@ NSEC3PARAM 1 0 51 aabb", "example.org.: NSEC3PARAM: 51 iterations, at most 50 are allowed: sign the zone with 0 iterations"},
		{"@ A 192.0.2.1", "x NSEC3 1 1 0 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A", "x.example.org.: the first label of an NSEC3 record's owner name must be a hash, and the rest the zone's name"},
		{"@ A 192.0.2.1", "2t7b4g4vsa5smi47k61mv5bv1a22bojr.x NSEC3 1 1 0 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A", "2t7b4g4vsa5smi47k61mv5bv1a22bojr.x.example.org.: the first label of an NSEC3 record's owner name must be a hash, and the rest the zone's name"},
		{"@ A 192.0.2.1", "2T7B4G4vsa5smi47k61mv5bv1a22bojr NSEC3 1 1 0 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A", ""},
		{"@ A 192.0.2.1", `a TYPE46 \# 4 01020304`, "a.example.org.: malformed RRSIG record"},
		{"@ SOA a b 1 2 3 4 5", "@ CNAME a", "example.org.: SOA record beside a CNAME"},
		{"a CNAME b", "a CNAME b", ""},
		{"a CNAME b", "a NSEC c CNAME", ""},
		{"a CNAME b", "a RRSIG CNAME 13 3 60 20261121142109 20261121122109 55508 @ AAAA", ""},
		{"a NSEC c CNAME", "a CNAME b", ""},
	} {
		b := zone.NewBuilder("\x07example\x03org\x00")
		var err error
		for _, text := range []string{c.before, c.text} {
			if err != nil {
				t.Fatalf("%s: error %v", c.before, err)
			}
			r, parsed := zonefile.ParseRecord(text, "\x07example\x03org\x00", 60)
			if parsed != nil && !strings.Contains(text, "TYPE46") {
				t.Fatalf("%s: error %v", text, parsed)
			} else if parsed != nil {
				r = zonefile.Record{Spelled: "\x01a\x07example\x03org\x00", Type: wire.TypeRRSIG, RData: "\x00\x01"}
			}
			err = b.Add(r.Spelled, r.Type, r.TTL, r.RData)
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || errors.Is(err, zone.ErrOutOfZone) != strings.Contains(c.want, "out of zone") || errors.Is(err, zone.ErrCNAMEConflict) != strings.Contains(c.want, "beside a") {
			t.Errorf("%s, then %s: got error %q, want %q (and ErrOutOfZone or ErrCNAMEConflict to match)", c.before, c.text, got, c.want)
		}
	}
}

// All records of an RRset get the smallest TTL, and duplicates are ignored.
func TestRRsetTTL(t *testing.T) {
	z := read(t, "z.", "a.z. 60 A 192.0.2.1\na.z. 30 A 192.0.2.2\na.z. 90 A 192.0.2.1\n", nil)
	r := ask(t, z, "a.z.", dns.TypeA, false)
	if len(r.Answer) != 2 || r.Answer[0].Header().Ttl != 30 || r.Answer[1].Header().Ttl != 30 {
		t.Errorf("a.z. A: got\n%s\nwant two records with TTL 30", r)
	}
}

// A TTL with the highest bit is zero (RFC 2181 §8).
func TestTTLWithHighestBitIsZero(t *testing.T) {
	for ttl, want := range map[uint32]uint32{0: 0, 60: 60, 1<<31 - 1: 1<<31 - 1, 1 << 31: 0, 1<<31 + 60: 0, 1<<32 - 1: 0} {
		b := zone.NewBuilder("\x01z\x00")
		if err := b.Add("\x01a\x01z\x00", wire.TypeA, ttl, "\xc0\x00\x02\x01"); err != nil {
			t.Fatal(err)
		}
		r := ask(t, b.Zone(), "a.z.", dns.TypeA, false)
		if len(r.Answer) != 1 || r.Answer[0].Header().Ttl != want {
			t.Errorf("a.z. A with TTL %d: got\n%s\nwant a record with TTL %d", ttl, r, want)
		}
	}
}

// Negative answers of a zone without a SOA record are empty.
func TestZoneWithoutSOA(t *testing.T) {
	z := read(t, "z.", "a.z. 60 A 192.0.2.1\n", nil)
	if serial, ok := z.Serial(); ok {
		t.Errorf("Serial() = %d, true; want false", serial)
	}
	if r := ask(t, z, "b.z.", dns.TypeA, true); r.RCode != wire.NXDomain || !r.Missing || len(r.Ns) > 0 {
		t.Errorf("b.z. A: got Missing %v and\n%s\nwant NXDOMAIN without records", r.Missing, r)
	}
}

func TestSerial(t *testing.T) {
	z := read(t, "z.", "z. 60 SOA a. b. 4294967295 2 3 4 5\n", nil)
	if serial, ok := z.Serial(); serial != 1<<32-1 || !ok {
		t.Errorf("Serial() = %d, %v; want 4294967295, true", serial, ok)
	}
	if z.Origin() != "\x01z\x00" {
		t.Errorf("Origin() = %s, want z.", z.Origin())
	}
}

// Lookup stops in a long CNAME chain and returns the next target.
func TestLookupLongChain(t *testing.T) {
	text := "z. 60 SOA a. b. 1 2 3 4 5\n"
	for _, c := range "abcdefghijkl" {
		text += string(c) + ".z. 60 CNAME " + string(c+1) + ".z.\n"
	}
	r := ask(t, read(t, "z.", text, nil), "a.z.", dns.TypeA, false)
	if len(r.Answer) != 8 || string(r.Target) != "\x01i\x01z\x00" || !r.AA || r.RCode != 0 {
		t.Errorf("a.z. A: got target %q and\n%s\nwant target i.z. after 8 CNAME records", r.Target, r)
	}
}

// No Lookup allocates.
func TestLookupAllocations(t *testing.T) {
	s := newSigner(t, "z.")
	text, _ := s.sign(signedZone)
	z := read(t, "z.", text, nil)
	buf := make([]byte, 0, 8192)
	for _, name := range []string{"a.z.", "alias.z.", "no.z.", "x.y.w.z.", "www.sub.z.", "x.old.z.", "x.walias.z.", "ent.z."} {
		for _, do := range []bool{false, true} {
			owner, err := wire.ParseName(name)
			if err != nil {
				t.Fatal(err)
			}
			packet := wire.AppendRequest(nil, 0, 0, []byte(owner), wire.TypeMX)
			var r wire.Request
			r.Parse(packet)
			r.DO = do
			var a wire.Answer
			if n := testing.AllocsPerRun(100, func() {
				a.Reset(buf, r.Question(packet))
				z.Lookup(&r, &a, zone.Scope{})
			}); n != 0 {
				t.Errorf("%s MX, DO %v: got %v allocations, want 0", name, do, n)
			}
			if a.Empty() {
				t.Errorf("%s MX, DO %v: got an empty answer, want records", name, do)
			}
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	z := read(b, "z.", signedZone, nil)
	for _, name := range []string{"a.z.", "no.z.", "x.w.z.", "www.sub.z.", "alias.z."} {
		b.Run(name, func(b *testing.B) {
			owner, err := wire.ParseName(name)
			if err != nil {
				b.Fatal(err)
			}
			packet := wire.AppendRequest(nil, 0, 0, []byte(owner), wire.TypeA)
			var r wire.Request
			r.Parse(packet)
			var a wire.Answer
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				a.Reset(buf, r.Question(packet))
				z.Lookup(&r, &a, zone.Scope{})
			}
		})
	}
}
