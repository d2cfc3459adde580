package geoip

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// names returns the names of a place.
func names(english string) mmdbtype.Map {
	return mmdbtype.Map{"en": mmdbtype.String(english), "de": mmdbtype.String("auf Deutsch")}
}

// cambridge is a record of a City database.
var cambridge = mmdbtype.Map{
	"city":      mmdbtype.Map{"names": names("Cambridge")},
	"continent": mmdbtype.Map{"code": mmdbtype.String("EU"), "names": names("Europe")},
	"country": mmdbtype.Map{
		"iso_code": mmdbtype.String("GB"), "names": names("United Kingdom"), "is_in_european_union": mmdbtype.Bool(true),
	},
	"location": mmdbtype.Map{
		"latitude": mmdbtype.Float64(52.2242), "longitude": mmdbtype.Float64(0.1315), "time_zone": mmdbtype.String("Europe/London"),
	},
	"postal": mmdbtype.Map{"code": mmdbtype.String("CB4")},
	"subdivisions": mmdbtype.Slice{
		mmdbtype.Map{"iso_code": mmdbtype.String("ENG")}, mmdbtype.Map{}, mmdbtype.Map{"iso_code": mmdbtype.String("CAM")},
	},
}

func network(number uint32, organization string) mmdbtype.Map {
	return mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(number), "autonomous_system_organization": mmdbtype.String(organization)}
}

