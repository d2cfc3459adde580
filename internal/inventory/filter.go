package inventory

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
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
	if _, known := dns.StringToType[f.kind]; f.kind != "" && !known {
		return f, fmt.Errorf("type: want a record type such as SRV, got %q", f.kind)
	}
	return f, nil
}

// Selects reports whether the filter selects a record.
func (f *Filter) Selects(r *Record) bool {
	return (f.zone == "" || f.zone == r.Zone) && (f.directive == "" || f.directive == r.Directive) &&
		(f.kind == "" || f.kind == r.Type) && strings.Contains(strings.ToLower(r.Name), f.name)
}
