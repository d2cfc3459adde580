package inventory

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A Filter selects records.
type Filter struct{ zone, directive, name, kind string }

// NewFilter returns a filter for the records of a zone, a directive and a type, with a part
// of the name, in any letter case. Arguments that are empty select all.
func NewFilter(zone, directive, name, kind string) (Filter, error) {
	f := Filter{zone, directive, strings.ToLower(name), strings.ToUpper(kind)}
	if f.zone != "" {
		f.zone = dns.CanonicalName(f.zone)
	}
	if f.kind != "" {
		t, known := wire.ParseType(f.kind)
		if !known {
			return f, fmt.Errorf("type: want a record type such as SRV or TYPE65, got %q", f.kind)
		}
		f.kind = t.String()
	}
	return f, nil
}

// Selects reports whether the filter selects a record.
func (f *Filter) Selects(r *Record) bool {
	return (f.zone == "" || f.zone == r.Zone) && (f.directive == "" || f.directive == r.Directive) &&
		(f.kind == "" || f.kind == r.Type) && strings.Contains(strings.ToLower(r.Name), f.name)
}
