package zone

import "github.com/seamark/seamark/wire"

// Differences returns the records in wire form that a version of a zone has lost and gained since an
// older one, without the SOA records. ok is false if they have more than limit bytes.
func Differences(old, now *Zone, limit int) (removed, added []byte, ok bool) {
	d := differ{limit: limit}
	d.compare(old, now, old.names, now.names)
	d.compare(old, now, old.nsec3Names, now.nsec3Names)
	return d.removed, d.added, len(d.removed)+len(d.added) <= limit
}

// A differ collects the differences of two versions.
type differ struct {
	limit          int
	removed, added []byte
}

// compare adds the differences between the names of two versions.
func (d *differ) compare(old, now *Zone, oldNames, nowNames *names) {
	var room [wire.MaxName]byte
	for n := range nowNames.all {
		before := oldNames.get(now.appendKey(room[:0], n))
		if before == nil || before.data != n.data {
			d.node(old, now, before, n)
		}
		if len(d.removed)+len(d.added) > d.limit {
			return
		}
	}

	for n := range oldNames.all {
		if nowNames.get(old.appendKey(room[:0], n)) == nil {
			d.node(old, now, n, nil)
		}
	}
}

// node adds the differences between a name's records in two versions. A version without the name has nil.
func (d *differ) node(old, now *Zone, before, after *node) {
	lost := map[string]bool{}
	for r := range old.recordsOf(before) {
		lost[string(r)] = true
	}
	for r := range now.recordsOf(after) {
		if lost[string(r)] {
			delete(lost, string(r))
		} else {
			d.added = append(d.added, r...)
		}
	}
	for r := range lost {
		d.removed = append(d.removed, r...)
	}
}
