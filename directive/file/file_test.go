package file

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

const origin wire.Name = "\x07example\x03org\x00"

// head is the beginning of the zone files in these tests.
const head = "$TTL 300\n@ SOA ns host %d 2 3 4 60\n"

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A server is one server block without sockets.
type server struct {
	*chaintest.Block
	t   testing.TB
	log *chaintest.Log
}

// plan sets up a server block for example.org.
func plan(text string) (*config.Block, *chaintest.Log, error) { return planSetup(Setup, text) }

// planSetup is plan for another directive than file, with which text begins.
func planSetup(setup func(*config.Block, []corefile.Directive) error, text string) (*config.Block, *chaintest.Log, error) {
	log := new(chaintest.Log)
	name := strings.Fields(text)[0]
	b, err := chaintest.Setup("example.org:53 {\n"+text+"\n}", log.Logger(), config.Directive{Name: name, Setup: setup})
	return b, log, err
}

// run starts a server block. It takes the place of old unless that is nil.
func run(t testing.TB, text string, old *server) *server {
	t.Helper()
	return runSetup(t, Setup, text, old)
}

// runSetup is run for another directive than file.
func runSetup(t testing.TB, setup func(*config.Block, []corefile.Directive) error, text string, old *server) *server {
	t.Helper()
	b, log, err := planSetup(setup, text)
	if err := errors.Join(append(b.Planned(), err)...); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, log: log}
	if old == nil {
		s.Block = chaintest.Run(t, b, nil)
	} else {
		s.Block = chaintest.Run(t, b, old.Block)
	}
	s.Prepare = func(q *dns.Query) { q.Peer = netip.MustParseAddrPort("10.0.0.1:53012") }
	return s
}

// ask returns the response code and the RDATA of the answer section.
func (s *server) ask(name string, qtype wire.Type) string {
	s.t.Helper()
	reply := s.reply(name, qtype)
	out := wire.RCode(reply[3] & 15).String()
	off := wire.HeaderLen
	for ; reply[off] != 0; off += int(reply[off]) + 1 {
	}
	off += 5
	for range int(reply[6])<<8 | int(reply[7]) {
		r, ok := wire.ReadRecord(reply, off)
		if !ok {
			s.t.Fatalf("%s %s: malformed reply %x", name, qtype, reply)
		}
		out += fmt.Sprintf(" %x", reply[r.RData:r.Next])
		off = r.Next
	}
	return out
}

func (s *server) reply(name string, qtype wire.Type) []byte {
	s.t.Helper()
	reply, parked := s.Begin(chaintest.Pack(s.t, chaintest.Query(name, qtype.String())), dns.UDP)
	if parked != nil || reply == nil {
		s.t.Fatalf("%s %s: got no reply at once, want one", name, qtype)
	}
	return reply
}

// source returns the source of the block's only file directive.
func (s *server) source() *source {
	for _, served := range config.Find[*File](s.Plan)[0].zones.All() {
		return served.source
	}
	return nil
}

// failed returns the value of seamark_file_reload_failed_total.
func (s *server) failed() string {
	var b strings.Builder
	if err := s.Plan.Metrics.WriteText(&b); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "seamark_file_reload_failed_total{") {
			return strings.TrimSpace(line[strings.IndexByte(line, '}')+1:])
		}
	}
	return "none"
}

func TestSetupErrors(t *testing.T) {
	folder := t.TempDir()
	db := filepath.Join(folder, "db")
	write(t, db, fmt.Sprintf(head, 1))
	for _, c := range []struct{ text, want string }{
		{"file", "Corefile:2: file: want at least 1 argument, got 0"},
		{"file DB example..org", `Corefile:2: file: not a zone: "example..org": empty label`},
		{"file DB {\n reload\n}", "Corefile:3: file: reload: got no arguments, usage: reload DURATION"},
		{"file DB {\n reload 1s 2s\n}", "Corefile:3: file: reload: got 2 arguments, usage: reload DURATION"},
		{"file DB {\n reload -1s\n}", `Corefile:3: file: reload: want a duration of 0s..8760h, got "-1s"`},
		{"file DB {\n reload 5\n}", `Corefile:3: file: reload: want a duration of 0s..8760h, got "5"`},
		{"file DB {\n reload 1ms\n}", `Corefile:3: file: reload: want 0 or at least 10ms, got "1ms"`},
		{"file DB {\n reload_by_mtime yes\n}", "Corefile:3: file: reload_by_mtime: want no argument, got 1"},
		{"file DB {\n fallthrough a..b\n}", `Corefile:3: file: fallthrough: not a zone: "a..b": empty label`},
		{"file DB {\n transfer to *\n}", `Corefile:3: file: unknown option "transfer"`},
		{"file DB\nfile DB", "Corefile:3: file: zone example.org. is already served from DB at Corefile:2"},
		{"file DB a b a", "Corefile:2: file: zone a. is already served from DB at Corefile:2"},
		{"file DB.gone", "Corefile:2: file: DB.gone: no such file or directory"},
		{"file " + folder, "Corefile:2: file: " + folder + ": not a regular file"},
	} {
		_, _, err := plan(strings.ReplaceAll(c.text, "DB", db))
		if want := strings.ReplaceAll(c.want, "DB", db); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.text, err, want)
		}
	}
}

