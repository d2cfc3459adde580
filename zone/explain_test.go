package zone_test

import (
	"testing"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

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
