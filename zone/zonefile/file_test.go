package zonefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

const origin wire.Name = "\x07example\x03org\x00"

// write creates a directory with files, given as pairs of name and text.
func write(t *testing.T, files ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(folder, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestReadWireForm(t *testing.T) {
	folder := write(t, "db", `
$TTL 300
@ IN SOA ns Host\.Master ( 7 ; serial; (not a parenthesis
      3600 600
      86400 60 )
	NS	ns
WWW 60 A 192.0.2.1
txt TXT "a;b" "(" \"x
$ORIGIN sub.example.org.
mx MX 10 mail
odd TYPE4711 \# 3 0a0b0c
odd CLASS1 TYPE1 \# 4 c0000201
$GENERATE 1-3/2 host-$ 5 A 10.0.0.$
$generate 4-4 host-$ IN A 10.0.0.$
$GENERATE 5-5 host-$ 1h A 10.0.0.$
`)
	want := []string{
		`example.org. 300 SOA 026e73076578616d706c65036f7267000b486f73742e4d6173746572076578616d706c65036f726700000000070000` + `0e10000002580001518000000` + `03c`,
		`example.org. 300 NS 026e73076578616d706c65036f726700`,
		`WWW.example.org. 60 A c0000201`,
		`txt.example.org. 300 TXT 03613b6201280222` + `78`,
		`mx.sub.example.org. 300 MX 000a046d61696c03737562076578616d706c65036f726700`,
		`odd.sub.example.org. 300 TYPE4711 0a0b0c`,
		`odd.sub.example.org. 300 A c0000201`,
		`host-1.sub.example.org. 5 A 0a000001`,
		`host-3.sub.example.org. 5 A 0a000003`,
		`host-4.sub.example.org. 300 A 0a000004`,
		`host-5.sub.example.org. 3600 A 0a000005`,
	}
	var got []string
	var lines []int
	_, err := Read(filepath.Join(folder, "db"), origin, func(r Record) error {
		got = append(got, fmt.Sprintf("%s %d %s %x", wire.AppendText(nil, []byte(r.Spelled)), r.TTL, r.Type, r.RData))
		lines = append(lines, r.Line)
		if want := filepath.Join(folder, "db"); r.File != want {
			t.Errorf("%s: got File %s, want %s", r.Spelled, r.File, want)
		}
		if got, want := r.Errorf("no").Error(), fmt.Sprintf("%s:%d: no", r.File, r.Line); got != want {
			t.Errorf("%s: got error %q, want %q", r.Spelled, got, want)
		}
		if want := wire.Lower(r.Spelled); r.Owner != want || r.Class != wire.ClassIN {
			t.Errorf("%s: got owner %q, class %s; want %q, IN", r.Spelled, r.Owner, r.Class, want)
		}
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("error %v\ngot\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []int{3, 6, 7, 8, 10, 11, 12, 13, 13, 14, 15}; !slices.Equal(lines, want) {
		t.Errorf("got lines %v, want %v", lines, want)
	}
}

// Paths of included files are relative to the file that includes them, $ORIGIN in an
// included file does not apply to the file that includes it, and Read returns all files.
func TestReadIncludes(t *testing.T) {
	folder := write(t,
		"db", "$TTL 5\n$INCLUDE parts/one sub\nlast A 192.0.2.9\n",
		"parts/one", "x A 192.0.2.1\n$INCLUDE two\n$ORIGIN elsewhere.\n",
		"parts/two", "y A 192.0.2.2\n$INCLUDE "+"ABSOLUTE"+"\n")
	absolute := filepath.Join(write(t, "three", "z A 192.0.2.3\n"), "three")
	two := filepath.Join(folder, "parts/two")
	text, _ := os.ReadFile(two)
	if err := os.WriteFile(two, []byte(strings.Replace(string(text), "ABSOLUTE", absolute, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	var got []string
	files, err := Read(filepath.Join(folder, "db"), origin, func(r Record) error {
		got = append(got, r.Owner.String())
		return nil
	})
	want := []string{"x.sub.example.org.", "y.sub.example.org.", "z.sub.example.org.", "last.example.org."}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Read: got error %v, owners %q, want %q", err, got, want)
	}
	var paths []string
	for _, f := range files {
		if f.Info == nil {
			t.Errorf("%s: got nil Info, want that of the file", f.Path)
		}
		paths = append(paths, f.Path)
	}
	wantFiles := []string{filepath.Join(folder, "db"), filepath.Join(folder, "parts/one"), two, absolute}
	if !slices.Equal(paths, wantFiles) {
		t.Errorf("got files %q, want %q", paths, wantFiles)
	}
}

func TestReadErrors(t *testing.T) {
	good := "$TTL 5\n@ SOA a b 1 2 3 4 5\n"
	for _, c := range []struct{ name, text, want string }{
		{"address", good + "a A 192.0.2.300\n", `db:3: bad A A: "192.0.2.300"`},
		{"second line", good + "\n; comment (\nm MX ( 10 ; ten\n  bad..name )\n", `db:6: bad MX Mx: "bad..name"`},
		{"no TTL", "a A 192.0.2.1\n", `db:1: missing TTL with no previous value: "A"`},
		{"no type", good + "a 192.0.2.1\n", `db:3: not a TTL: "192.0.2.1"`},
		{"no data", good + "a A 192.0.2.1\n\nb A\n", `db:5: A record without data`},
		{"no data of several lines", good + "b AAAA (\n)\nc A 192.0.2.1\n", `db:4: bad AAAA AAAA: "\n"`},
		{"no owner", "$TTL 5\n A 192.0.2.1\n", `db:2: A record without an owner name`},
		{"query type", good + "a TYPE255 \\# 0\n", `db:3: ANY is not a record type`},
		{"base64", good + "\n\na DNSKEY 256 3 8 ====\n", `db:5: DNSKEY record: illegal base64 data at input byte 0`},
		{"TTL", good + "a 4294967295 A 192.0.2.1\n", `db:3: TTL 4294967295: at most 2147483647 is allowed`},
		{"label", good + strings.Repeat("x", 64) + " A 192.0.2.1\n", `db:3: bad owner name: "` + strings.Repeat("x", 64) + `"`},
		{"unclosed", good + "a TXT (\"x\"\n", `db:3: bad TXT Txt: "unbalanced brace"`},
		{"generate", good + "\n$GENERATE 1-2 a$ A 10.0.0.300\n\n", `db:4: bad A A: "10.0.0.300"`},
		{"range", good + "$GENERATE 1-99999 a$ A 10.0.0.1\n", `db:3: bad range in $GENERATE range: "1-99999"`},
		{"unknown file", good + "$INCLUDE gone\n", "db:3: failed to open `gone'"},
		{"included", good + "$INCLUDE part\n", `part:2: bad A A: "x"`},
		{"loop", good + "$INCLUDE loop\n", `loop:1: too deeply nested $INCLUDE: "loop"`},
		{"refused", good + "; note\nrefused A 192.0.2.1\n", `db:4: no, thanks`},
		{"directive", good + "$FROB 1\n", `db:3: no blank before TTL: "\n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := write(t, "db", c.text, "part", "a A 192.0.2.1\nb A x\n", "loop", "$INCLUDE loop\n")
			_, err := Read(filepath.Join(folder, "db"), origin, func(r Record) error {
				if strings.HasPrefix(r.Spelled, "\x07refused") {
					return fmt.Errorf("no, thanks")
				}
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), folder+"/"+c.want) {
				t.Errorf("%s\ngot error %v\nwant      %s/%s", c.text, err, folder, c.want)
			}
		})
	}
}

func TestReadMissingFile(t *testing.T) {
	files, err := Read("gone/db", origin, nil)
	if err == nil || err.Error() != "gone/db: no such file or directory" || len(files) != 1 || files[0].Info != nil {
		t.Errorf("Read(gone/db): got error %v, files %v; want \"gone/db: no such file or directory\" and one file without Info", err, files)
	}
}

func TestParseRecord(t *testing.T) {
	for _, c := range []struct{ text, owner, want string }{
		{"www A 192.0.2.1", "www.example.org.", "60 IN A c0000201"},
		{"\n WWW.example.org. 5 IN A 192.0.2.1 ; x\n\n", "www.example.org.", "5 IN A c0000201"},
		{"@ CH TXT hello", "example.org.", "60 CH TXT 0568656c6c6f"},
		{"a CNAME B", "a.example.org.", "60 IN CNAME 0142076578616d706c65036f726700"},
		{"a HTTPS 1 . alpn=h2", "a.example.org.", "60 IN HTTPS 000100000100030268" + "32"},
		{"a TYPE65280 \\# 0", "a.example.org.", "60 IN TYPE65280 "},
	} {
		r, err := ParseRecord(c.text, origin, 60)
		if got := fmt.Sprintf("%d %s %s %x", r.TTL, r.Class, r.Type, r.RData); err != nil || got != c.want || r.Owner.String() != c.owner {
			t.Errorf("%q: got %s %s, error %v; want %s %s", c.text, r.Owner, got, err, c.owner, c.want)
		}
	}
}

func TestParseRecordErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "want a record, got nothing"},
		{"; nothing", "want a record, got nothing"},
		{"$INCLUDE /etc/passwd", "want a record, got a directive"},
		{"a A 192.0.2.1\nb A 192.0.2.2", "want one record, got more: b.example.org.\t60\tIN\tA\t192.0.2.2"},
		{"a A x", `bad A A: "x"`},
		{"a A", "A record without data"},
		{"a FROB x", `not a TTL: "FROB"`},
	} {
		if _, err := ParseRecord(c.text, origin, 60); err == nil || err.Error() != c.want {
			t.Errorf("%q: got error %v, want %s", c.text, err, c.want)
		}
	}
}

// Numbers of zero are data.
func TestParseRecordZero(t *testing.T) {
	for _, text := range []string{"a UID 0", "a GID 0", "a EUI48 00-00-00-00-00-00", "a EUI64 00-00-00-00-00-00-00-00", "a NID 0 0000:0000:0000:0000", "a L64 0 0000:0000:0000:0000"} {
		if _, err := ParseRecord(text, origin, 60); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Text in which RDATA is not that of its type is refused.
func TestParseRecordMalformed(t *testing.T) {
	// The library leaves out what follows a name, and adds the second string of HINFO.
	repaired := map[uint16]string{5: "\x01a\x00", 13: "\x01a\x00", 15: "\x00\x01\x01a\x00"}
	for _, r := range chaintest.MalformedRecords() {
		if got, err := ParseRecord("a "+r.Text(), origin, 60); err == nil && (got.RData != repaired[r.Type] || got.RData == "") {
			t.Errorf("%s: got %x, want an error", r.Text(), got.RData)
		}
	}
	for _, text := range []string{"a DS 1 8 2 00", "a SSHFP 1 1 AB", "a TLSA 3 1 1 AB", "a ZONEMD 1 1 1 ABABABABABABABABABABABAB", `a CAA 0 a-b "x"`} {
		want := "malformed " + strings.Fields(text)[1] + " record"
		if got, err := ParseRecord(text, origin, 60); err == nil || err.Error() != want {
			t.Errorf("%s: got %x, error %v; want %s", text, got.RData, err, want)
		}
	}
}

// An owner that is the query name or an ancestor of it gets the query's spelling.
func TestRecordAppend(t *testing.T) {
	var a wire.Answer
	question := "\x03WwW\x07eXample\x03org\x00\x00\x01\x00\x01"
	a.Reset(nil, []byte(question))
	for _, text := range []string{"www A 192.0.2.1", "@ A 192.0.2.2", "Other A 192.0.2.3", "www CH TXT x"} {
		r, err := ParseRecord(text, origin, 60)
		if err != nil {
			t.Fatalf("%s: error %v", text, err)
		}
		r.Append(&a, wire.Answers)
	}
	want := "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01" +
		"\xc0\x10\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x02" +
		"\x05Other\x07example\x03org\x00\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x03" +
		"\xc0\x0c\x00\x10\x00\x03\x00\x00\x00\x3c\x00\x02\x01x"
	if string(a.Records()) != want || a.Count != [3]uint16{4} {
		t.Errorf("got  %q, counts %v\nwant %q, counts [4 0 0]", a.Records(), a.Count, want)
	}
}
