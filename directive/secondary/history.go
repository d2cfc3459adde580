package secondary

import (
	"iter"
	"slices"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A version is a version of a zone with the differences that led to it, for servers that copy the zone
// from here with IXFR.
type version struct {
	*zone.Zone
	journal zone.Journal
}

// Since implements [zone.Differ].
func (v *version) Since(serial uint32) (iter.Seq[[]byte], bool) {
	return v.journal.Since(serial, v.SOA())
}

// version returns the present version, or nil. It may be one that queries are not answered from yet.
func (c *zoneCopy) version() zone.Version {
	v := c.history.Load()
	if v == nil || c.current.Load() == nil {
		return nil
	}
	return v
}

// journalTo returns the journal of a new version. Differences are kept as the primary has sent them, so
// that all servers that copy from it know the same serial numbers; those between two whole zones are found
// here, so that the server's own followers need not transfer the whole zone.
func (s *schedule) journalTo(z *zone.Zone, in *incoming) zone.Journal {
	switch {
	case !s.copy.sends.Load() || s.zone == nil:
		return zone.Journal{}
	case in.changes != nil:
		return in.sent.journal
	}

	removed, added, ok := zone.Differences(s.zone, z, zone.MaxJournal)
	if !ok {
		return zone.Journal{}
	}
	return s.journal.Then(s.zone.SOA(), z.SOA(), removed, added)
}

// A sent is the differences of a transfer as they were sent.
type sent struct {
	keep           bool
	journal        zone.Journal // up to the version that the differences so far lead to
	soa            []byte       // of that version
	removed, added []byte       // since then
}

// record adds a removed or added record.
func (s *sent) record(r []byte, n int) {
	if at, _ := wire.ReadRecord(r, 0); !s.keep || at.Type == wire.TypeSOA {
		return
	}
	if n < 0 {
		s.removed = append(s.removed, r...)
	} else {
		s.added = append(s.added, r...)
	}
}

// end ends the differences that lead to the version with a SOA record.
func (s *sent) end(soa []byte) {
	if s.keep {
		s.journal = s.journal.Then(s.soa, soa, s.removed, s.added)
		s.soa, s.removed, s.added = slices.Clone(soa), nil, nil
	}
}
