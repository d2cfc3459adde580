package transfer_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
)

// A catalogPrimary is a Seamark with zone files, among them catalogs.
type catalogPrimary struct {
	dir    string
	at     netip.AddrPort
	serial map[string]int
	plan   *server.Plan
	log    *chaintest.Log
}

// newCatalogPrimary starts a primary that sends NOTIFY messages to other servers.
func newCatalogPrimary(t testing.TB, notified ...netip.AddrPort) *catalogPrimary {
	p := &catalogPrimary{dir: t.TempDir(), at: freePort(t), serial: map[string]int{}}
	to := "*"
	for _, at := range notified {
		to += " " + at.String()
	}
	p.plan, p.log = serve(t, p.at, nil, fmt.Sprintf(". {\n auto {\n directory %s\n}\n transfer {\n to %s\n}\n}", p.dir, to))
	t.Cleanup(func() { p.plan.Stop(context.Background()) })
	return p
}

// write writes a new version of a zone.
func (p *catalogPrimary) write(t testing.TB, zone, records string) {
	t.Helper()
	p.serial[zone]++
	write(t, filepath.Join(p.dir, "db."+zone), fmt.Sprintf("$ORIGIN %s.\n$TTL 60\n@ SOA ns.invalid. host.invalid. %d 3600 600 86400 60\n@ NS ns.invalid.\n%s", zone, p.serial[zone], records))
}

// catalog writes a new version of a catalog with member nodes.
func (p *catalogPrimary) catalog(t testing.TB, zone string, members map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("version TXT \"2\"\n")
	for _, label := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(&b, "%s.zones PTR %s.\n", label, members[label])
	}
	p.write(t, zone, b.String())
}

// answer describes the answer to a query for an address: its code, or the address.
func answer(at netip.AddrPort, name string) string {
	r, err := exchange(new(mdns.Msg).SetQuestion(name, mdns.TypeA), at)
	switch {
	case err != nil:
		return err.Error()
	case len(r.Answer) == 0 || r.Answer[0].Header().Rrtype != mdns.TypeA:
		return mdns.RcodeToString[r.Rcode]
	}
	return r.Answer[0].(*mdns.A).A.String()
}

// answers waits until a server answers queries as wanted.
func answers(t testing.TB, at netip.AddrPort, log *chaintest.Log, want map[string]string) {
	t.Helper()
	eventually(t, func() string {
		for name, w := range want {
			if got := answer(at, name); got != w {
				return fmt.Sprintf("%s: got %s, want %s\n%s", name, got, w, log)
			}
		}
		return ""
	})
}

// The members of a catalog appear, change and disappear as the primary's do. Broken versions
// of the catalog change nothing.
func TestCatalog(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at, second := freePort(t), freePort(t)
	p := newCatalogPrimary(t, at)
	p.write(t, "a.example", "www A 192.0.2.1")
	p.write(t, "b.example", "www A 192.0.2.2")
	p.catalog(t, "catalog.invalid", map[string]string{"one": "a.example"})
	log := run(t, at, fmt.Sprintf(". {\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n transfer {\n to * %s\n}\n whoami\n}", p.at, second))
	next := run(t, second, fmt.Sprintf("example invalid {\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n}", at))
	both := func(want map[string]string) {
		t.Helper()
		answers(t, at, log, want)
		answers(t, second, next, want)
	}
	both(map[string]string{"www.a.example.": "192.0.2.1"})
	p.write(t, "a.example", "www A 192.0.2.11")
	both(map[string]string{"www.a.example.": "192.0.2.11"})
	p.catalog(t, "catalog.invalid", map[string]string{"one": "a.example", "two": "b.example"})
	both(map[string]string{"www.a.example.": "192.0.2.11", "www.b.example.": "192.0.2.2"})
	for _, broken := range []string{"", "version TXT 3", "version TXT 2\nversion TXT 3", "version TXT 2\none.zones PTR a.example.\none.zones PTR b.example.", "version TXT 2\none.zones PTR a.example.\ntwo.zones PTR a.example."} {
		before := strings.Count(log.String(), "broken catalog")
		p.write(t, "catalog.invalid", broken)
		eventually(t, func() string {
			if strings.Count(log.String(), "broken catalog") == before {
				return broken + ": not logged"
			}
			return ""
		})
		both(map[string]string{"www.a.example.": "192.0.2.11", "www.b.example.": "192.0.2.2"})
	}
	p.catalog(t, "catalog.invalid", map[string]string{"two": "b.example"})
	answers(t, at, log, map[string]string{"www.a.example.": "NOERROR", "www.b.example.": "192.0.2.2"})
	answers(t, second, next, map[string]string{"www.a.example.": "SERVFAIL", "www.b.example.": "192.0.2.2"})
	if got := soa(at, "b.example."); got != 1 {
		t.Errorf("got serial number %d, want 1", got)
	}
	if why := same(p.at, at, "b.example."); why != "" {
		t.Error(why)
	}
	// Another member node resets the zone: its serial number may be older.
	p.serial["b.example"] = 5
	p.write(t, "b.example", "www A 192.0.2.6")
	both(map[string]string{"www.b.example.": "192.0.2.6"})
	p.serial["b.example"] = 1
	p.write(t, "b.example", "www A 192.0.2.22")
	eventually(t, func() string {
		if got := soa(p.at, "b.example."); got != 2 {
			return fmt.Sprintf("the primary has serial number %d, want 2", got)
		}
		return ""
	})
	p.catalog(t, "catalog.invalid", map[string]string{"three": "b.example"})
	both(map[string]string{"www.b.example.": "192.0.2.22"})
	for _, want := range []string{"Added zone\" zone=a.example.", "Removed zone\" zone=a.example.", "Reset zone\" zone=b.example."} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%s: logged %d times, want once:\n%s", want, n, log)
		}
	}
}

