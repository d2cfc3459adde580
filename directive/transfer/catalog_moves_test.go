package transfer_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A zone moves to another catalog if the property coo of the first permits it, whichever
// catalog changes first, and keeps its data if the member nodes have the same label.
func TestCatalogMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for name, c := range map[string]struct {
		label     string // in the second catalog
		coo       string // in the first
		back      string // coo in the second
		listFirst bool   // the second catalog changes before the first
		moves     bool
	}{
		"same label":    {"one", "b.invalid", "", false, true},
		"another label": {"two", "b.invalid", "", false, true},
		"listed first":  {"one", "b.invalid", "", true, true},
		"no owner":      {"one", "", "", true, false},
		"another owner": {"one", "c.invalid", "", true, false},
		"both ways":     {"one", "b.invalid", "a.invalid", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			at, dir := freePort(t), t.TempDir()
			p := newCatalogPrimary(t, at)
			p.write(t, "m.example", "www A 192.0.2.1")
			p.catalog(t, "a.invalid", map[string]string{"one": "m.example"})
			p.catalog(t, "b.invalid", nil)
			log := run(t, at, fmt.Sprintf(". {\n secondary a.invalid {\n transfer from %[1]s\n file %[2]s/a\n catalog\n}\n secondary b.invalid {\n transfer from %[1]s\n file %[2]s/b\n catalog\n}\n whoami\n}", p.at, dir))
			serial := func(catalog string, want uint32) {
				t.Helper()
				eventually(t, func() string {
					if got := soa(at, catalog+"."); got != want {
						return fmt.Sprintf("%s: got serial number %d, want %d\n%s", catalog, got, want, log)
					}
					return ""
				})
			}
			answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
			serial("b.invalid", 1)
			release := func() {
				text := "version TXT \"2\"\none.zones PTR m.example.\n"
				if c.coo != "" {
					text += "coo.one.zones PTR " + c.coo + ".\n"
				}
				p.write(t, "a.invalid", text)
				serial("a.invalid", 2)
			}
			list := func() {
				text := fmt.Sprintf("version TXT \"2\"\n%s.zones PTR m.example.\n", c.label)
				if c.back != "" {
					text += fmt.Sprintf("coo.%s.zones PTR %s.\n", c.label, c.back)
				}
				p.write(t, "b.invalid", text)
				serial("b.invalid", 2)
			}
			if c.listFirst {
				list()
				release()
			} else {
				release()
				list()
			}
			moved := strings.Contains(log.String(), "Moved zone\" zone=m.example. catalog=b.invalid.")
			reset := strings.Contains(log.String(), "Reset zone\" zone=m.example. catalog=b.invalid.")
			if moved != (c.moves && c.label == "one") || reset != (c.moves && c.label != "one") {
				t.Errorf("moved with data: %v, without data: %v\n%s", moved, reset, log)
			}
			answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
			// The catalog that has not the zone does not remove it.
			p.catalog(t, map[bool]string{true: "a.invalid", false: "b.invalid"}[c.moves], nil)
			serial(map[bool]string{true: "a.invalid", false: "b.invalid"}[c.moves], 3)
			answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
			if c.moves {
				p.catalog(t, "b.invalid", nil)
			} else {
				p.catalog(t, "a.invalid", nil)
			}
			answers(t, at, log, map[string]string{"www.m.example.": "NOERROR"})
			eventually(t, func() string {
				if got := files(t, dir); got != "a b" {
					return "got files " + got
				}
				return ""
			})
		})
	}
}

// The zone of a member that is in two catalogs is served when the first removes it.
func TestCatalogReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at := freePort(t)
	p := newCatalogPrimary(t, at)
	p.write(t, "m.example", "www A 192.0.2.1")
	p.catalog(t, "a.invalid", map[string]string{"one": "m.example"})
	p.catalog(t, "b.invalid", nil)
	log := run(t, at, fmt.Sprintf(". {\n secondary a.invalid b.invalid {\n transfer from %s\n catalog\n}\n whoami\n}", p.at))
	answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
	p.catalog(t, "b.invalid", map[string]string{"two": "m.example"})
	eventually(t, func() string {
		if !strings.Contains(log.String(), "m.example. is in catalog a.invalid.") {
			return "not refused: " + log.String()
		}
		return ""
	})
	p.catalog(t, "a.invalid", nil)
	eventually(t, func() string {
		if !strings.Contains(log.String(), "zone=m.example. catalog=b.invalid.") {
			return "not added: " + log.String()
		}
		return ""
	})
	answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
}

// A catalog that expires keeps its members.
func TestCatalogExpires(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	primary, at, dir := freePort(t), freePort(t), t.TempDir()
	write(t, filepath.Join(dir, "db.catalog.invalid"), "$ORIGIN catalog.invalid.\n@ 5 SOA ns host 1 1 1 2 5\nversion 5 TXT 2\nm.zones 5 PTR m.example.\n")
	write(t, filepath.Join(dir, "db.m.example"), "$ORIGIN m.example.\n@ 5 SOA ns host 1 1 1 600 5\nwww 5 A 192.0.2.1\n")
	plan, _ := serve(t, primary, nil, fmt.Sprintf(". {\n auto {\n directory %s\n}\n transfer {\n to *\n}\n}", dir))
	log := run(t, at, fmt.Sprintf(". {\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n}", primary))
	answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
	plan.Stop(t.Context())
	eventually(t, func() string {
		if soa(at, "catalog.invalid.") != 0 || !strings.Contains(log.String(), "Zone expired\" zone=catalog.invalid.") {
			return "the catalog has not expired"
		}
		return ""
	})
	answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
}
