package kubernetes

import (
	"encoding/binary"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// maxJournal is the number of bytes of differences that a zone keeps. A server that has an
// older version transfers the whole zone.
const maxJournal = 8 << 20

// serialUnits is the number of units of a serial number in a second. gatherTime permits fewer
// versions.
const serialUnits = 64

// firstSerial returns the serial number of the first version. It is a second ahead, so that it
// is greater than the serial number of the last change before a restart or a reload, even if
// they take less than a unit.
func firstSerial(now time.Time) uint32 { return serialAt(now) + serialUnits }

// serialAt returns the time in units of serial numbers.
func serialAt(now time.Time) uint32 { return uint32(now.UnixMilli() * serialUnits / 1000) }

// nextSerial returns the serial number after another one. It increases also if the clock is
// set back (RFC 1982).
func nextSerial(last uint32, now time.Time) uint32 {
	if next := serialAt(now); zone.SerialLess(last, next) {
		return next
	}
	return last + 1
}

// serials has the last serial number of each zone that was served. Reloads keep it: the zones of another
// plan are other versions, even if it is loaded in the same unit of time.
type serials struct {
	mu   sync.Mutex
	last map[wire.Name]uint32
}

// serialsKey identifies the serials across reloads.
type serialsKey struct{}

// Stop implements config.Stopper.
func (*serials) Stop() {}

// first returns the serial number of the first version of a zone.
func (s *serials) first(origin wire.Name, now time.Time) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := firstSerial(now)
	if last, ok := s.last[origin]; ok && !zone.SerialLess(last, n) {
		n = last + 1
	}
	return n
}

// serve records the serial number of a version that is served.
func (s *serials) serve(origin wire.Name, serial uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[wire.Name]uint32{}
	}
	s.last[origin] = serial
}

// A liveVersion is a version of a liveZone. It is immutable.
type liveVersion struct {
	zone   *liveZone
	soa    []byte
	deltas []*delta // oldest first; the last one leads to this version
	bytes  int      // of deltas
}

// A delta is the difference between two versions.
type delta struct {
	from, to       uint32
	removed, added []byte // records in wire form
}

// deltaCost is about the bytes of memory of a delta without records.
const deltaCost = 96

func (d *delta) size() int { return deltaCost + len(d.removed) + len(d.added) }

// commit makes a new version of the zone if there are differences, and reports whether
// there are. The caller holds the lock of the index.
func (z *liveZone) commit(d *differences) bool {
	before := z.current.Load()
	next := &liveVersion{zone: z}
	if before != nil {
		removed, added := d.records()
		if len(removed)+len(added) == 0 && !d.incomplete() {
			return false
		}
		from := z.serial.Load()
		z.serial.Store(nextSerial(from, z.now()))
		if !d.incomplete() {
			last := &delta{from, z.serial.Load(), removed, added}
			next.deltas, next.bytes = slices.Concat(before.deltas, []*delta{last}), before.bytes+last.size()
		}
		for next.bytes > maxJournal {
			next.bytes -= next.deltas[0].size()
			next.deltas = next.deltas[1:]
		}
	}
	z.show(next)
	return true
}

// show makes a version the current one. The caller holds the lock of the index.
func (z *liveZone) show(v *liveVersion) {
	v.soa = z.records.soa()
	if z.served {
		z.serials.serve(z.records.zone.name, z.serial.Load())
	}
	z.current.Store(v)
}

// Serial implements [zone.Version].
func (v *liveVersion) Serial() (uint32, bool) { return zone.SOASerial(v.soa), true }

// SOA implements [zone.Version].
func (v *liveVersion) SOA() []byte { return v.soa }

// Since implements [zone.Differ].
func (v *liveVersion) Since(serial uint32) (iter.Seq[[]byte], bool) {
	first := slices.IndexFunc(v.deltas, func(d *delta) bool { return d.from == serial })
	if first < 0 {
		return nil, false
	}
	return func(yield func([]byte) bool) {
		soa := slices.Clone(v.soa)
		for _, d := range v.deltas[first:] {
			for _, part := range [2]struct {
				serial  uint32
				records []byte
			}{{d.from, d.removed}, {d.to, d.added}} {
				binary.BigEndian.PutUint32(soa[len(soa)-20:], part.serial)
				if !yield(soa) || !eachRecord(part.records, yield) {
					return
				}
			}
		}
	}, true
}

// eachRecord yields records in wire form one by one. It returns false if yield did.
func eachRecord(records []byte, yield func([]byte) bool) bool {
	for len(records) > 0 {
		r, ok := wire.ReadRecord(records, 0)
		if !ok || !yield(records[:r.Next]) {
			return false
		}
		records = records[r.Next:]
	}
	return true
}

// maxWork is the number of bytes of answers that are compared for one version. A Service
// with many endpoints and ports has more, though only one endpoint changes. Then the
// differences are not known, and other servers transfer the whole zone.
const maxWork = 4 * maxJournal

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
