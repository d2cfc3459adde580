// Package file implements the file directive: authoritative answers from zone
// files.
//
// Setup reads the options (setup.go) and the zone files (load.go), so that seamark
// check finds their errors. A source (source.go) serves a file's zones and
// replaces them when the file changes. File (file.go) selects the zone for a
// query; package zone computes the answer. Auto (auto.go) does the same for the files
// of a directory.
//
// The directive sign is here, too, as it reads the same files: sign.go has its options, and
// a signer (signer.go) writes a zone's signed file whenever that is due.
package file

import (
	"context"

	"github.com/seamark/seamark/directive/internal/zones"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A File answers authoritatively from zone files: the file directive. Its reference page is
// docs/reference/directives/file.md.
type File struct {
	zones wire.ZoneMap[*served]
}

// A served is one zone of a File.
type served struct {
	*use
	index int // in use.origins
}

// zone returns the current version of the zone.
func (s *served) zone() *zone.Zone { return s.source.zones[s.index].Load() }

// AuthoritativeZones returns f's zones.
func (f *File) AuthoritativeZones() []wire.Name { return f.zones.Zones() }

// ServeDNS answers queries for names in f's zones.
func (f *File) ServeDNS(q *dns.Query) dns.Verdict {
	s := f.find(q)
	if s == nil {
		return dns.Next
	}
	if q.Type.IsTransfer() {
		q.Fail(wire.Refused)
		return dns.Done
	}

	return zones.Answer(q, s.zone(), &f.zones, &s.fallthru)
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (f *File) Resolve(ctx context.Context, q *dns.Query) error { return q.ResumeTarget(ctx) }

// find returns the longest zone that contains the query name, or nil.
func (f *File) find(q *dns.Query) *served { return zones.Find(q, &f.zones) }

// Metadata returns the value of zone/wildcard.
func (f *File) Metadata(q *dns.Query, key string) (value string, ok bool) {
	if s := f.find(q); s != nil {
		return s.zone().Metadata(q.Name(), key)
	}
	return "", false
}

// Version implements [zone.Transferable].
func (f *File) Version(origin wire.Name) zone.Version {
	if s := f.zones.Get(origin); s != nil {
		return s.zone()
	}
	return nil
}

// Follow implements [zone.Transferable].
func (f *File) Follow(changed func(origin wire.Name)) (stop func()) {
	var stops []func()
	for origin, s := range f.zones.All() {
		stops = append(stops, s.source.followers.Add(func(name wire.Name) {
			if name == origin {
				changed(name)
			}
		}))
		changed(origin)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