// The catalog itself is not answered to queries, except for its SOA record.
func TestCatalogQueries(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at := freePort(t)
	p := newCatalogPrimary(t, at)
	p.write(t, "a.example", "www A 192.0.2.1")
	p.catalog(t, "catalog.invalid", map[string]string{"one": "a.example", "two": "sub.catalog.invalid"})
	p.write(t, "sub.catalog.invalid", "www A 192.0.2.2")
	log := run(t, at, fmt.Sprintf(". {\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n}", p.at))
	answers(t, at, log, map[string]string{"www.a.example.": "192.0.2.1", "www.sub.catalog.invalid.": "192.0.2.2", "catalog.invalid.": "REFUSED", "x.catalog.invalid.": "REFUSED"})
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
	}{
		{"catalog.invalid.", mdns.TypeSOA, mdns.RcodeSuccess}, {"catalog.invalid.", mdns.TypeNS, mdns.RcodeRefused}, {"catalog.invalid.", mdns.TypeANY, mdns.RcodeRefused},
		{"version.catalog.invalid.", mdns.TypeTXT, mdns.RcodeRefused}, {"one.zones.catalog.invalid.", mdns.TypePTR, mdns.RcodeRefused}, {"one.zones.catalog.invalid.", mdns.TypeSOA, mdns.RcodeRefused},
		{"catalog.invalid.", mdns.TypeAXFR, mdns.RcodeRefused},
	} {
		r, _, err := (&mdns.Client{Net: "tcp", Timeout: patience}).Exchange(new(mdns.Msg).SetQuestion(c.name, c.qtype), at.String())
		if err != nil || r.Rcode != c.rcode {
			t.Errorf("%s %s: got %v, %v, want %s", c.name, mdns.TypeToString[c.qtype], r, err, mdns.RcodeToString[c.rcode])
		}
	}
	for zone, want := range map[string]int{"catalog.invalid.": mdns.RcodeSuccess, "a.example.": mdns.RcodeSuccess, "b.example.": mdns.RcodeNotAuth} {
		r, err := exchange(new(mdns.Msg).SetNotify(zone), at)
		if err != nil || r.Rcode != want {
			t.Errorf("NOTIFY of %s: got %v, %v, want %s", zone, r, err, mdns.RcodeToString[want])
		}
	}
}

// After a restart without the primary, the catalog and its members are served from files. The
// files of removed members are deleted. A reload keeps the zones.
func TestCatalogFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at, dir := freePort(t), t.TempDir()
	p := newCatalogPrimary(t, at)
	p.write(t, "a.example", "www A 192.0.2.1")
	p.write(t, "b.example", "www A 192.0.2.2")
	p.catalog(t, "catalog.invalid", map[string]string{"one": "a.example", "two": "b.example"})
	text := fmt.Sprintf(". {\n secondary catalog.invalid {\n transfer from %s\n file %s/catalog\n catalog\n}\n whoami\n}", p.at, dir)
	plan, log := serve(t, at, nil, text)
	defer func() { plan.Stop(t.Context()) }()
	answers(t, at, log, map[string]string{"www.a.example.": "192.0.2.1", "www.b.example.": "192.0.2.2"})
	p.plan.Stop(t.Context())
	for range 2 {
		plan.Stop(t.Context())
		if names := files(t, dir); names != "catalog catalog.a.example catalog.b.example" {
			t.Fatalf("got files %s", names)
		}
		plan, log = serve(t, at, nil, text)
		answers(t, at, log, map[string]string{"www.a.example.": "192.0.2.1", "www.b.example.": "192.0.2.2"})
	}
	// The primary has changed before the secondary starts again.
	plan.Stop(t.Context())
	p.plan, _ = serve(t, p.at, nil, fmt.Sprintf(". {\n auto {\n directory %s\n}\n transfer {\n to * %s\n}\n}", p.dir, at))
	p.catalog(t, "catalog.invalid", map[string]string{"one": "a.example"})
	plan, log = serve(t, at, nil, text)
	answers(t, at, log, map[string]string{"www.a.example.": "192.0.2.1", "www.b.example.": "NOERROR"})
	eventually(t, func() string {
		if names := files(t, dir); names != "catalog catalog.a.example" {
			return "got files " + names
		}
		return ""
	})
	next, reloaded := serve(t, at, plan, strings.Replace(text, "catalog\n}", "catalog\n fallthrough\n}", 1))
	plan = next
	if got := answer(at, "www.a.example."); got != "192.0.2.1" {
		t.Errorf("after a reload: got %s, want 192.0.2.1\n%s", got, reloaded)
	}
}

