package signing

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

// readZone reads a zone file for example.org, with and without the records that Write adds.
func readZone(t testing.TB, text string) (z *zone.Zone, all []zonefile.Record) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const origin wire.Name = "\x07example\x03org\x00"
	b := zone.NewBuilder(origin)
	if _, err := zonefile.Read(path, origin, func(r zonefile.Record) error {
		all = append(all, r)
		if Replaces(r.Type) {
			return nil
		}
		// The builder has the record all the same, as it has for FuzzWrite.
		if err := b.Add(r.Spelled, r.Type, r.TTL, r.RData); !errors.Is(err, zone.ErrCNAMEConflict) {
			return err
		}
		return nil
	}); err != nil && !errors.Is(err, zone.ErrOutOfZone) {
		t.Fatalf("%v in\n%s", err, text)
	}
	return b.Zone(), all
}

const head = "$TTL 60\n@ SOA ns host 1 2 3 4 30\n@ NS ns\n"

// A signed zone has the records of the zone, and NSEC records only for names that are
// authoritative.
func TestWrite(t *testing.T) {
	public, private := newKey(t, dns.ED25519, 256)
	k, err := readKey(t, public, private)
	if err != nil {
		t.Fatal(err)
	}
	z, _ := readZone(t, head+`
B.ent A 192.0.2.1
sub NS ns.sub
sub A 192.0.2.2
ns.sub A 192.0.2.3
secure NS ns
secure DS 1 13 7 00
d DNAME b.ent
x.d A 192.0.2.4
*.w TXT "\"\\;\200" "" "b c"
*b\.c TYPE65280 \# 1 00
e 0 MX 0 .
e 30 MX 10 .
`)
	var out bytes.Buffer
	if err := Write(t.Context(), &out, z, []*Key{k}, Validity{Inception: 1, Expiration: 2}, 7); err != nil {
		t.Fatal(err)
	}
	again, all := readZone(t, out.String())
	if serial, _ := again.Serial(); serial != 7 {
		t.Errorf("got serial number %d, want 7", serial)
	}
	var got, want []string
	for r := range z.Records {
		want = append(want, string(r))
	}
	for r := range again.Records {
		got = append(got, string(r))
	}
	got, want = got[1:], want[1:] // without the SOA record
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got records %q, want %q", got, want)
	}
	nsec := map[string]string{}
	signatures := map[string]int{}
	for _, r := range all {
		switch r.Type {
		case wire.TypeNSEC:
			nsec[wire.Name(r.Spelled).String()] = r.RData
			if r.TTL != 30 {
				t.Errorf("NSEC record of %s: TTL %d, want 30", r.Owner, r.TTL)
			}
		case wire.TypeRRSIG:
			signatures[r.Owner.String()]++
		}
	}
	for name, c := range map[string]struct {
		next  wire.Name
		types []wire.Type
		sigs  int
	}{
		"example.org.":        {`\*b\.c.example.org.`, []wire.Type{2, 6, 46, 47, 48, 59, 60}, 6},
		`*b\.c.example.org.`:  {"d.example.org.", []wire.Type{46, 47, 65280}, 2},
		"d.example.org.":      {"e.example.org.", []wire.Type{39, 46, 47}, 2},
		"e.example.org.":      {"b.ent.example.org.", []wire.Type{15, 46, 47}, 2},
		"B.ent.example.org.":  {"secure.example.org.", []wire.Type{1, 46, 47}, 2},
		"secure.example.org.": {"sub.example.org.", []wire.Type{2, 43, 46, 47}, 2},
		"sub.example.org.":    {"*.w.example.org.", []wire.Type{2, 46, 47}, 1},
		"*.w.example.org.":    {"example.org.", []wire.Type{16, 46, 47}, 2},
	} {
		next, err := wire.ParseName(string(c.next))
		if err != nil {
			t.Fatal(err)
		}
		low, _ := wire.ParseName(name)
		if want := string(AppendNSEC(nil, next, c.types)); nsec[name] != want || signatures[low.String()] != c.sigs {
			t.Errorf("%s: got NSEC %q and %d signatures, want %q and %d", name, nsec[name], signatures[low.String()], want, c.sigs)
		}
		delete(nsec, name)
		delete(signatures, low.String())
	}
	if len(nsec) > 0 || len(signatures) > 0 {
		t.Errorf("got NSEC records of %q and signatures of %v, which are not authoritative", nsec, signatures)
	}
}

// A digest depends on records, TTLs and keys.
func TestDigest(t *testing.T) {
	public, private := newKey(t, dns.ED25519, 256)
	k, err := readKey(t, public, private)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, text := range []string{"", "a A 192.0.2.1\n", "a A 192.0.2.2\n", "a 61 A 192.0.2.1\n", "b A 192.0.2.1\n", "a A 192.0.2.1\na A 192.0.2.2\n"} {
		z, _ := readZone(t, head+text)
		if other := Digest(z, []*Key{k}); other != Digest(z, []*Key{k}) || seen[other] != "" || other == Digest(z, nil) {
			t.Errorf("%q: digest %s is not stable, is that of %q, or is that without keys", text, other, seen[other])
		} else {
			seen[other] = text + "."
		}
	}
}

// Every zone that can be read can be signed, and its records stay the same.
func FuzzWrite(f *testing.F) {
	public, private := newKey(f, dns.ED25519, 256)
	k, err := readKey(f, public, private)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"a TXT \"\\200\\\"\"\n", "a NS b\nb.a A 192.0.2.1\n", "a SVCB 1 . alpn=h2 port=1\n", "a TYPE1 \\# 4 00000000\n", "\\000\\.\\* LOC 1 2 3 N 4 5 6 W 7m\n", "a APL 1:10.0.0.0/8\nb HINFO \"\" \"\"\n"} {
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "db")
	f.Fuzz(func(t *testing.T, text string) {
		if bytes.ContainsAny([]byte(text), "$") || len(text) > 4000 {
			return // directives read files and make many records
		}
		if err := os.WriteFile(path, []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := zone.NewBuilder("\x07example\x03org\x00")
		if _, err := zonefile.Read(path, "\x07example\x03org\x00", func(r zonefile.Record) error {
			if !Replaces(r.Type) && r.Class == wire.ClassIN {
				_ = b.Add(r.Spelled, r.Type, r.TTL, r.RData)
			}
			return nil
		}); err != nil {
			return
		}
		z := b.Zone()
		var out bytes.Buffer
		if err := Write(t.Context(), &out, z, []*Key{k}, Validity{Inception: 1, Expiration: 2}, 1); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		again, _ := readZone(t, out.String())
		if got, want := Digest(again, nil), Digest(z, nil); got != want {
			t.Errorf("%q: other records in\n%s", text, &out)
		}
	})
}
