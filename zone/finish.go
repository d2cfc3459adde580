package zone

import (
	"encoding/binary"
	"slices"

	"github.com/seamark/seamark/wire"
)

// Zone returns the zone with all records that were added and not removed. The Builder must
// not be used afterwards.
func (b *Builder) Zone() *Zone {
	b.closeAll()
	for key := range b.sigsOnly {
		d := b.draft(key, "")
		d.sets = slices.DeleteFunc(d.sets, func(s rrset) bool { return s.n == 0 })
	}
	b.closeAll()

	// An edit keeps the buckets that it shares with older versions, unless few names are left.
	z := b.zone
	if !b.isEdit || b.names.count*4 < 1<<(32-b.names.shift) {
		b.names.rehash()
	}
	if !b.isEdit {
		b.nsec3.rehash()
	}
	if b.changedCuts {
		b.hide()
	}
	z.names, z.nsec3Names = b.names.names, b.nsec3.names

	if b.changedApex {
		z.setNegative(&b.encoder)
	}
	if b.changedNSEC || b.changedCuts && len(z.nsecs) > 0 {
		z.sortNSEC()
	}
	if b.changedNSEC3 || b.changedApex {
		z.setNSEC3()
	}
	z.additionals = newAdditionals(z.memory)
	b.zone = nil
	return z
}

// closeAll ends the changes of all drafts.
func (b *Builder) closeAll() {
	b.close(true)
	for _, d := range b.large {
		b.last = d
		b.close(true)
	}
	clear(b.large)
}

// hide sets isHidden of all nodes.
func (b *Builder) hide() {
	var room [wire.MaxName]byte
	for n := range b.names.all {
		hidden := false
		key := b.zone.appendKey(room[:0], n)
		for above := key; len(above) > 0 && !hidden; {
			above = above[1+above[0]:]
			hidden = b.names.get(above).is(isDelegation | hasDNAME)
		}

		if hidden == (n.meta&isHidden != 0) {
			continue
		}
		if n = b.names.change(key); hidden {
			n.meta |= isHidden
		} else {
			n.meta &^= isHidden
		}
	}
}

// setNegative sets the serial number, and the SOA record of negative answers,
// whose TTL is at most the record's MINIMUM field (RFC 2308 §5).
func (z *Zone) setNegative(e *encoder) {
	z.serial, z.negative, z.soa = 0, nil, set{}

	apex := z.names.get(nil)
	var soa set
	if !soa.get(apex, wire.TypeSOA) {
		return
	}

	const numbers = 20 // bytes of the five numbers at the end of the RDATA
	s := z.unpack(soa)
	rdata := s.rdata()
	if len(rdata) < numbers {
		return
	}

	rdata = rdata[len(rdata)-numbers:]
	z.serial = binary.BigEndian.Uint32(rdata)

	least := min(soa.ttl, binary.BigEndian.Uint32(rdata[16:]))
	for r := range eachRecord(s.records) {
		r.SetTTL(s.records, least)
	}
	for r := range eachRecord(s.sigs) {
		r.SetTTL(s.sigs, min(least, r.TTL(s.sigs)))
	}

	z.negative = &node{data: e.encode(&draft{name: string(z.appendName(nil, apex)), sets: []rrset{s}})}
	z.soa.get(z.negative, wire.TypeSOA)
}
