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
	// A sourced lister may have the same records as another one, from which it differs in other options.
	sourced interface {
		// RecordSource identifies the records of each zone: those of a lister with the same one are the same.
		RecordSource() any
	}
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

// Records returns the records of listers. Those of a zone that several listers of a directive have from the same
// source, as the server blocks of several ports, are listed once.
func Records(listers iter.Seq[Named]) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		type listed struct {
			directive string
			origin    wire.Name
			source    any
		}
		seen := map[listed]bool{}
		for h := range listers {
			for _, origin := range h.AuthoritativeZones() {
				records, source := zoneRecords(h.Lister, origin)
				zone := listed{h.Directive, origin, source}
				if records == nil || seen[zone] {
					continue
				}
				seen[zone] = true

				for wire := range records {
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

// zoneRecords returns the records of a zone of h, nil if there are none, and what identifies them.
func zoneRecords(h Lister, origin wire.Name) (records iter.Seq[[]byte], source any) {
	var lister any = h
	if p, ok := h.(partial); ok {
		lister = p.Partial
	}
	switch h := lister.(type) {
	case generating:
		records, source = h.ZoneRecords(origin), h
	case versioned:
		if v := h.Version(origin); v != nil {
			records, source = v.Records, v
		}
	}
	if h, ok := lister.(sourced); ok {
		source = h.RecordSource()
	}
	return records, source
}
