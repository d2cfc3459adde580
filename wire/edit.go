package wire

import "encoding/binary"

// Walk calls f for each record, in order, until f returns false. f may change TTLs
// only.
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

// DeleteFunc removes the records for which del returns true. It calls del once for
// each record, before the record is moved.
func (a *Answer) DeleteFunc(del func(s Section, r Record) bool) {
	off, to := a.body, a.body
	for s, n := range a.Count {
		for range n {
			r, ok := ReadRecord(a.Buf, off)
			if !ok {
				break // fewer records than the count
			}
			off = r.Next
			if del(Section(s), r) {
				a.Count[s]--
				continue
			}
			to += copy(a.Buf[to:], a.Buf[r.Owner:r.Next])
		}
	}
	a.Buf = a.Buf[:to]
}

// Age reduces the TTL of each record by seconds, but not below zero. from is the
// offset in a.Buf of the first record to change, such as RecordsOffset. A cache
// calls it.
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

// ClampTTL sets TTLs below least to least and TTLs above most to most. from is the
// offset in a.Buf of the first record to change, such as RecordsOffset.
func (a *Answer) ClampTTL(from int, least, most uint32) {
	msg := a.Buf
	for from < len(msg) {
		head := from + 2 // a pointer, as most owners are
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

// MinTTL returns the smallest TTL of all records; false if there are none.
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

// Rotate rotates each RRset of A, AAAA or MX records, in every section, by n
// records: the first n become the last. In the answer section CNAME records come first.
func (a *Answer) Rotate(n uint32) {
	if a.Count[Answers] < 2 && a.Count[Additional] < 2 && a.Count[Authority] < 2 {
		return
	}

	off := a.body
	for s, count := range a.Count {
		var first Record // of the run
		length, sameSize := uint32(0), true
		late := false // a CNAME record here would not be first

		for range count {
			if length > 0 && a.sameShape(first, off) {
				length++
				off += first.Next - first.Owner
				continue
			}

			r, ok := ReadRecord(a.Buf, off)
			if !ok {
				return
			}
			if length > 0 && r.Type == first.Type && SameOwner(a.Buf, first, r) {
				length++
				sameSize = false
			} else {
				a.rotateSet(first, length, sameSize, off, n)
				first, length, sameSize = r, 1, true

				if isAlias(r.Type) && late && Section(s) == Answers {
					if a.AliasesFirst() {
						a.Rotate(n >> 16) // other bits of n, because some sets are rotated twice
					}
					return
				}
				late = late || !isAlias(r.Type) && r.Type != TypeRRSIG
			}
			off = r.Next
		}

		a.rotateSet(first, length, sameSize, off, n)
	}
}

func isAlias(t Type) bool { return t == TypeCNAME || t == TypeDNAME }

// AliasesFirst moves the CNAME and DNAME records of the answer section, with their signatures,
// before the others, which glibc ignores otherwise. It keeps the order within both groups, and
// reports whether it has moved any.
func (a *Answer) AliasesFirst() (moved bool) {
	var set RRset
	set.start, set.end, set.Len = a.body, a.body, int(a.Count[Answers])
	late := false

	for range set.Len {
		r, ok := ReadRecord(a.Buf, set.end)
		if !ok {
			return false
		}
		alias := a.isAliasOrSignature(r)
		moved = moved || alias && late
		late = late || !alias
		set.end = r.Next
	}

	if moved {
		a.MoveToFront(set, func(_ int, r Record) bool { return a.isAliasOrSignature(r) })
	}
	return moved
}

// isAliasOrSignature reports whether r is a CNAME or DNAME record, or the signature of one.
func (a *Answer) isAliasOrSignature(r Record) bool {
	if r.Type == TypeRRSIG && r.Next-r.RData >= 2 {
		return isAlias(Type(binary.BigEndian.Uint16(a.Buf[r.RData:])))
	}
	return isAlias(r.Type)
}

// sameShape reports whether the record at off has the owner, type, class and size of
// r. The records of most RRsets do.
func (a *Answer) sameShape(r Record, off int) bool {
	length, ttl := r.RData-2, r.Head+4
	move := off - r.Owner
	return r.Next+move <= len(a.Buf) &&
		a.Buf[length+1] == a.Buf[length+1+move] && a.Buf[length] == a.Buf[length+move] &&
		string(a.Buf[r.Owner:ttl]) == string(a.Buf[off:ttl+move])
}

// SameOwner reports whether two records of msg have owners that are written in the same way: equal pointers are equal.
func SameOwner(msg []byte, a, b Record) bool {
	return string(msg[a.Owner:a.Head]) == string(msg[b.Owner:b.Head])
}

// rotateSet moves the first n mod length records of the RRset that ends at end to its
// end. sameSize means that all records have the same size.
func (a *Answer) rotateSet(first Record, length uint32, sameSize bool, end int, n uint32) {
	if length < 2 || first.Type != TypeA && first.Type != TypeAAAA && first.Type != TypeMX {
		return
	}

	middle := first.Owner
	if sameSize {
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

	// The spare capacity of the buffer holds the records that move.
	moved := append(a.Buf, a.Buf[first.Owner:middle]...)
	copy(moved[first.Owner:], moved[middle:end])
	copy(moved[first.Owner+end-middle:], moved[len(a.Buf):])
	a.Buf = moved[:len(a.Buf)]
}

// AppendCanonical appends the RDATA of the record at msg[r.Owner:] to buf in canonical
// form (RFC 4034 §6.2, RFC 6840 §5.1): names are written out, and those in the types of
// RFC 3597 §4 are in lower case. The record must be in a message.
func (r Record) AppendCanonical(buf, msg []byte) ([]byte, error) {
	return appendRData(buf, msg[:r.Next], r, func(name []byte, t Type, _ bool) []byte {
		if t == TypeSVCB || t == TypeHTTPS {
			return name
		}
		return AppendLower(name[:0], name)
	})
}

// AppendSection copies the records of section from of another answer into section s
// of a, with all names written out.
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

// AppendOwner appends name, in wire form and any letter case, to buf as the owner of
// a record of a: as a pointer if the question name equals name or ends in it, so
// that it has the client's letter case, and written out otherwise. buf may be a.Buf.
func (a *Answer) AppendOwner(buf, name []byte) []byte {
	question := a.Buf[HeaderLen:max(HeaderLen, a.body-4)]
	end := len(question) - len(name)
	if end < 0 || len(name) <= 1 || !SameName(question[end:], name) {
		return append(buf, name...)
	}
	off := 0
	for off < end {
		off += int(question[off]) + 1
	}
	if off > end { // the question ends in these bytes, but not at a label
		return append(buf, name...)
	}
	p := QuestionPointer(off)
	return append(buf, p[0], p[1])
}
