package dnssec

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/signing"
)

// originalTTL is the original TTL in all signatures, as in CoreDNS: the server below
// may count the TTLs of records down. Validators use no larger TTLs.
const originalTTL = 3600

// An rrset holds the records of one owner and type in a section of an answer.
type rrset struct {
	section wire.Section
	id      uint64      // hash of owner and type
	first   wire.Record // of the other records
	n       int
	sum     uint64 // of the hashes of the records' data, which may be in any order
	zone    *signedZone
	signed  bool // the answer has signatures of it
	sigs    *signatures
}

// A signingState is memory for signing an answer.
type signingState struct {
	sets []rrset
	find map[rrsetKey]int // index in sets
	buf  []byte
}

type rrsetKey struct {
	section wire.Section
	id      uint64
}

// sign adds signatures to q's answer. Unless mayWait is set, it uses signatures in the
// store only, and returns false without a change if one is missing.
func (d *Dnssec) sign(ctx context.Context, q *dns.Query, mayWait bool) (bool, error) {
	s, ok := d.states.Get().(*signingState)
	if !ok {
		s = &signingState{find: map[rrsetKey]int{}}
	}
	defer d.states.Put(s)

	d.collect(q, s)
	hits, misses := uint64(0), uint64(0)
	size := len(q.Answer.Buf)
	now := q.Now()

	for i := range s.sets {
		set := &s.sets[i]
		if set.n == 0 || set.signed || set.zone == nil {
			continue
		}
		if set.section == wire.Additional && size > q.SizeLimit() {
			break // the reply has no room for these
		}

		part, key := d.place(set)
		if set.sigs = part.get(key, now); set.sigs != nil {
			hits++
		} else if !mayWait {
			return false, nil
		} else {
			var err error
			if set.sigs, err = d.makeSignatures(ctx, q, set, part, key); err != nil {
				return false, err
			}
			misses++
		}
		size += set.sigs.size() - entryOverhead
	}

	d.write(q, s)
	d.hits.AddTo(q.Shard(), hits)
	d.misses.AddTo(q.Shard(), misses)
	return true, nil
}

// collect finds the RRsets of q's answer.
func (d *Dnssec) collect(q *dns.Query, s *signingState) {
	a := &q.Answer
	s.sets = s.sets[:0]
	clear(s.find)

	var cut []byte // the delegation of a referral
	var roomName, roomCut [wire.MaxName]byte
	a.Walk(func(section wire.Section, r wire.Record) bool {
		owner := wire.ReadLower(roomName[:0], a.Buf, r.Owner)
		if owner == nil {
			return true
		}

		t := r.Type
		if t == wire.TypeRRSIG && r.Next >= r.RData+2 {
			t = wire.Type(binary.BigEndian.Uint16(a.Buf[r.RData:]))
		}
		s.buf = append(append(s.buf[:0], owner...), byte(t>>8), byte(t))
		set := s.set(section, maphash.Bytes(d.store.seed, s.buf))
		if r.Type == wire.TypeRRSIG {
			set.signed = true
			return true
		}

		if set.n == 0 {
			set.first = r
			set.zone = d.zoneOf(owner, t)
			switch {
			case section == wire.Authority && t == wire.TypeNS &&
				(set.zone == nil || string(owner) != string(set.zone.name)):
				set.zone = nil // NS records of a delegation are not signed (RFC 4035 §2.2)
				cut = append(roomCut[:0], owner...)
			case section == wire.Additional && cut != nil && wire.Within(owner, wire.Name(cut)):
				set.zone = nil // nor is glue
			}
		}

		set.n++
		if set.zone != nil {
			var err error
			if s.buf, err = r.AppendCanonical(s.buf[:0], a.Buf); err != nil {
				set.zone = nil
			}
			set.sum += maphash.Bytes(d.store.seed, s.buf)
		}
		return true
	})
}

