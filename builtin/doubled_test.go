package builtin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// doubledFile has what comes of each directive that is given twice, with N in place of numbers.
const doubledFile = "testdata/doubled.txt"

// Each directive is given twice in one server block, in two blocks, and in one block of two zones, with the
// Corefile of its page. It is refused with its position, or serves, also after a reload, and leaves no gauges.
func TestDirectivesDoubled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	pages := map[string]string{}
	for _, d := range Directives() {
		pages[d.Name] = read(t, filepath.Join(referenceDir, d.Name+".md"))
	}
	golden, err := filepath.Abs(doubledFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder(t))
	keysForPages(t)

	var results strings.Builder
	for _, d := range Directives() {
		blocks, i, j := example(t, d.Name, pages[d.Name])
		if i < 0 {
			t.Errorf("%s: no Corefile of its page has the directive", d.Name)
			continue
		}
		single, err := serveTwice(t, blocks, blocks)
		if err != nil {
			t.Errorf("%s: got error %v, want none", d.Name, err)
			continue
		}

		report := func(what string, variant []corefile.Server) {
			fmt.Fprintf(&results, "%s: %s\n", what, check(t, what, variant, blocks, single))
		}
		twice := slices.Clone(blocks)
		twice[i].Directives = slices.Insert(slices.Clone(twice[i].Directives), j, twice[i].Directives[j])
		report(d.Name+" twice", twice)

		zone := twice[i].Keys[0]
		zone.Text = "doubled.example"
		zones := slices.Clone(blocks)
		zones[i].Keys = append(slices.Clone(zones[i].Keys), zone)
		report(d.Name+" in a block of two zones", zones)

		another := blocks[i]
		another.Keys = []corefile.Token{zone}
		report(d.Name+" in two blocks", append(slices.Clone(blocks), another))

		_, err = serveTwice(t, append(slices.Clone(blocks), blocks[i]), blocks)
		if err == nil || !conflict.MatchString(err.Error()) {
			t.Errorf("%s in two blocks of one zone: got error %v, want one about the zone", d.Name, err)
		}
	}

	if *update {
		if err := os.WriteFile(golden, []byte(results.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, golden); results.String() != want {
		t.Errorf("got\n%swant, as %s has it,\n%s", results.String(), doubledFile, want)
	}
}

// example returns the first Corefile of a page that has a directive, with the places of its block and of the
// directive in it.
func example(t *testing.T, name, page string) (blocks []corefile.Server, i, j int) {
	t.Helper()
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		blocks, err := corefile.Parse("Corefile", []byte(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		for i := range blocks {
			if j := corefile.IndexOf(blocks[i].Directives, name); j >= 0 && len(blocks[i].Keys) > 0 {
				toLoopback(blocks)
				return blocks, i, j
			}
		}
	}
	return nil, -1, -1
}

// conflict matches the error about two blocks of one zone at an address.
var conflict = regexp.MustCompile(`^Corefile:[0-9]+: .*: (zone|view \S+ of zone) \S+ is already served on \S+ by \S+ at Corefile:[0-9]+`)

var digits = regexp.MustCompile(`[0-9]+`)

// check serves a Corefile, and returns what comes of it. left are the gauges that others leave.
func check(t *testing.T, what string, blocks, others []corefile.Server, left []string) string {
	t.Helper()
	now, err := serveTwice(t, blocks, others)
	if err != nil {
		if !strings.HasPrefix(err.Error(), "Corefile:") {
			t.Errorf("%s: got error %v, want one with the position", what, err)
		}
		dir, _ := os.Getwd()
		return digits.ReplaceAllString(strings.NewReplacer("\n", "; ", dir, "DIR").Replace(err.Error()), "N")
	}
	for _, name := range now {
		if !slices.Contains(left, name) {
			t.Errorf("%s: the gauge %s is left after the stop", what, name)
		}
	}
	return "serves"
}

// serveTwice serves a Corefile, reloads it, and reloads another one. It returns the gauges that are left after
// the stop.
func serveTwice(t *testing.T, blocks, others []corefile.Server) (left []string, err error) {
	t.Helper()
	reg := new(metrics.Registry)
	o := server.Options{
		Directives: withInterfaces(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: reg,
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
	}
	var serving *server.Plan
	for _, next := range [][]corefile.Server{blocks, blocks, others} {
		plan, err := server.NewPlan(next, o)
		if err == nil {
			err = plan.Start(t.Context(), serving)
		}
		if err != nil && serving == nil {
			return nil, err
		}
		if err != nil && strings.Contains(err.Error(), "from the API server within") {
			break // a reload waits for one, which there is not
		}
		if err != nil {
			t.Errorf("reload: %v", err)
			break
		}
		serving = plan
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	serving.Stop(ended)
	var text strings.Builder
	if err := reg.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	gauges := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" && words[3] == "gauge" {
			gauges[words[2]] = true
		}
	}
	return slices.Sorted(maps.Keys(gauges)), nil
}
