package inventory

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// name returns a domain name in wire form.
func name(t *testing.T, text string) wire.Name {
	t.Helper()
	n, err := wire.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// records returns resource records in wire form.
func records(t *testing.T, lines ...string) iter.Seq[[]byte] {
	t.Helper()
	var list [][]byte
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, dns.Len(rr))
		n, err := dns.PackRR(rr, buffer, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, buffer[:n])
	}
	return slices.Values(list)
}

// objects is a lister that makes records of a zone, as kubernetes does.
type objects struct {
	origin  wire.Name
	records iter.Seq[[]byte]
}

func (o *objects) AuthoritativeZones() []wire.Name               { return []wire.Name{o.origin} }
func (o *objects) ZoneRecords(origin wire.Name) iter.Seq[[]byte] { return o.records }

// shared is objects of which several handlers have the same.
type shared struct {
	*objects
	ttl int
}

func (s *shared) RecordSource() any { return shared{s.objects, s.ttl} }

// part is a Partial.
type part struct{ shared }

func (p *part) ListedZones() []wire.Name { return p.objects.AuthoritativeZones() }

// version is a version of a zone.
type version struct {
	zone.Version
	records iter.Seq[[]byte]
}

func (v *version) Records(yield func([]byte) bool) { v.records(yield) }

// files is a lister with versions of zones, as file is. A zone may have none yet.
type files map[wire.Name]zone.Version

func (f files) AuthoritativeZones() []wire.Name       { return slices.Sorted(maps.Keys(f)) }
func (f files) Version(origin wire.Name) zone.Version { return f[origin] }

// others is a lister whose records cannot be listed.
type others struct{ origin wire.Name }

func (o others) AuthoritativeZones() []wire.Name { return []wire.Name{o.origin} }

// list returns the records of listers, and at most n of them.
func list(n int, listers ...any) (lines []string) {
	pairs := func(yield func(Named) bool) {
		for i := 0; i < len(listers); i += 2 {
			if !yield(Named{listers[i].(string), listers[i+1].(Lister)}) {
				return
			}
		}
	}
	for r := range Records(pairs) {
		lines = append(lines, fmt.Sprintf("%s %s: %s %d %s %s", r.Directive, r.Zone, r.Name, r.TTL, r.Type, r.Data))
		if len(lines) == n {
			break
		}
	}
	return lines
}

// The records of all listers are listed.
func TestRecords(t *testing.T) {
	cluster, a := name(t, "cluster.local."), name(t, "a.example.")
	kubernetes := &objects{cluster, records(t, "web.shop.svc.cluster.local. 5 IN A 10.0.0.1", `txt.cluster.local. 30 IN TXT "a b" "\"c"`, `odd.cluster.local. 30 IN TYPE65280 \# 2 ABCD`)}
	malformed := &objects{a, func(yield func([]byte) bool) {
		for _, record := range [][]byte{{1}, []byte("\x01a\x00\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04abc")} {
			if !yield(record) {
				return
			}
		}
	}}
	want := []string{
		"kubernetes cluster.local.: web.shop.svc.cluster.local. 5 A 10.0.0.1",
		`kubernetes cluster.local.: txt.cluster.local. 30 TXT "a b" "\"c"`,
		`kubernetes cluster.local.: odd.cluster.local. 30 TYPE65280 \# 2 abcd`,
	}
	if got := list(0, "kubernetes", kubernetes, "kubernetes", kubernetes, "file", files{a: nil}, "auto", others{a}, "template", malformed); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := list(0, "kubernetes", kubernetes, "other", kubernetes); len(got) != 6 {
		t.Errorf("a zone of two directives: got %q, want the records of both", got)
	}
	if got := list(1, "kubernetes", kubernetes, "other", kubernetes); len(got) != 1 {
		t.Errorf("with a break after the first: got %q, want one", got)
	}
}

// Listers of one directive and zone, as in two views, are all listed, and those of the same source once.
func TestRecordsOfOneZone(t *testing.T) {
	a := name(t, "a.example.")
	inside := &version{records: records(t, "in.a.example. 5 IN A 10.0.0.1")}
	outside := &version{records: records(t, "out.a.example. 5 IN A 192.0.2.1")}
	one, two := &objects{a, inside.records}, &objects{a, outside.records}
	of := func(o *objects, ttl int) shared { return shared{o, ttl} }
	for _, c := range []struct {
		listers []Lister
		want    []string
	}{
		{[]Lister{files{a: inside}, files{a: outside}, files{a: inside}}, []string{"in.a.example.", "out.a.example."}},
		{[]Lister{files{a: nil}, files{a: inside}}, []string{"in.a.example."}},
		{[]Lister{one, two, one}, []string{"in.a.example.", "out.a.example."}},
		{[]Lister{new(of(one, 5)), new(of(one, 5)), new(of(two, 5))}, []string{"in.a.example.", "out.a.example."}},
		{[]Lister{new(of(one, 5)), new(of(one, 6))}, []string{"in.a.example.", "in.a.example."}},
		{[]Lister{partial{&part{of(one, 5)}}, partial{&part{of(one, 5)}}, partial{&part{of(two, 5)}}}, []string{"in.a.example.", "out.a.example."}},
	} {
		var named []Named
		for _, l := range c.listers {
			named = append(named, Named{"x", l})
		}
		var got []string
		for r := range Records(slices.Values(named)) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.listers, got, c.want)
		}
	}
}

func TestFilter(t *testing.T) {
	r := Record{Zone: "cluster.local.", Directive: "kubernetes", Name: "Web.Shop.svc.cluster.local.", Type: "SRV"}
	for _, c := range []struct {
		zone, directive, name, kind string
		want                        bool
	}{
		{"", "", "", "", true},
		{"cluster.local", "", "", "", true},
		{"CLUSTER.local.", "kubernetes", "web.SHOP", "srv", true},
		{"local", "", "", "", false},
		{"", "file", "", "", false},
		{"", "", "cart", "", false},
		{"", "", "", "A", false},
	} {
		f, err := NewFilter(c.zone, c.directive, c.name, c.kind)
		if err != nil || f.Selects(&r) != c.want {
			t.Errorf("%+v: got %v and error %v, want %v", c, f.Selects(&r), err, c.want)
		}
	}
	if _, err := NewFilter("", "", "", "nosuch"); err == nil || err.Error() != `type: want a record type such as SRV or TYPE65, got "NOSUCH"` {
		t.Errorf("an unknown type: got error %v", err)
	}
}
