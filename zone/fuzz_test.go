package zone_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

// Every answer of a zone with the records of any zone file consists of well-formed
// records.
func FuzzZone(f *testing.F) {
	f.Add(signedZone, "a.z.")
	f.Add("z. 60 SOA a. b. 1 2 3 4 5\n*.z. 5 DNAME z.\n", "x.y.z.")
	f.Add("z. 60 MX \\# 2 0001\nz. 60 TYPE39 \\# 1 00\n", "z.")
	f.Add("$GENERATE 1-5 a$.z. 5 CNAME a${1}.z.\n", "a1.z.")
	file := filepath.Join(f.TempDir(), "db")
	f.Fuzz(func(t *testing.T, text, name string) {
		if strings.Contains(strings.ToUpper(text), "$INCLUDE") || strings.Contains(strings.ToUpper(text), "$GENERATE") && len(text) > 60 {
			return
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names := []string{"z.", name}
		b := zone.NewBuilder("\x01z\x00")
		if _, err := zonefile.Read(file, "\x01z\x00", func(r zonefile.Record) error {
			if b.Add(r.Spelled, r.Type, r.TTL, r.RData) == nil && len(names) < 20 {
				names = append(names, r.Owner.String())
				if len(r.Spelled) < 200 {
					names = append(names, "no."+r.Owner.String())
				}
			}
			return nil
		}); err != nil {
			return
		}
		z := b.Zone()
		for _, name := range names {
			if n, err := wire.ParseName(name); err != nil || !n.Within("\x01z\x00") {
				continue
			}
			for _, qtype := range []uint16{dns.TypeA, dns.TypeMX, dns.TypeANY, dns.TypeDS, dns.TypeNS} {
				checkAnswer(t, z, name, qtype)
			}
		}
	})
}

// checkAnswer checks that the answer consists of as many records as it counts.
func checkAnswer(t *testing.T, z *zone.Zone, name string, qtype uint16) {
	owner, _ := wire.ParseName(name)
	var r wire.Request
	packet := wire.AppendRequest(nil, 0, 0, []byte(owner), wire.Type(qtype))
	r.Parse(packet)
	r.DO = true
	var a wire.Answer
	a.Reset(nil, r.Question(packet))
	z.Lookup(&r, &a, zone.Scope{})
	n, off := 0, a.RecordsOffset()
	for s, count := range a.Count {
		for range count {
			rec, ok := wire.ReadRecord(a.Buf, off)
			if !ok {
				t.Fatalf("%s %s: section %d: got a malformed record at offset %d, want %v records in the sections: %x", name, dns.Type(qtype), s, off, a.Count, a.Buf)
			}
			off = rec.Next
			n++
		}
	}
	if off != len(a.Buf) {
		t.Fatalf("%s %s: got %d bytes after %d records, want 0: %x", name, dns.Type(qtype), len(a.Buf)-off, n, a.Buf)
	}
}
