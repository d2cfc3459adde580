package wire

import "encoding/binary"

// suffixes records where names and their suffixes are in a message. A suffix is
// identified by the offset where it was written first: its first label is there,
// written out, and parent is the offset of the rest. So the time to look a name up,
// label by label from the root, depends on its length alone, whatever the message
// contains.
type suffixes struct {
	at     [256]uint16 // offset by hash; zero is free
	parent [256]uint16 // offset of the suffix after the first label; zero is the root

	name   [MaxName]byte    // the current name
	starts [MaxLabels]uint8 // the offsets of its labels
}

// probes is the number of table entries in which a suffix may be. If they are in
// use, the suffix is not recorded, nor are names that end in it.
const probes = 8

// Compress appends the message to spare[:0] with compressed names (RFC 1035 §4.1.4):
// owners, and the names in the RDATA of the types that RFC 1035 defines (RFC 3597
// §4). Suffixes are shared only if their letter case is the same, so no name changes
// and the message does not grow. A message that is not in the form of an Answer, or
// that cannot be compressed, is unchanged.
//
// Records after the first size bytes are copied as they are, since they will be
// truncated: a Service may have a thousand endpoints, and the client receives
// twenty of them.
func (a *Answer) Compress(spare []byte, size int) {
	if a.incompressible(size) {
		return
	}

	var seen suffixes
	msg := a.Buf
	out := append(spare[:0], msg[:a.body]...)
	if a.body > HeaderLen {
		out = seen.add(out[:HeaderLen], msg[HeaderLen:a.body-4], true)[:a.body]
	}

	for off := a.body; off < len(msg); {
		if len(out) > size {
			out = append(out, msg[off:]...)
			break
		}

		rec, ok := ReadRecord(msg, off)
		if !ok {
			return
		}
		if out, _, ok = seen.copy(out, msg, off, a.body, true); !ok {
			return
		}
		out = append(out, msg[rec.Head:rec.RData]...)

		rdata, at := len(out), rec.RData
		// The target of SRV is written out (RFC 2782), but the owner names of
		// its addresses can point to it.
		if l := rec.Type.layout(); l.shrinks || rec.Type == TypeSRV {
			at += l.before
			if at > rec.Next {
				return
			}
			out = append(out, msg[rec.RData:at]...)
			for range l.names {
				if out, at, ok = seen.copy(out, msg[:rec.Next], at, a.body, l.shrinks); !ok {
					return
				}
			}
		}

		out = append(out, msg[at:rec.Next]...)
		binary.BigEndian.PutUint16(out[rdata-2:], uint16(len(out)-rdata))
		off = rec.Next
	}
	a.Buf = out
}

// incompressible reports whether the first size bytes cannot be compressed: every
// owner is a pointer and no RDATA has names. The addresses of a Service are an
// example.
func (a *Answer) incompressible(size int) bool {
	msg := a.Buf
	for off := a.body; off < len(msg) && off <= size; {
		if msg[off] < 0xC0 || off+12 > len(msg) {
			return false
		}
		if t := Type(binary.BigEndian.Uint16(msg[off+2:])); t != TypeA && t != TypeAAAA && t.layout().names > 0 {
			return false
		}
		off += 12 + int(binary.BigEndian.Uint16(msg[off+10:]))
	}
	return true
}

// copy appends the name at msg[off:] to out, and returns the offset after it in msg.
// body is the offset of the first record of msg. The name is compressed only if
// shrinks is set.
func (s *suffixes) copy(out, msg []byte, off, body int, shrinks bool) (longer []byte, next int, ok bool) {
	if shrinks && off+1 < len(msg) && msg[off] >= 0xC0 {
		// The question has the same offset in out.
		if to := int(binary.BigEndian.Uint16(msg[off:]) & 0x3FFF); HeaderLen <= to && to < body {
			return append(out, msg[off], msg[off+1]), off + 2, true
		}
	}
	name, next, err := expand(s.name[:0], msg, off)
	if err != nil {
		return out, 0, false
	}
	return s.add(out, name, shrinks), next, true
}

// add appends name to out and records its suffixes. If shrinks is set, the longest
// suffix that is recorded already becomes a pointer.
func (s *suffixes) add(out, name []byte, shrinks bool) []byte {
	labels := 0
	for i := 0; i < len(name) && name[i] != 0; i += int(name[i]) + 1 {
		s.starts[labels] = uint8(i)
		labels++
	}

	known, end := uint16(0), len(name)-1 // the longest recorded suffix, and its offset in name
	for labels > 0 {
		i := int(s.starts[labels-1])
		at := s.find(out, known, name[i:end])
		if at == 0 {
			break
		}
		known, end = at, i
		labels--
	}

	fresh := name[:end]
	for parent := known; labels > 0; labels-- {
		i := int(s.starts[labels-1])
		at := len(out) + i
		// Pointers have fourteen bits.
		if at >= 1<<14 || !s.remember(uint16(at), parent, name[i:end]) {
			break
		}
		parent, end = uint16(at), i
	}

	if shrinks && known != 0 {
		out = append(out, fresh...)
		return append(out, 0xC0|byte(known>>8), byte(known))
	}
	return append(out, name...)
}

// find returns the offset in msg of the suffix that consists of label, with its
// length byte, and parent; zero if it is not recorded.
func (s *suffixes) find(msg []byte, parent uint16, label []byte) uint16 {
	slot := hash(parent, label)
	for range probes {
		at := int(s.at[slot])
		if at == 0 {
			return 0
		}
		if s.parent[slot] == parent && string(msg[at:min(at+len(label), len(msg))]) == string(label) {
			return uint16(at)
		}
		slot++ // wraps around: the table has 256 entries
	}
	return 0
}

// remember records that label, followed by parent, will be at offset at.
func (s *suffixes) remember(at, parent uint16, label []byte) bool {
	slot := hash(parent, label)
	for range probes {
		if s.at[slot] == 0 {
			s.at[slot], s.parent[slot] = at, parent
			return true
		}
		slot++
	}
	return false
}

// hash returns the FNV-1a hash, folded to the table's size.
func hash(parent uint16, label []byte) uint8 {
	h := (2166136261 ^ uint32(parent)) * 16777619
	for _, c := range label {
		h = (h ^ uint32(c)) * 16777619
	}
	return uint8(h ^ h>>8 ^ h>>16 ^ h>>24)
}
