package dnsmasq_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/compat/dnsmasq"
	"github.com/seamark/seamark/corefile"
)

// Names that are keywords of a Corefile remain names.
func TestNamesLikeKeywords(t *testing.T) {
	o, err := dnsmasq.Parse(strings.Fields("-C /dev/null --no-hosts --address=/import/1.2.3.4 --host-record=ttl,1.2.3.5 --cname=import.ttl,import"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.Corefile(dnsmasq.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Fatalf("parsing: got error %v\n%s", err, text)
	}
	for _, d := range servers[0].Directives {
		if d.Text != "records" {
			continue
		}
		var names []string
		for _, o := range d.Body {
			names = append(names, o.Text)
		}
		if want := []string{"ttl", "5.3.2.1.in-addr.arpa", "import.ttl", "import.", "*.import"}; !slices.Equal(names, want) {
			t.Errorf("names of records: got %q, want %q", names, want)
		}
		return
	}
	t.Errorf("got\n%s\nwant a directive records", text)
}
