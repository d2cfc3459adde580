// Package inventory lists the records of the zones that directives have data of: the zones of
// a cluster, zone files, and copies of other servers' zones. The directive admin serves
// them, and package operate/local lists the records of a Corefile.
package inventory

import (
	"fmt"
	"iter"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A Lister is a handler that has zones whose records can be listed.
type Lister interface{ AuthoritativeZones() []wire.Name }

// A Partial is a handler that has some records in zones, and passes other names on.
type Partial interface {
	ListedZones() []wire.Name
	ZoneRecords(origin wire.Name) iter.Seq[[]byte]
}

// A partial is a Lister of the records of a Partial. It has authority for no zone.
type partial struct{ Partial }

func (p partial) AuthoritativeZones() []wire.Name { return p.ListedZones() }

// A Named is a lister and the name of its directive.
type Named struct {
	Directive string
	Lister
}

// ListersOf returns the listers among the handlers of a server block.
func ListersOf(b *config.Block) (all []Named) {
	for _, h := range config.Find[Lister](b) {
		all = append(all, Named{b.NameOf(h), h})
	}
	for _, h := range config.Find[Partial](b) {
		all = append(all, Named{b.NameOf(h), partial{h}})
	}
	return all
}

type (
	// A generating lister makes records from objects (kubernetes).
	generating interface {
		ZoneRecords(origin wire.Name) iter.Seq[[]byte]
	}
	// A versioned lister has versions of zones (file, auto, secondary).
	versioned interface {
		Version(origin wire.Name) zone.Version
	}
)

// A Record is a record that the server serves.
type Record struct {
	Zone      string `json:"zone"`
	Directive string `json:"directive"`
	Name      string `json:"name"`
	TTL       uint32 `json:"ttl"`
	Type      string `json:"type"`
	Data      string `json:"data"`
}

// Records returns the records of listers. A zone that several listers of a directive have is
// listed once.
func Records(listers iter.Seq[Named]) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		seen := map[string]bool{}
		for h := range listers {
			for _, origin := range h.AuthoritativeZones() {
				key := h.Directive + " " + string(origin)
				if seen[key] {
					continue
				}
				seen[key] = true

				for wire := range zoneRecords(h.Lister, origin) {
					rr, _, err := dns.UnpackRR(wire, 0)
					if err == nil && !yield(record(origin, h.Directive, rr)) {
						return
					}
				}
			}
		}
	}
}

func record(origin wire.Name, directive string, rr dns.RR) Record {
	header := rr.Header()
	data := strings.TrimPrefix(rr.String(), header.String())
	if unknown, ok := rr.(*dns.RFC3597); ok { // whose String has another header
		data = fmt.Sprintf(`\# %d %s`, len(unknown.Rdata)/2, unknown.Rdata)
	}
	return Record{origin.String(), directive, header.Name, header.Ttl, dns.Type(header.Rrtype).String(), data}
}

// zoneRecords returns the records of a zone of h.
func zoneRecords(h Lister, origin wire.Name) iter.Seq[[]byte] {
	switch h := h.(type) {
	case generating:
		return h.ZoneRecords(origin)
	case versioned:
		if v := h.Version(origin); v != nil {
			return v.Records
		}
	}
	return func(func([]byte) bool) {}
}