func TestBadFiles(t *testing.T) {
	first := fmt.Sprintf(head, 1)
	for _, c := range []struct{ text, want string }{
		{first + "a A 192.0.2.300\n", `DB:3: bad A A: "192.0.2.300"`},
		{first + "a CNAME b\n\na CNAME c\n", "DB:5: a.example.org.: a second CNAME record"},
		{first + "a DS 1 8 2 AB\n", "DB:3: malformed DS record"},
		{first + "a CH TXT x\n", "DB:3: a.example.org.: class CH, want IN"},
		{first + "@ SOA a b (\n 2 2 3 4 5 )\n", "DB:3: example.org.: a second SOA record"},
		{first + "@ NSEC3PARAM 1 0 200 -\n", "DB:3: example.org.: NSEC3PARAM: 200 iterations, at most 50 are allowed: sign the zone with 0 iterations"},
		{"$TTL 5\n@ NS a\n", "DB: no SOA record for example.org."},
		{"", "DB: no SOA record for example.org."},
		{"example.net. 5 SOA a b 2 2 3 4 5\n@ 5 SOA a b 1 2 3 4 5\n@ 5 SOA a b 2 2 3 4 5\n", "DB:3: example.org.: a second SOA record"},
	} {
		db := filepath.Join(t.TempDir(), "db")
		write(t, db, c.text)
		_, _, err := plan("file " + db)
		if want := "Corefile:2: file: " + strings.ReplaceAll(c.want, "DB", db); err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", c.text, err, want)
		}
	}
}

// A SOA record of another name is the zone's own if it has none.
func TestSOAOfAnotherName(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"example.net. 5 SOA a b 2 2 3 4 5\n", `"file: Using the SOA record of another name" file=DB line=1 zone=example.org. owner=example.net.`},
		{"sub 5 SOA a b 2 2 3 4 5\nsub2 5 SOA a b 3 2 3 4 5\n", `"file: Using the SOA record of another name" file=DB line=1 zone=example.org. owner=sub.example.org.`},
		{"@ 5 SOA a b 2 2 3 4 5\nsub 5 SOA a b 3 2 3 4 5\n", `"file: Ignored the SOA record of another name" file=DB line=2 zone=example.org. owner=sub.example.org.`},
	} {
		db := filepath.Join(t.TempDir(), "db")
		write(t, db, c.text)
		s := run(t, "file "+db, nil)
		if got, want := s.log.Take("WARN"), strings.ReplaceAll(c.want, "DB", db); got != want {
			t.Errorf("%q: logged\n%s\nwant\n%s", c.text, got, want)
		}
		if serial, ok := config.Find[*File](s.Plan)[0].zones.Get(origin).zone().Serial(); serial != 2 || !ok {
			t.Errorf("%q: serial %d, %v, want 2", c.text, serial, ok)
		}
	}
}

// CoreDNS ignores the option upstream too.
func TestUpstreamIgnored(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1))
	s := run(t, "file "+db+" {\n upstream 192.0.2.1\n}", nil)
	want := "Corefile:3: file: upstream: ignored, since the server resolves CNAME targets itself"
	if got := fmt.Sprint(s.Plan.Warnings()); got != "["+want+"]" {
		t.Errorf("warnings: got %s, want %s", got, want)
	}
}

