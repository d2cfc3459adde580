package secondary

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

func TestParseCatalog(t *testing.T) {
	const version = "version TXT \"2\"\n"
	z := func(name string) wire.Name {
		n, err := wire.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, c := range map[string]struct {
		records string
		want    map[wire.Name]entry
		err     string
	}{
		"no members": {version, map[wire.Name]entry{}, ""},
		"properties": {
			version + "a.zones PTR Example.COM.\nB.Zones 0 PTR .\ngroup.a.zones TXT x y\ngroup.a.zones TXT z\n*.zones 0 PTR wild.\n" +
				"coo.B.zones PTR Other.Catalog.\nother.a.zones PTR x.\na.ext.a.zones PTR x.\ncoo.c.zones PTR x.\nzones PTR x.\nzones.zones.x PTR x.\na.zones TXT x\n@ NS invalid.\nx.ext TXT x",
			map[wire.Name]entry{z("example.com"): {label: "\x01a"}, z("."): {label: "\x01b", coo: z("other.catalog")}, z("wild"): {label: "\x01*"}}, "",
		},
		"no version":                {"a.zones PTR x.", nil, "no version"},
		"version as PTR":            {"version PTR x.", nil, "no version"},
		"unknown version":           {"version TXT 1", nil, "unsupported version"},
		"version of two strings":    {"version TXT 2 2", nil, "unsupported version"},
		"several versions":          {version + "version TXT 1", nil, "several versions"},
		"several zones of a member": {version + "a.zones PTR x.\na.zones PTR y.", nil, "several PTR records at a.zones.example.org."},
		"several owners":            {version + "a.zones PTR x.\ncoo.a.zones PTR x.\ncoo.A.zones PTR y.", nil, "several PTR records at coo.a.zones.example.org."},
		"the same zone twice":       {version + "a.zones PTR x.\nb.zones PTR X.", nil, "zone x. at both a.zones.example.org. and b.zones.example.org."},
	} {
		received, err := receiveAll(nil, message(t, mdns.TypeAXFR, "@ 5 SOA 5\n"+strings.TrimSpace(c.records)+"\n@ 5 SOA 5"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := parseCatalog(received)
		if c.err == "" && (err != nil || fmt.Sprint(got) != fmt.Sprint(c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %v, %v, want %v, %s", name, got, err, c.want, c.err)
		}
	}
}

// A catalog with too many members is broken.
func TestParseCatalogTooLarge(t *testing.T) {
	for _, n := range []int{maxMembers, maxMembers + 1} {
		b := zone.NewBuilder(origin)
		err := b.Add("\x07version"+string(origin), wire.TypeTXT, 0, "\x012")
		for i := range n {
			label := string(wire.AppendLabel(nil, fmt.Sprint(i)))
			err = errors.Join(err, b.Add(label+"\x05zones"+string(origin), wire.TypePTR, 0, label+"\x00"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if list, err := parseCatalog(b.Zone()); (err == nil) != (n == maxMembers) || err == nil && len(list) != n {
			t.Errorf("%d members: got %d, %v", n, len(list), err)
		}
	}
}

// The files of members are in the directory of the catalog's file, whatever their names are.
func TestMemberFile(t *testing.T) {
	long := wire.Name(strings.Repeat("\x3f"+strings.Repeat("/", 63), 3) + "\x00")
	seen := map[string]wire.Name{}
	for _, name := range []wire.Name{"\x00", "\x01a\x00", "\x01.\x00", "\x02..\x00", "\x08/../../x\x00", "\x01\x00\x00", "\x01a\x01b\x00", "\x03a.b\x00", "\x03a\\b\x00", "\x03\xff\xfe\n\x00", long} {
		path := memberFile("/dir/catalog", name)
		if dir, base := filepath.Split(path); filepath.Clean(path) != path || dir != "/dir/" || !strings.HasPrefix(base, "catalog.") || len(base) > 240 || strings.ContainsAny(base, "\x00\n") {
			t.Errorf("%q: got %q", name, path)
		}
		if other, again := seen[path]; again {
			t.Errorf("%q and %q: got %q for both", name, other, path)
		}
		seen[path] = name
	}
}

// FuzzParseCatalog checks that the members of a catalog of any records have one label, no
// duplicates, and names in lower case. Each record is the number of bytes and the bytes of the
// part of its owner below the catalog, its type, and the same of its data.
// See NSD 4.15 in docs/reference/advisories.md.
func FuzzParseCatalog(f *testing.F) {
	record := func(below string, qtype wire.Type, data string) string {
		return string(rune(len(below))) + below + string(rune(qtype)) + string(rune(len(data))) + data
	}
	version := record("\x07version", wire.TypeTXT, "\x012")
	f.Add([]byte(version + record("\x01a\x05zones", wire.TypePTR, "\x01a\x07example\x00")))
	f.Add([]byte(version + record("\x01a\x05zones", wire.TypePTR, "\x01a\x00") + record("\x03coo\x01a\x05zones", wire.TypePTR, "\x01b\x00")))
	f.Add([]byte(version + record("\x01a\x05ZONES", wire.TypePTR, "\x01A\x00") + record("\x03Coo\x01A\x05zones", wire.TypePTR, "\x00") + record("\x01b\x05zones", wire.TypePTR, "\x01a\x00")))
	f.Add([]byte(record("\x07version", wire.TypeTXT, "\x013") + version))
	f.Fuzz(func(t *testing.T, data []byte) {
		packet := framed(message(t, mdns.TypeAXFR, "@ 5 SOA 1"), 1)[2:]
		soa := packet[wire.HeaderLen+len(origin)+4:]
		records := 1
		next := func() (part []byte) {
			if len(data) > 0 {
				n := min(1+int(data[0]), len(data))
				part, data = data[1:n], data[n:]
			}
			return part
		}
		for ; len(data) > 2 && len(packet) < 60_000; records++ {
			packet = append(append(packet, next()...), origin...)
			qtype := byte(wire.TypePTR)
			if len(data) > 0 {
				qtype, data = data[0], data[1:]
			}
			rdata := next()
			packet = append(append(packet, 0, qtype, 0, 1, 0, 0, 0, 5, 0, byte(len(rdata))), rdata...)
		}
		packet = append(packet, soa...)
		binary.BigEndian.PutUint16(packet[6:], uint16(records+1))
		z, err := receiveAll(nil, packet)
		if err != nil {
			return
		}
		list, err := parseCatalog(z)
		if err != nil {
			return
		}
		nodes := map[string]bool{}
		for name, e := range list {
			if nodes[e.label] || wire.Name(e.label).Labels() != 1 || wire.Lower(e.label) != wire.Name(e.label) {
				t.Errorf("member %s has label %q", name, e.label)
			}
			nodes[e.label] = true
			if wire.Lower(string(name)) != name || wire.Lower(string(e.coo)) != e.coo {
				t.Errorf("member %q, coo %q: not in lower case", name, e.coo)
			}
		}
	})
}

// The file of a member is deleted also if the catalog's own file lists it and the primary's version, which
// comes before the members are served, does not.
func TestFileOfDroppedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "catalog")
		for _, name := range []string{"a", "b", "c"} {
			if err := os.WriteFile(path+"."+name+".test", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m, err := newServer(chaintest.QuietLog(), nil).claim(config.NewStart(t.Context(), nil), nil, &config.Block{Log: chaintest.QuietLog()})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Stop()

		away := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }
		c := &catalog{options: options{origin: origin, file: path}, clients: []*client{{dial: away}}}
		for _, members := range []string{"a b c", "a c", "a", "a c"} {
			text := "@ 5 SOA 1\nversion TXT 2\n"
			for name := range strings.FieldsSeq(members) {
				text += fmt.Sprintf("%s.zones PTR %[1]s.test.\n", name)
			}
			z, err := receiveAll(nil, message(t, mdns.TypeAXFR, text+"@ 5 SOA 1"))
			if err == nil {
				err = m.update(c, z)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		m.wanted.Store(&scope{zones: []wire.Name{"\x00"}, all: []*catalog{c}})
		m.configure()

		for name, want := range map[string]bool{"a": true, "b": false, "c": true} {
			if _, err := os.Stat(path + "." + name + ".test"); (err == nil) != want {
				t.Errorf("%s.test: got error %v of its file, want the file of a listed member alone", name, err)
			}
		}
	})
}
