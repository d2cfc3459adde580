package records

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// A draft collects the records of one source, which is the Corefile or an object. The zero value
// is empty.
type draft struct {
	owners  map[wire.Name]*ownerDraft
	seen    map[seenRecord]struct{}
	records int // without duplicates: see units
}

// units returns as how many records one counts.
func units(owner wire.Name, rdata string) int { return 1 + (len(owner)+len(rdata))/objects.SizeUnit }

// An ownerDraft has the records of one owner name.
type ownerDraft struct {
	first place // of its first record
	sets  []setDraft
}

type setDraft struct {
	t     wire.Type
	ttl   uint32
	rdata []string
}

// A seenRecord identifies a record of a draft.
type seenRecord struct {
	owner *ownerDraft
	t     wire.Type
	rdata string
}

// A place is where a record is written: a file or the key of an object, and a line.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// add adds a record with an owner name; r.Owner is not used.
func (d *draft) add(at place, owner wire.Name, r zonefile.Record) error {
	if d.owners == nil {
		d.owners, d.seen = map[wire.Name]*ownerDraft{}, map[seenRecord]struct{}{}
	}
	o := d.owners[owner]
	if o == nil {
		o = &ownerDraft{first: at}
		d.owners[owner] = o
	}

	i := slices.IndexFunc(o.sets, func(s setDraft) bool { return s.t == r.Type })
	switch {
	case i < 0 && len(o.sets) > 0 && (r.Type == wire.TypeCNAME || o.sets[0].t == wire.TypeCNAME):
		return fmt.Errorf("%s has a CNAME record and other records: see %s", owner, o.first)
	case i < 0:
		i = len(o.sets)
		o.sets = append(o.sets, setDraft{t: r.Type, ttl: r.TTL})
	}

	s := &o.sets[i]
	key := seenRecord{o, r.Type, r.RData}
	if _, ok := d.seen[key]; !ok {
		if (r.Type == wire.TypeCNAME || r.Type == wire.TypeSOA) && len(s.rdata) > 0 {
			return fmt.Errorf("%s has a second %s record: see %s", owner, r.Type, o.first)
		}
		d.seen[key] = struct{}{}
		d.records += units(owner, r.RData)
		s.rdata = append(s.rdata, r.RData)
	}
	s.ttl = min(s.ttl, r.TTL) // RFC 2181 §5.2
	return nil
}

// pack returns the records by owner name, for objects.Owners. The value of a name is its sets.
func (d *draft) pack() string {
	var packed, sets, records []byte
	for _, owner := range slices.SortedFunc(maps.Keys(d.owners), cmp.Compare) {
		sets = sets[:0]
		for _, s := range d.owners[owner].sets {
			records = s.pack(records[:0])
			sets = appendSet(sets, rrset{s.t, s.ttl, string(records)})
		}
		packed = objects.AppendName(packed, owner, sets)
	}
	return string(packed)
}

// pack appends the records of a set to buf.
func (s *setDraft) pack(buf []byte) []byte {
	targets := map[wire.Name]struct{}{}
	before := s.t.TargetOffset()
	for _, rdata := range s.rdata {
		r := record{rdata: rdata}
		if before >= 0 {
			target := wire.Name(wire.ReadLower(nil, []byte(rdata), before)) // "" if it is malformed
			_, r.repeated = targets[target]
			targets[target] = struct{}{}
		}
		buf = appendRecord(buf, r)
	}
	return buf
}