// files returns the names of a directory's files.
func files(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Zones that a catalog must not have are refused: those of the Corefile, of other catalogs,
// and outside the server block's zones or those of the option.
func TestCatalogRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at := freePort(t)
	p := newCatalogPrimary(t, at)
	members := map[string]string{"i": "catalog.invalid", "j": "other.invalid"}
	for i, zone := range []string{"a.example", "b.example", "c.example", "d.example", "example", "e.test", "f.invalid"} {
		p.write(t, zone, "www A 192.0.2.1")
		members[fmt.Sprint("m", i)] = zone
	}
	p.catalog(t, "catalog.invalid", members)
	p.catalog(t, "other.invalid", map[string]string{"x": "a.example"})
	log := run(t, at, fmt.Sprintf("example invalid {\n secondary catalog.invalid {\n transfer from %[1]s\n catalog a.example b.example d.example\n catalog c.example invalid\n}\n"+
		" secondary other.invalid {\n transfer from %[1]s\n catalog\n}\n secondary b.example {\n transfer from 127.0.0.1:1\n}\n file %[2]s/db.c.example c.example\n hosts {\n 192.0.2.3 www.c.example\n fallthrough\n}\n}", p.at, p.dir))
	answers(t, at, log, map[string]string{
		"www.a.example.": "192.0.2.1", "www.b.example.": "SERVFAIL", "www.c.example.": "192.0.2.3", "www.d.example.": "192.0.2.1",
		"www.example.": "SERVFAIL", "www.e.test.": "REFUSED", "www.f.invalid.": "192.0.2.1", "www.catalog.invalid.": "REFUSED",
	})
	eventually(t, func() string {
		for _, want := range []string{
			"b.example. is a zone of the Corefile", "catalog.invalid. is a zone of the Corefile", "e.test. is outside the server block's zones",
			"example. is outside the zones of the option catalog", "c.example. is a zone of the Corefile",
		} {
			if !strings.Contains(log.String(), want) {
				return fmt.Sprintf("%s: not logged\n%s", want, log)
			}
		}
		if strings.Contains(log.String(), "a.example. is in catalog catalog.invalid.") == strings.Contains(log.String(), "a.example. is in catalog other.invalid.") {
			return "one catalog's a.example must be refused\n" + log.String()
		}
		return ""
	})
}

// Members of Knot's generated catalog, and of a catalog in a zone file of BIND, are copied as
// they appear, change and disappear. BIND's transfers and NOTIFY messages are signed.
func TestCatalogProducers(t *testing.T) {
	for name, p := range map[string]struct {
		program, file string
		args          []string
		config        func(t testing.TB, dir string, at, copied netip.AddrPort, serial int, members []string) string
	}{
		"knot": {"knotd", "knot.conf", []string{"-c"}, knotCatalog},
		"bind": {"named", "named.conf", []string{"-g", "-n", "1", "-c"}, bindCatalog},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			primary, at := freePort(t), freePort(t)
			config := filepath.Join(dir, p.file)
			member := func(i, serial int) {
				write(t, filepath.Join(dir, fmt.Sprintf("m%d.example.zone", i)), zoneFile(serial, 10*i))
			}
			list := func(serial, from, to int) {
				var members []string
				for i := from; i < to; i++ {
					members = append(members, fmt.Sprintf("m%d.example", i))
				}
				write(t, config, p.config(t, dir, primary, at, serial, members))
			}
			for i := range 8 {
				member(i, 1)
			}
			list(1, 0, 4)
			process := start(t, p.program, dir, primary, append(p.args, config)...)
			tsig, key := "", ""
			if name == "bind" {
				tsig, key = fmt.Sprintf(" tsig {\n secret key.example. %s\n require_opcode NOTIFY\n}\n", secret), " key key.example.\n"
			}
			log := run(t, at, fmt.Sprintf(". {\n%s secondary catalog.invalid {\n transfer from %s\n catalog\n%s}\n transfer {\n to *\n}\n whoami\n}", tsig, primary, key))
			copied := func(serial uint32, from, to int) {
				t.Helper()
				for i := range 8 {
					zone := fmt.Sprintf("m%d.example.", i)
					eventually(t, func() string {
						if i < from || i >= to {
							if got := answer(at, "ns."+zone); got != "NOERROR" {
								return fmt.Sprintf("%s: got %s, want none\n%s", zone, got, log)
							}
							return ""
						}
						if got := soa(at, zone); got != serial {
							return fmt.Sprintf("%s: got serial number %d, want %d\n%s", zone, got, serial, log)
						}
						return same(primary, at, zone)
					})
				}
			}
			copied(1, 0, 4)
			for serial := 2; serial < 5; serial++ {
				for i := range 8 {
					member(i, serial)
				}
				list(serial, serial-1, serial+3)
				if err := process.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
				copied(uint32(serial), serial-1, serial+3)
			}
		})
	}
}