// set returns the RRset with an ID in a section, and adds it if it is new.
func (s *signingState) set(section wire.Section, id uint64) *rrset {
	i, known := s.find[rrsetKey{section, id}]
	if !known {
		i = len(s.sets)
		s.find[rrsetKey{section, id}] = i
		s.sets = append(s.sets, rrset{section: section, id: id})
	}
	return &s.sets[i]
}

// place returns where the store has the signatures of a set.
func (d *Dnssec) place(set *rrset) (p *part, key uint64) {
	var both [16]byte
	binary.NativeEndian.PutUint64(both[:], set.id)
	binary.NativeEndian.PutUint64(both[8:], set.sum)
	p = &d.store.parts[0]
	if set.first.Type == wire.TypeNSEC {
		p = &d.store.parts[1]
	}
	return p, maphash.Bytes(d.store.seed, both[:])
}

// makeSignatures signs a set when the client's turn has come, unless another query has
// done so meanwhile.
func (d *Dnssec) makeSignatures(
	ctx context.Context, q *dns.Query, set *rrset, part *part, key uint64,
) (*signatures, error) {
	records, err := canonical(q, set)
	if err != nil {
		return nil, err
	}

	if err := d.signers.Acquire(ctx, q.Peer.Addr()); err != nil {
		return nil, err
	}
	defer d.signers.Release(q.Peer.Addr())

	now := time.Now()
	if s := part.get(key, now); s != nil {
		return s, nil
	}

	s := &signatures{key: key, made: now.Round(0)}
	validity := signing.Validity{
		Signer:    set.zone.name,
		Inception: uint32(now.Add(-validBefore).Unix()), Expiration: uint32(now.Add(validFor).Unix()),
	}
	keys := d.zoneKeys
	if set.first.Type == wire.TypeDNSKEY {
		keys = d.keyKeys
	}

	for _, k := range keys {
		rdata, err := k.Sign(records, validity)
		if err != nil {
			return nil, err
		}
		s.rdata = append(s.rdata, rdata)
	}
	part.put(s)
	return s, nil
}

// canonical returns the records of a set.
func canonical(q *dns.Query, set *rrset) (signing.RRset, error) {
	a := &q.Answer
	var room, other [wire.MaxName]byte
	owner := wire.ReadLower(room[:0], a.Buf, set.first.Owner)
	records := signing.RRset{Owner: wire.Name(owner), Type: set.first.Type, TTL: originalTTL}

	var err error
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if s != set.section || r.Type != set.first.Type ||
			string(wire.ReadLower(other[:0], a.Buf, r.Owner)) != string(owner) {
			return true
		}
		var rdata []byte
		rdata, err = r.AppendCanonical(nil, a.Buf)
		records.RData = append(records.RData, string(rdata))
		return err == nil
	})
	return records, err
}

// write adds the signatures of s to q's answer: to each section after its records.
func (d *Dnssec) write(q *dns.Query, s *signingState) {
	old := q.Answer
	ends := [3]int{old.RecordsOffset(), old.RecordsOffset(), old.RecordsOffset()}
	old.Walk(func(section wire.Section, r wire.Record) bool {
		for ; section <= wire.Additional; section++ {
			ends[section] = r.Next
		}
		return true
	})

	a := &q.Answer
	a.Reset(old.Buf[len(old.Buf):], q.Question())

	start := old.RecordsOffset()
	for section, end := range ends {
		a.Append(wire.Section(section), old.Buf[start:end], int(old.Count[section]))
		start = end
		for i := range s.sets {
			set := &s.sets[i]
			if set.section != wire.Section(section) || set.sigs == nil {
				continue
			}
			for _, rdata := range set.sigs.rdata {
				a.Buf = append(a.Buf, old.Buf[set.first.Owner:set.first.Head]...)
				a.Buf = wire.AppendRecordHeader(a.Buf, "", wire.TypeRRSIG, set.first.TTL(old.Buf), len(rdata))
				a.AppendString(wire.Section(section), rdata, 1)
			}
		}
	}
	a.MoveTo(old.Buf)
}