// file returns a database of a type with these records.
func file(t testing.TB, kind string, version int, records map[string]mmdbtype.Map) []byte {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, IPVersion: version, IncludeReservedNetworks: true, BuildEpoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	for prefix, record := range records {
		_, to, err := net.ParseCIDR(prefix)
		if err == nil {
			err = tree.Insert(to, record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var data bytes.Buffer
	if _, err := tree.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// replace replaces a file as a whole.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	err := os.WriteFile(path+".new", data, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inFolder changes to a directory with databases.
func inFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	replace(t, "city.mmdb", file(t, "GeoLite2-City", 6, map[string]mmdbtype.Map{"81.2.69.0/24": cambridge, "2001:db8:1::/48": cambridge}))
	replace(t, "asn.mmdb", file(t, "GeoLite2-ASN", 6, map[string]mmdbtype.Map{"81.2.69.0/24": network(12345, "Test ASN"), "10.0.0.0/8": network(0, "Not routed")}))
}

// plan sets up a server block of these lines.
func plan(lines string) (*config.Block, *chaintest.Log, error) {
	log := new(chaintest.Log)
	b, err := chaintest.Setup(".:53 {\n"+lines+"\n}\n", log.Logger(),
		config.Directive{Name: "metadata", Setup: directive.SetupMetadata}, config.Directive{Name: "geoip", Setup: Setup})
	return b, log, corefile.Sorted(append(b.Planned(), err)...)
}

// reader starts a server block, and returns a function that returns values of metadata.
func reader(t testing.TB, lines string) (read func(q *dns.Query, key string) string, log *chaintest.Log) {
	t.Helper()
	b, out, err := plan("metadata\n" + lines)
	if err != nil {
		t.Fatal(err)
	}
	s := config.NewStart(context.Background(), nil)
	if err := b.Started(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return b.AnyMetadata(), out
}

// query returns a query of a client, with a client subnet option unless it is nil.
func query(t testing.TB, client string, subnet []byte) *dns.Query {
	t.Helper()
	packet := wire.AppendRequest(nil, 1, 0, []byte("\x01a\x00"), wire.TypeA)
	if subnet != nil {
		option := wire.AppendOption(nil, wire.OptionSubnet, subnet)
		packet = append(packet, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, byte(len(option)))
		packet = append(packet, option...)
		packet[11] = 1
	}
	q := dns.NewQuery(nil)
	q.Reset(packet, dns.UDP, time.Unix(0, 0))
	q.Peer = netip.AddrPortFrom(netip.MustParseAddr(client), 53)
	if fault := q.Parse(packet); fault != wire.NoFault {
		t.Fatal(fault)
	}
	return q
}

// Each key has the value that CoreDNS has.
func TestValues(t *testing.T) {
	inFolder(t)
	read, _ := reader(t, "geoip city.mmdb\ngeoip asn.mmdb")
	for key, want := range map[string][3]string{ // of the record, of an address without one, of a record without it
		"geoip/city/name":                    {"Cambridge"},
		"geoip/country/code":                 {"GB"},
		"geoip/country/name":                 {"United Kingdom"},
		"geoip/country/is_in_european_union": {"true", "false", "false"},
		"geoip/continent/code":               {"EU"},
		"geoip/continent/name":               {"Europe"},
		"geoip/latitude":                     {"52.2242"},
		"geoip/longitude":                    {"0.1315"},
		"geoip/timezone":                     {"Europe/London"},
		"geoip/postalcode":                   {"CB4"},
		"geoip/subdivisions/code":            {"ENG,,CAM"},
		"geoip/asn/number":                   {"12345", "0", "0"},
		"geoip/asn/org":                      {"Test ASN", "", "Not routed"},
		"geoip/planet":                       {},
	} {
		for i, client := range []string{"81.2.69.142", "203.0.113.1", "10.0.0.1"} {
			if got := read(query(t, client, nil), key); got != want[i] {
				t.Errorf("%s of %s: got %q, want %q", key, client, got, want[i])
			}
		}
	}
	if got := read(query(t, "2001:db8:1::1", nil), "geoip/city/name"); got != "Cambridge" {
		t.Errorf("IPv6 address: got %q, want Cambridge", got)
	}
}

// An IPv6 address has no values in a database of IPv4 addresses.
func TestIPv4Database(t *testing.T) {
	t.Chdir(t.TempDir())
	replace(t, "asn.mmdb", file(t, "DBIP-ASN-Lite (compat=GeoLite2-ASN)", 4, map[string]mmdbtype.Map{"81.2.69.0/24": network(12345, "Test ASN")}))
	read, log := reader(t, "geoip asn.mmdb")
	for client, want := range map[string]string{"81.2.69.142": "12345", "81.2.70.1": "0", "2001:db8::1": ""} {
		if got := read(query(t, client, nil), "geoip/asn/number"); got != want {
			t.Errorf("%s: got %q, want %q", client, got, want)
		}
	}
	if log.String() != "" {
		t.Errorf("log: got %s, want nothing", log)
	}
}

// With edns-subnet the address of the option is used if it has one.
func TestClientSubnet(t *testing.T) {
	inFolder(t)
	with, _ := reader(t, "geoip city.mmdb {\n edns-subnet\n}")
	without, _ := reader(t, "geoip city.mmdb")
	for _, c := range []struct{ client, option, want string }{
		{"10.0.0.1", "\x00\x01\x18\x00\x51\x02\x45", "Cambridge"},
		{"10.0.0.1", "\x00\x01\x20\x00\x51\x02\x45\x01", "Cambridge"},
		{"10.0.0.1", "\x00\x02\x30\x00\x20\x01\x0d\xb8\x00\x01", "Cambridge"},
		{"10.0.0.1", "\x00\x02\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x51\x02\x45\x01", "Cambridge"},
		{"81.2.69.1", "\x00\x01\x18\x00\x0a\x00\x00", ""},
		// These have no address.
		{"81.2.69.1", "\x00\x01\x00\x00", "Cambridge"},
		{"81.2.69.1", "", "Cambridge"},
		{"81.2.69.1", "\x00\x01\x18", "Cambridge"},
		{"81.2.69.1", "\x00\x01\x18\x00\x0a\x00", "Cambridge"},
		{"81.2.69.1", "\x00\x01\x18\x00\x0a\x00\x00\x00", "Cambridge"},
		{"81.2.69.1", "\x00\x01\x28\x00\x0a\x00\x00\x00\x00", "Cambridge"},
		{"81.2.69.1", "\x00\x03\x18\x00\x0a\x00\x00", "Cambridge"},
	} {
		q := query(t, c.client, []byte(c.option))
		if got := with(q, "geoip/city/name"); got != c.want {
			t.Errorf("%s with option %x: got %q, want %q", c.client, c.option, got, c.want)
		}
		if got, want := without(q, "geoip/city/name") != "", c.client == "81.2.69.1"; got != want {
			t.Errorf("%s with option %x, without edns-subnet: got a city %v, want %v", c.client, c.option, got, want)
		}
	}
}

func TestTypes(t *testing.T) {
	t.Chdir(t.TempDir())
	for kind, want := range map[string]string{
		"GeoLite2-Country": "places", "GeoIP2-Enterprise": "places", "DBIP-Location-ISP (compat=Enterprise)": "places",
		"DBIP-City-Lite": "places", "GeoIP2-City-Europe": "places", "GeoIP-City-Redacted-US": "places",
		"GeoIP2-ISP": "networks", "GeoLite2-ASN": "networks", "DBIP-ASN-Lite (compat=GeoLite2-ASN)": "networks",
	} {
		replace(t, "x.mmdb", file(t, kind, 6, nil))
		d, err := newDatabase("x.mmdb", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		d.Stop()
		_, places := d.value("geoip/city/name", netip.IPv4Unspecified())
		_, networks := d.value("geoip/asn/org", netip.IPv4Unspecified())
		if got := map[[2]bool]string{{true, false}: "places", {false, true}: "networks"}[[2]bool{places, networks}]; got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// Files without a database are errors with a position, when the Corefile is checked and
// at the start.
func TestFileErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	whole := file(t, "GeoLite2-City", 6, map[string]mmdbtype.Map{"81.2.69.0/24": cambridge})
	replace(t, "other.mmdb", file(t, "GeoIP2-Anonymous-IP", 6, nil))
	replace(t, "text.mmdb", []byte("<html>404 Not Found</html>"))
	replace(t, "empty.mmdb", nil)
	replace(t, "cut.mmdb", whole[:len(whole)/2])
	// Without a part of the search tree, which the metadata has the size of.
	replace(t, "short.mmdb", whole[len(whole)*3/4:])
	if err := os.Mkdir("dir.mmdb", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"missing.mmdb": "no such file or directory",
		"other.mmdb":   `want a database of cities, countries or autonomous systems, got the type "GeoIP2-Anonymous-IP"`,
		"text.mmdb":    "want a complete database in MaxMind's format: ",
		"empty.mmdb":   "want a complete database in MaxMind's format: ",
		"cut.mmdb":     "want a complete database in MaxMind's format: ",
		"short.mmdb":   "want a complete database in MaxMind's format: ",
		"dir.mmdb":     "not a regular file",
	} {
		want = "reading " + name + ": " + want
		_, _, err := plan("geoip " + name)
		if !strings.HasPrefix(fmt.Sprint(err), "Corefile:2: geoip: "+want) {
			t.Errorf("%s: got error %v, want Corefile:2: geoip: %s", name, err, want)
		}
		if _, err := newDatabase(name, slog.New(slog.DiscardHandler)); name != "dir.mmdb" && !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s at the start: got error %v, want %s", name, err, want)
		}
	}
}

// A file that becomes invalid after the check fails the start.
func TestStartError(t *testing.T) {
	inFolder(t)
	b, _, err := plan("metadata\ngeoip city.mmdb")
	if err != nil {
		t.Fatal(err)
	}
	replace(t, "city.mmdb", nil)
	want := "Corefile:3: geoip: reading city.mmdb: want a complete database"
	if err := b.Started(config.NewStart(context.Background(), nil)); !strings.HasPrefix(fmt.Sprint(err), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestWithoutMetadata(t *testing.T) {
	inFolder(t)
	b, _, err := plan("geoip city.mmdb")
	want := "[Corefile:2: geoip: no effect without the directive metadata]"
	if got := fmt.Sprint(b.Warnings()); err != nil || got != want {
		t.Errorf("got warnings %s, error %v, want warnings %s", got, err, want)
	}
}

// A new file is read, whether it is renamed or written in place. An invalid one is logged,
// and the old database stays in use.
func TestChangedFile(t *testing.T) {
	inFolder(t)
	read, log := reader(t, "geoip city.mmdb")
	q := query(t, "81.2.69.142", nil)
	eventually := func(what string, ok func() bool) {
		t.Helper()
		chaintest.Within(t, time.Minute, func() string {
			if ok() {
				return ""
			}
			return what + "; log:\n" + log.String()
		})
	}
	code := func(want string) func() bool {
		return func() bool { return read(q, "geoip/country/code") == want }
	}
	country := func(code string) []byte {
		return file(t, "GeoLite2-Country", 6, map[string]mmdbtype.Map{"81.0.0.0/8": {"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}}})
	}
	if !code("GB")() {
		t.Fatal("got another country than GB")
	}
	replace(t, "city.mmdb", country("FR"))
	eventually("the country FR", code("FR"))
	if err := os.WriteFile("city.mmdb", country("IT"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually("the country IT", code("IT"))
	whole := country("DE")
	for i, data := range [][]byte{whole[:len(whole)/2], []byte("text"), file(t, "GeoIP2-Domain", 6, nil)} {
		replace(t, "city.mmdb", data)
		eventually("the error", func() bool {
			return strings.Count(log.String(), `level=ERROR msg="geoip: Rejected a new database, keeping the old one" file=city.mmdb error=`) > i
		})
		if !code("IT")() {
			t.Error("after an invalid file: got another country than IT")
		}
	}
	replace(t, "city.mmdb", whole)
	eventually("the country DE", code("DE"))
	want := `level=INFO msg="geoip: Loaded a new database" file=city.mmdb built=1970-01-01T00:00:01.000Z`
	eventually("the message", func() bool { return strings.Count(log.String(), want) >= 3 })
}

// The memory of a replaced database is freed, and so is the memory of a rejected one.
func TestChangedFileMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	inFolder(t)
	const padding = 32 << 20
	small, marker := file(t, "GeoLite2-City", 4, nil), []byte("\xab\xcd\xefMaxMind.com")
	at := bytes.LastIndex(small, marker)
	large := slices.Concat(small[:at], make([]byte, padding), small[at:])
	replace(t, "city.mmdb", large)
	_, log := reader(t, "geoip city.mmdb")
	rejected := slices.Concat(large[:len(large)-1], []byte{0xFF, 0xFF})
	rejected = bytes.Replace(rejected, []byte("GeoLite2-City"), []byte("GeoLite2-What"), 1)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	const others = 2 * padding // large and rejected
	for i, data := range [][]byte{large, rejected, large, rejected, large} {
		before := strings.Count(log.String(), "\n")
		replace(t, "city.mmdb", data)
		for end := time.Now().Add(time.Minute); strings.Count(log.String(), "\n") == before || m.HeapAlloc > others+3*padding/2; time.Sleep(time.Millisecond) {
			if runtime.ReadMemStats(&m); time.Now().After(end) {
				t.Fatalf("replacement %d: got a heap of %d MB, want one database of %d MB beside %d MB of the test; log:\n%s", i, m.HeapAlloc>>20, padding>>20, others>>20, log)
			}
		}
	}
}

// A damaged record is logged once, and its values are empty.
func TestDamagedRecord(t *testing.T) {
	inFolder(t)
	data, err := os.ReadFile("city.mmdb")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("continent")) - 1
	data[at] = 0 // an extended type that does not exist
	replace(t, "city.mmdb", data)
	read, log := reader(t, "geoip city.mmdb")
	for range 3 {
		if got := read(query(t, "81.2.69.142", nil), "geoip/country/code"); got != "" {
			t.Errorf("got %q, want an empty value", got)
		}
	}
	if n := strings.Count(log.String(), `msg="geoip: Database is damaged, some values are empty" file=city.mmdb key=geoip/country/code client=81.2.69.142 error=`); n != 1 {
		t.Errorf("got %d log messages, want one:\n%s", n, log)
	}
}

// No changed byte of a database makes a lookup panic, and no file is accepted that does.
func FuzzDatabase(f *testing.F) {
	f.Add(file(f, "GeoLite2-City", 6, map[string]mmdbtype.Map{"81.2.69.0/24": cambridge}))
	f.Add(file(f, "GeoLite2-ASN", 4, map[string]mmdbtype.Map{"81.2.69.0/24": network(1, "Test")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse("x.mmdb", data)
		if err != nil {
			return
		}
		d := &database{log: slog.New(slog.DiscardHandler)}
		d.content.Store(c)
		for _, key := range []string{"geoip/city/name", "geoip/latitude", "geoip/subdivisions/code", "geoip/asn/number"} {
			for _, a := range []string{"81.2.69.142", "2001:db8::1"} {
				d.value(key, netip.MustParseAddr(a))
			}
		}
	})
}

// A query whose values no directive reads allocates nothing, and neither does a lookup of
// a key that the database does not have.
func TestAllocations(t *testing.T) {
	inFolder(t)
	read, _ := reader(t, "geoip city.mmdb {\n edns-subnet\n}")
	q := query(t, "10.0.0.1", []byte("\x00\x01\x18\x00\x51\x02\x45"))
	if n := testing.AllocsPerRun(100, func() { read(q, "kubernetes/namespace") }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

func BenchmarkCountry(b *testing.B) {
	path := filepath.Join(b.TempDir(), "city.mmdb")
	replace(b, path, file(b, "GeoLite2-City", 6, map[string]mmdbtype.Map{"81.2.69.0/24": cambridge}))
	read, _ := reader(b, "geoip "+path)
	q := query(b, "81.2.69.142", nil)
	b.ReportAllocs()
	for b.Loop() {
		read(q, "geoip/country/code")
	}
}
