package transfer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
)

// sent returns how often a primary has sent a whole zone.
func (p *catalogPrimary) sent(zone string) (n int) {
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "Sent zone\" zone="+zone+".") && strings.Contains(line, "kind=AXFR") {
			n++
		}
	}
	return n
}

// A reload with other options of catalogs, or with other zones, transfers new members alone.
// The others are answered all the time.
func TestCatalogReload(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at, dir := freePort(t), t.TempDir()
	p := newCatalogPrimary(t, at)
	for i, zone := range []string{"a.example", "b.test", "c.example", "d.example"} {
		p.write(t, zone, fmt.Sprintf("www A 192.0.2.%d", i+1))
	}
	p.catalog(t, "one.invalid", map[string]string{"a": "a.example", "b": "b.test", "c": "c.example"})
	p.catalog(t, "two.invalid", map[string]string{"d": "d.example"})
	a, b, c, d := "www.a.example.", "www.b.test.", "www.c.example.", "www.d.example."
	first := fmt.Sprintf("secondary one.invalid {\n transfer from %s\n catalog\n}\n", p.at)
	second := fmt.Sprintf("secondary two.invalid {\n transfer from %s\n catalog\n}\n", p.at)
	write(t, filepath.Join(dir, "db"), "$ORIGIN c.example.\n@ 60 SOA ns.invalid. host.invalid. 1 3600 600 86400 60\nwww 60 A 198.51.100.3\n")
	const saved = "db saved saved.a.example saved.c.example"
	var plan *server.Plan
	t.Cleanup(func() { plan.Stop(context.Background()) })
	for _, step := range []struct {
		name, corefile string
		want           map[string]string // "NOERROR" is whoami's answer
		sent           map[string]int
	}{
		{
			"all members", ". {\n" + first + "whoami\n}",
			map[string]string{a: "192.0.2.1", b: "192.0.2.2", c: "192.0.2.3", d: "NOERROR"},
			map[string]int{"one.invalid": 1, "a.example": 1, "b.test": 1, "c.example": 1},
		},
		{
			"the option catalog has a zone", ". {\n" + strings.Replace(first, "catalog\n", "catalog example\n", 1) + "whoami\n}",
			map[string]string{a: "192.0.2.1", b: "NOERROR", c: "192.0.2.3", d: "NOERROR"},
			map[string]int{"one.invalid": 1, "a.example": 1, "b.test": 1, "c.example": 1},
		},
		{
			"another catalog, and a file with the zone of a member", ". {\n" + first + second + "file " + dir + "/db c.example\nwhoami\n}",
			map[string]string{a: "192.0.2.1", b: "192.0.2.2", c: "198.51.100.3", d: "192.0.2.4"},
			map[string]int{"one.invalid": 1, "two.invalid": 1, "a.example": 1, "b.test": 2, "c.example": 1, "d.example": 1},
		},
		{
			"other zones and an option of the server block", "example invalid {\n" + second + first + "cancel 2s\nwhoami\n}\n. {\nwhoami\n}",
			map[string]string{a: "192.0.2.1", b: "NOERROR", c: "192.0.2.3", d: "192.0.2.4"},
			map[string]int{"one.invalid": 1, "two.invalid": 1, "a.example": 1, "b.test": 2, "c.example": 2, "d.example": 1},
		},
		{
			"two server blocks", "example invalid {\n" + first + "whoami\n}\nd.example two.invalid {\n" + second + "whoami\n}",
			map[string]string{a: "192.0.2.1", b: "REFUSED", c: "192.0.2.3", d: "192.0.2.4"},
			map[string]int{"one.invalid": 1, "a.example": 1, "b.test": 2, "c.example": 2},
		},
		{
			"files", "example invalid {\n" + strings.Replace(first, "catalog\n", "catalog\nfile "+dir+"/saved\n", 1) + "whoami\n}",
			map[string]string{a: "192.0.2.1", b: "REFUSED", c: "192.0.2.3", d: "NOERROR"},
			map[string]int{"a.example": 1, "b.test": 2, "c.example": 2},
		},
		{
			"no catalog", "example invalid {\nwhoami\n}",
			map[string]string{a: "NOERROR", b: "REFUSED", c: "NOERROR", d: "NOERROR"},
			map[string]int{"a.example": 1, "b.test": 2, "c.example": 2},
		},
	} {
		var log *chaintest.Log
		kept := plan != nil && strings.Contains(step.corefile, "one.invalid")
		plan, log = serve(t, at, plan, step.corefile)
		if got := answer(at, a); kept && got != "192.0.2.1" {
			t.Errorf("%s: %s has answer %s after the reload, want 192.0.2.1", step.name, a, got)
		}
		answers(t, at, log, step.want)
		if got := answer(at, a); got != step.want[a] {
			t.Errorf("%s: %s has answer %s, want %s", step.name, a, got, step.want[a])
		}
		if step.name == "files" { // the catalog is transferred again, since it has another option
			eventually(t, func() string {
				if got := files(t, dir); got != saved {
					return "got files " + got
				}
				return ""
			})
		}
		for zone, want := range step.sent {
			// The secondary may serve a zone before the primary logs that it has sent it.
			eventually(t, func() string {
				if got := p.sent(zone); got < want {
					return fmt.Sprintf("%s: the primary has sent %s %d times, want %d", step.name, zone, got, want)
				}
				return ""
			})
			if got := p.sent(zone); got > want {
				t.Errorf("%s: the primary has sent %s %d times, want %d", step.name, zone, got, want)
			}
		}
	}
	if got := files(t, dir); got != saved {
		t.Errorf("got files %s", got)
	}
}
