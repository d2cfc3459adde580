package kubernetes

import (
	"iter"
	"slices"

	"github.com/seamark/seamark/zone"
)

// A liveVersion is a version of a liveZone. It is immutable.
type liveVersion struct {
	zone    *liveZone
	soa     []byte
	journal zone.Journal
}

// commit makes a new version of the zone if there are differences, and reports whether
// there are. The caller holds the lock of the index.
func (z *liveZone) commit(d *differences) bool {
	before := z.current.Load()
	removed, added := d.records()
	switch {
	case before == nil:
		z.show(&liveVersion{zone: z})
	case d.incomplete():
		z.serial.Store(z.nextSerial())
		z.show(&liveVersion{zone: z})
	case len(removed)+len(added) == 0:
		return false
	default:
		z.follow(before, z.nextSerial(), removed, added)
	}
	return true
}

// follow makes a new version with a serial number, from the current one and the records that differ. The caller
// holds the lock of the index.
func (z *liveZone) follow(before *liveVersion, serial uint32, removed, added []byte) {
	z.serial.Store(serial)
	z.show(&liveVersion{zone: z, journal: before.journal.Then(before.soa, z.records.soa(), removed, added)})
}

// nextSerial returns the serial number of the next version.
func (z *liveZone) nextSerial() uint32 {
	return z.serials.Next(z.records.zone.name, z.serial.Load(), z.now())
}

// show makes a version the current one. The caller holds the lock of the index.
func (z *liveZone) show(v *liveVersion) {
	v.soa, v.journal = z.records.soa(), v.journal.Within(z.memory)
	z.current.Store(v)
}

// Serial implements [zone.Version].
func (v *liveVersion) Serial() (uint32, bool) { return zone.SOASerial(v.soa), true }

// SOA implements [zone.Version].
func (v *liveVersion) SOA() []byte { return v.soa }

// Since implements [zone.Differ].
func (v *liveVersion) Since(serial uint32) (iter.Seq[[]byte], bool) {
	return v.journal.Since(serial, v.soa)
}

// maxWork is the number of bytes of answers that are compared for one version. A Service
// with many endpoints and ports has more, though only one endpoint changes. Then the
// differences are not known, and other servers transfer the whole zone.
const maxWork = 4 * zone.MaxJournal

// differences collects removed and added records. One that is removed and added again is
// no difference.
type differences struct {
	count map[string]int
	work  int // bytes of answers compared so far
}

// spend counts work up to the bound, and reports whether it is within.
func (d *differences) spend(bytes int) bool {
	if !d.incomplete() {
		d.work += bytes
	}
	return !d.incomplete()
}

// incomplete reports whether there may be more differences than were collected.
func (d *differences) incomplete() bool { return d.work > maxWork }

func (d *differences) add(record []byte, n int) {
	if !d.spend(len(record)) {
		return
	}
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.count[string(record)] += n
}

// addSets adds the differences between two sets of records.
func (d *differences) addSets(old, now map[string]struct{}) {
	for r := range old {
		d.add([]byte(r), -1)
	}
	for r := range now {
		d.add([]byte(r), 1)
	}
}

// records returns the removed and the added records.
func (d *differences) records() (removed, added []byte) {
	for r, n := range d.count {
		switch {
		case n < 0:
			removed = append(removed, r...)
		case n > 0:
			added = append(added, r...)
		}
	}
	return slices.Clip(removed), slices.Clip(added)
}
