package zone_test

import (
	"testing"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Signatures are no set of their own, but RRSIG is answered with them, and never with an alias's target.
func TestExplainRRSIG(t *testing.T) {
	const sig = " 5 2 60 20300101000000 20200101000000 1 z. AAAA"
	z := addAll(t, zone.NewBuilder("\x01z\x00"), []string{
		"z. 60 SOA ns.z. host.z. 1 1 1 1 1", "s.z. 60 A 192.0.2.1", "s.z. 60 RRSIG A" + sig, "*.w.z. 60 A 192.0.2.1", "*.w.z. 60 RRSIG A" + sig,
		"plain.z. 60 A 192.0.2.1", "alias.z. 60 CNAME s.z.", "signed.z. 60 CNAME s.z.", "signed.z. 60 RRSIG CNAME" + sig,
	})
	for text, want := range map[string]string{
		"s.z.":      "the name has RRSIG records",
		"signed.z.": "the name has RRSIG records",
		"x.w.z.":    "the name does not exist, and the wildcard *.w.z. applies: it has RRSIG records",
		"plain.z.":  "the name has no RRSIG records, only A",
		"alias.z.":  "the name has no RRSIG records, only CNAME",
	} {
		name, err := wire.ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := z.Explain([]byte(name), wire.TypeRRSIG, nil); got[0] != want {
			t.Errorf("%s RRSIG: got %q, want %q", text, got[0], want)
		}
	}
}

// The wildcard of a name is the source of synthesis, and there is none for names that exist, or are at or
// below a delegation or a DNAME record.
func TestZoneMetadata(t *testing.T) {
	z := addAll(t, zone.NewBuilder("\x01z\x00"), []string{
		"z. 60 SOA ns.z. host.z. 1 1 1 1 1", "*.w.z. 60 A 192.0.2.1", "a.w.z. 60 A 192.0.2.2", "cut.z. 60 NS ns.example.", "*.cut.z. 60 A 192.0.2.3",
		"d.z. 60 DNAME other.example.", "*.d.z. 60 A 192.0.2.4",
	})
	for text, want := range map[string]string{
		"b.w.z.": "*.w.z.", "x.b.w.z.": "*.w.z.", "a.w.z.": "", "x.a.w.z.": "", "w.z.": "", "cut.z.": "", "x.cut.z.": "",
		"d.z.": "", "x.d.z.": "", "no.z.": "", "z.": "",
	} {
		name, err := wire.ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := z.Metadata([]byte(name), "zone/wildcard"); got != want || ok != (want != "") {
			t.Errorf("zone/wildcard of %s: got %q, %t; want %q", text, got, ok, want)
		}
		if got, ok := z.Metadata([]byte(name), "zone/other"); ok {
			t.Errorf("zone/other of %s: got %q, want none", text, got)
		}
	}
}
