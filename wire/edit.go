package wire

import "encoding/binary"

// TTL is that of the record r of msg.
func (r Record) TTL(msg []byte) uint32 { return binary.BigEndian.Uint32(msg[r.Head+4:]) }

// SetTTL changes the TTL of the record r of msg.
func (r Record) SetTTL(msg []byte, ttl uint32) { binary.BigEndian.PutUint32(msg[r.Head+4:], ttl) }

// Walk calls f for each record of a, in order, as long as f says true. f may
// change TTLs and nothing else.
func (a *Answer) Walk(f func(s Section, r Record) bool) {
	off := a.body
	for s, n := range a.Count {
		for range n {
			r, ok := ReadRecord(a.Buf, off)
			if !ok || !f(Section(s), r) {
				return
			}
			off = r.Next
		}
	}
}

// Age takes seconds off the TTL of each record that begins at offset from or
// behind it, as far as zero: what a cache gives out.
func (a *Answer) Age(from int, seconds uint32) {
	for from < len(a.Buf) {
		r, ok := ReadRecord(a.Buf, from)
		if !ok {
			return
		}
		ttl := r.TTL(a.Buf)
		r.SetTTL(a.Buf, ttl-min(ttl, seconds))
		from = r.Next
	}
}

// ClampTTL raises the TTLs from offset from on to least, and lowers them to
// most. Most have nothing to be changed.
func (a *Answer) ClampTTL(from int, least, most uint32) {
	msg := a.Buf
	for from < len(msg) {
		head := from + 2 // most owners are pointers, to the question
		if msg[from] < 0xC0 {
			var ok bool
			if head, ok = skip(msg, from); !ok {
				return
			}
		}
		if head+10 > len(msg) {
			return
		}
		next := head + 10 + int(binary.BigEndian.Uint16(msg[head+8:]))
		if next > len(msg) {
			return
		}
		if ttl := binary.BigEndian.Uint32(msg[head+4:]); ttl < least || ttl > most {
			binary.BigEndian.PutUint32(msg[head+4:], min(max(ttl, least), most))
		}
		from = next
	}
}

// MinTTL is the least TTL among the records; false if there are none.
func (a *Answer) MinTTL() (least uint32, ok bool) {
	least = 1<<32 - 1
	for off := a.body; off < len(a.Buf); {
		r, fine := ReadRecord(a.Buf, off)
		if !fine {
			break
		}
		least, ok = min(least, r.TTL(a.Buf)), true
		off = r.Next
	}
	return least, ok
}

// Rotate turns each run of address or MX records that have owner and type in
// common, in every section, by n of them: what was first comes behind the rest.
// CNAMEs and everything else stay where they are.
func (a *Answer) Rotate(n uint32) {
	if a.Count[Answers] < 2 && a.Count[Additional] < 2 && a.Count[Authority] < 2 {
		return
	}
	off := a.body
	for _, count := range a.Count {
		var first Record // of the run
		length, even := uint32(0), true
		for range count {
			if length > 0 && a.alike(first, off) {
				length++
				off += first.Next - first.Owner
				continue
			}
			r, ok := ReadRecord(a.Buf, off)
			if !ok {
				return
			}
			if length > 0 && r.Type == first.Type && sameOwner(a.Buf, first, r) {
				length++
				even = false
			} else {
				a.turn(first, length, even, off, n)
				first, length, even = r, 1, true
			}
			off = r.Next
		}
		a.turn(first, length, even, off, n)
	}
}

// alike says whether at off there is a record with r's owner, type, class and
// size. Most runs are made of such.
func (a *Answer) alike(r Record, off int) bool {
	length, ttl := r.RData-2, r.Head+4
	move := off - r.Owner
	return r.Next+move <= len(a.Buf) &&
		a.Buf[length+1] == a.Buf[length+1+move] && a.Buf[length] == a.Buf[length+move] &&
		string(a.Buf[r.Owner:ttl]) == string(a.Buf[off:ttl+move])
}

// sameOwner compares owners as they are written: a pointer is equal to itself.
func sameOwner(msg []byte, a, b Record) bool {
	return string(msg[a.Owner:a.Head]) == string(msg[b.Owner:b.Head])
}

// turn moves the first n mod length records of the run that ends at end behind
// the others of it. even says that they are all of one size.
func (a *Answer) turn(first Record, length uint32, even bool, end int, n uint32) {
	if length < 2 || first.Type != TypeA && first.Type != TypeAAAA && first.Type != TypeMX {
		return
	}
	middle := first.Owner
	if even {
		middle += int(n%length) * (first.Next - first.Owner)
	} else {
		for range n % length {
			r, _ := ReadRecord(a.Buf, middle)
			middle = r.Next
		}
	}
	if middle == first.Owner {
		return
	}
	// The memory behind the message is free: it keeps the part that moves.
	moved := append(a.Buf, a.Buf[first.Owner:middle]...)
	copy(moved[first.Owner:], moved[middle:end])
	copy(moved[first.Owner+end-middle:], moved[len(a.Buf):])
	a.Buf = moved[:len(a.Buf)]
}

// AppendSection copies the records of section from of another answer into section s
// of this one, with their names written out.
func (a *Answer) AppendSection(s Section, other *Answer, from Section) error {
	var err error
	other.Walk(func(section Section, r Record) bool {
		if section == from {
			_, err = a.AppendRecord(s, other.Buf, r.Owner)
		}
		return err == nil
	})
	return err
}

// A Rename gives a name, in wire form and written out, another one: name itself
// to keep it. rdata says that the name stands in a record's RDATA, not at its
// front. The result is copied at once.
type Rename func(name []byte, t Type, rdata bool) []byte

// AppendOwner writes name, in wire form and any spelling, behind buf as the
// owner of a record of a: as a pointer if the question is that name or ends in
// it, so that the client's spelling stays, and else written out. buf may be
// a.Buf.
func (a *Answer) AppendOwner(buf, name []byte) []byte {
	question := a.Buf[HeaderLen:max(HeaderLen, a.body-4)]
	for off := 0; off < len(question) && question[off] != 0; off += int(question[off]) + 1 {
		if SameName(question[off:], name) {
			p := QuestionPointer(off)
			return append(buf, p[0], p[1])
		}
	}
	return append(buf, name...)
}

// SameName compares two names in wire form, whatever their spelling.
func SameName(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a { // the bytes of lengths are no letters
		if lower(c) != lower(b[i]) {
			return false
		}
	}
	return true
}
