package cmd

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]version{
		"1.15.0": {1, 15, 0}, "v1.15": {1, 15, 0}, "v1.11.1-eksbuild.4": {1, 11, 1}, "1.0.6": {1, 0, 6},
		"": {}, "1": {}, "2.0.0": {}, "1.x": {}, "1.2.3.4": {},
	} {
		if got, ok := parseVersion(text); ok != (want != version{}) || ok && got != want {
			t.Errorf("parseVersion(%q): got %v, %v, want %v", text, got, ok, want)
		}
	}
}

// Each option in the examples of the directives is an option of CoreDNS, whose versions the
// table has, or Seamark's own.
func TestCoreDNSTableComplete(t *testing.T) {
	text, err := os.ReadFile("../builtin/testdata/accepted.txt")
	if err != nil {
		t.Fatal(err)
	}
	// Bodies with words of the user, or with a grammar of their own.
	free := []string{"records", "rewrite", "federation"}
	table, own := readTable(corednsTable), onlySeamark()
	checked := map[string]bool{}
	for group := range strings.SplitSeq(string(text), "\n\n") {
		if group = strings.Trim(group, "\n"); group == "" || group[0] == '#' {
			continue
		}
		servers, err := corefile.Parse("accepted.txt", []byte(". {\n"+group+"\n}\n"))
		if err != nil {
			continue // a group of whole server blocks
		}
		for _, d := range servers[0].Directives {
			for _, o := range d.Body {
				option := strings.ToLower(o.Text)
				name := d.Text + " " + option
				if checked[name] || slices.Contains(free, d.Text) || table[d.Text] == nil {
					continue
				}
				if _, err := netip.ParseAddr(o.Text); err == nil && d.Text == "hosts" {
					continue
				}
				checked[name] = true
				if (table[name] == nil) == !slices.Contains(own[d.Text], option) {
					t.Errorf("%s: the table of CoreDNS's options has %v, and the list of Seamark's own options %q; want one of them", name, table[name], own[d.Text])
				}
			}
		}
	}
	if len(checked) < 50 {
		t.Errorf("got %d options in accepted.txt, want 50 or more", len(checked))
	}
}

func TestAbsent(t *testing.T) {
	ranges := []versions{{version{1, 2, 0}, version{1, 4, 0}}, {version{1, 6, 0}, version{}}}
	for _, c := range []struct {
		v    version
		want string
	}{
		{version{1, 1, 9}, "not before 1.2.0"},
		{version{1, 2, 0}, ""},
		{version{1, 3, 9}, ""},
		{version{1, 4, 0}, "not before 1.6.0"},
		{version{1, 6, 0}, ""},
	} {
		if got := absent(ranges, c.v); got != c.want {
			t.Errorf("absent in %v: got %q, want %q", c.v, got, c.want)
		}
	}
	if got := absent(ranges[:1], version{1, 5, 0}); got != "removed (1.4.0)" {
		t.Errorf("absent in 1.5.0: got %q, want that it is removed", got)
	}
	if got := absent(nil, version{1, 5, 0}); got != "" {
		t.Errorf("absent of an option that the table does not list: got %q, want none", got)
	}
}