func knotCatalog(_ testing.TB, dir string, at, copied netip.AddrPort, _ int, members []string) string {
	text := fmt.Sprintf("server:\n  listen: %s@%d\n  rundir: %s\n  pidfile: %s/pid\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n"+
		"database:\n  storage: %s\nlog:\n- target: stderr\n  any: info\nremote:\n- id: copy\n  address: %s@%d\nacl:\n- id: all\n  address: 127.0.0.1\n  action: transfer\n"+
		"template:\n- id: default\n  storage: %s\n  zonefile-sync: -1\n  zonefile-load: difference\n  journal-content: changes\n  acl: all\n  notify: copy\nzone:\n- domain: catalog.invalid\n  catalog-role: generate\n  journal-content: all\n  zonefile-load: none\n",
		at.Addr(), at.Port(), dir, dir, dir, copied.Addr(), copied.Port(), dir)
	for _, m := range members {
		text += fmt.Sprintf("- domain: %s\n  catalog-role: member\n  catalog-zone: catalog.invalid\n  catalog-group: kitchen\n", m)
	}
	return text
}

func bindCatalog(t testing.TB, dir string, at, copied netip.AddrPort, serial int, members []string) string {
	text := fmt.Sprintf("key key.example. { algorithm hmac-sha256; secret %q; };\noptions { directory %q; listen-on port %d { %s; }; listen-on-v6 { none; }; pid-file %q; session-keyfile %q;\n"+
		"recursion no; allow-transfer { any; }; dnssec-validation no; notify explicit; also-notify port %d { %s key key.example.; }; managed-keys-directory %q;\n"+
		"notify-delay 0; notify-rate 1000; startup-notify-rate 1000; ixfr-from-differences yes; };\ncontrols { };\n", secret, dir, at.Port(), at.Addr(), dir+"/pid", dir+"/key", copied.Port(), copied.Addr(), dir)
	records := fmt.Sprintf("$TTL 60\n@ SOA invalid. invalid. %d 3600 600 86400 60\n@ NS invalid.\nversion TXT \"2\"\n", serial)
	for i, m := range append([]string{"catalog.invalid"}, members...) {
		text += fmt.Sprintf("zone %q { type primary; file %q; };\n", m, m+".zone")
		if i > 0 {
			records += fmt.Sprintf("%s.zones PTR %[1]s.example.\ngroup.%[1]s.zones TXT kitchen\n", strings.TrimSuffix(m, ".example"))
		}
	}
	write(t, filepath.Join(dir, "catalog.invalid.zone"), records)
	return text
}

// A thousand members appear, and all but one disappear.
func TestCatalogThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	count := race.Fewer(1000)
	at := freePort(t)
	p := newCatalogPrimary(t, at)
	members := map[string]string{}
	for i := range count {
		zone := fmt.Sprintf("z%d.example", i)
		p.write(t, zone, fmt.Sprintf("www A 10.0.%d.%d", i>>8, i&255))
		members[fmt.Sprint("m", i)] = zone
	}
	p.catalog(t, "catalog.invalid", members)
	log := run(t, at, fmt.Sprintf(". {\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n whoami\n}", p.at))
	for i := range count {
		eventually(t, func() string {
			if got, want := answer(at, fmt.Sprintf("www.z%d.example.", i)), fmt.Sprintf("10.0.%d.%d", i>>8, i&255); got != want {
				text := log.String()
				return fmt.Sprintf("z%d: got %s, want %s\n%s", i, got, want, text[max(0, len(text)-2000):])
			}
			return ""
		})
	}
	p.catalog(t, "catalog.invalid", map[string]string{"m7": "z7.example"})
	for i := range count {
		want := "NOERROR"
		if i == 7 {
			want = "10.0.0.7"
		}
		eventually(t, func() string {
			if got := answer(at, fmt.Sprintf("www.z%d.example.", i)); got != want {
				return fmt.Sprintf("z%d: got %s, want %s", i, got, want)
			}
			return ""
		})
	}
}