// Records outside the zone are ignored with one warning.
func TestOutOfZone(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\nwww.example.com. A 192.0.2.2\nwww.example.edu. A 192.0.2.2\n")
	s := run(t, "file "+db, nil)
	want := `"file: Ignored records outside the zone" file=` + db + ` line=4 error="www.example.com.: out of zone example.org." count=2`
	if got := s.log.Take("WARN"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := s.ask("a.example.org", wire.TypeA), "NOERROR c0000201"; got != want {
		t.Errorf("a.example.org A: got %s, want %s", got, want)
	}
}

// Expired signatures are served with one warning.
func TestExpiredSignatures(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	const sig = " RRSIG A 13 3 60 20200102030405 20200101030405 55508 @ AAAA\n"
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\na"+sig+"b A 192.0.2.1\nb"+sig+"c A 192.0.2.1\nc RRSIG A 13 3 60 20800102030405 20200101030405 55508 @ AAAA\n")
	s := run(t, "file "+db, nil)
	want := `"file: Found expired signatures" file=` + db + ` line=4 error="a.example.org.: the signature expired at 2020-01-02T03:04:05Z: sign the zone again" count=2`
	if got := s.log.Take("WARN"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := s.ask("a.example.org", wire.TypeA), "NOERROR c0000201"; got != want {
		t.Errorf("a.example.org A: got %s, want %s", got, want)
	}
}

// A CNAME record at the zone's name violates RFC 1034, but zone files have it. It
// is served, and so are the records beside it.
func TestCNAMEBesideOthers(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"@ CNAME www\nwww A 192.0.2.1\n@ TXT x\n")
	s := run(t, "file "+db, nil)
	want := `"file: Found records beside a CNAME record" file=` + db + ` line=3 error="example.org.: SOA record beside a CNAME" count=2`
	if got := s.log.Take("WARN"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const www = "\x03www\x07example\x03org\x00"
	if got, want := s.ask("example.org", wire.TypeA), fmt.Sprintf("NOERROR %x c0000201", www); got != want {
		t.Errorf("example.org A: got %s, want %s", got, want)
	}
	if got, want := s.ask("example.org", wire.TypeTXT), "NOERROR 0178"; got != want {
		t.Errorf("example.org TXT: got %s, want %s", got, want)
	}
}

func TestRelativePath(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "db"), fmt.Sprintf(head, 1))
	servers, err := corefile.Parse("Corefile", []byte(". {\nfile db\n}"))
	if err != nil {
		t.Fatal(err)
	}
	b := &config.Block{Zones: []wire.Name{origin}, Log: slog.New(slog.DiscardHandler), Metrics: &metrics.Registry{}, Chain: &dns.Chain{}}
	b.Offer(root(folder))
	if err := Setup(b, servers[0].Directives); err != nil {
		t.Errorf("file db with root %s: %v", folder, err)
	}
}

// A root is the directory of relative paths, as the root directive offers it.
type root string

func (r root) Root() string { return string(r) }

// An answer allocates nothing.
func TestServeDNSAllocations(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n*.w A 192.0.2.2\nsub NS ns.sub\nns.sub A 192.0.2.3\nc CNAME a\n")
	s := run(t, "file "+db+" {\n reload 0\n}", nil)
	for _, name := range []string{"a", "no", "x.w", "www.sub", "c"} {
		packet := chaintest.Pack(t, chaintest.Query(name+".example.org", "A"))
		if n := testing.AllocsPerRun(100, func() { s.Serve(packet, dns.UDP) }); n != 0 {
			t.Errorf("%s.example.org A: %v allocations, want 0", name, n)
		}
	}
}

// A version is stale as soon as one of its files has changed.
func TestVersionStale(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"$INCLUDE part\n")
	write(t, filepath.Join(filepath.Dir(db), "part"), "a A 192.0.2.1\n")
	for i, change := range []func() error{
		func() error { return os.Chtimes(db, time.Time{}, time.Now().Add(time.Hour)) },
		func() error { return os.Remove(filepath.Join(filepath.Dir(db), "part")) },
		func() error {
			write(t, filepath.Join(filepath.Dir(db), "part"), "a A 192.0.2.2\n")
			return nil
		},
	} {
		v, err := load(db, []wire.Name{origin}, limits{}, nil, slog.New(slog.DiscardHandler))
		if v.stale() {
			t.Fatalf("change %d: stale before the change: %v", i, err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if !v.stale() {
			t.Errorf("change %d: not stale after the change", i)
		}
	}
	if v := (&version{files: []zonefile.File{{Path: db + ".gone"}}}); v.stale() {
		t.Error("a version of a missing file is stale while the file is still missing")
	}
}

// Names that are not ASCII, which no client asks for, are served with one warning.
func TestNamesNotASCII(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\nmünchen A 192.0.2.1\nstraße.x A 192.0.2.1\n\\200 A 192.0.2.1\n")
	s := run(t, "file "+db, nil)
	want := `"file: Found names that are not ASCII" file=` + db + ` line=4 ` +
		`error="münchen.example.org. is not ASCII: clients ask for xn--mnchen-3ya.example.org." count=2`
	if got := s.log.Take("WARN"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A zone with NSEC3 iterations is served with a warning, and one with 0 iterations without.
func TestNSEC3IterationsWarned(t *testing.T) {
	for iterations, want := range map[int]string{
		0:  "",
		50: `"file: Found NSEC3 iterations" file=DB line=3 error="example.org.: NSEC3PARAM: 50 iterations: sign the zone with 0 iterations" count=1`,
	} {
		db := filepath.Join(t.TempDir(), "db")
		write(t, db, fmt.Sprintf(head, 1)+fmt.Sprintf("@ NSEC3PARAM 1 0 %d -\n", iterations))
		s := run(t, "file "+db, nil)
		if got := s.log.Take("WARN"); got != strings.ReplaceAll(want, "DB", db) {
			t.Errorf("%d iterations: got  %s\nwant %s", iterations, got, want)
		}
	}
}
