package wire

import "encoding/binary"

// suffixes remembers where names and their suffixes stand in a message.
type suffixes struct {
	at [256]uint16 // offset by hash; zero is free
	n  int
}

// Compress writes a's message into spare (behind which it may grow) with names
// compressed (RFC 1035 §4.1.4): owners, and the names in the RDATA of the types
// that RFC 1035 itself defines (RFC 3597 §4). Only suffixes of the same
// spelling are shared, so no name changes. It returns the old message's memory,
// for the next to use.
func (a *Answer) Compress(spare []byte) (freed []byte) {
	var seen suffixes
	msg := a.Buf
	out := append(spare[:0], msg[:a.body]...)
	if a.body > HeaderLen {
		out = seen.add(out[:HeaderLen], msg[HeaderLen:a.body-4])[:a.body]
	}
	var name [MaxName]byte
	for off := a.body; off < len(msg); {
		rec, ok := ReadRecord(msg, off)
		if !ok {
			return spare // not in the answer's form; send it as it is
		}
		owner, _, err := expand(name[:0], msg, off)
		if err != nil {
			return spare
		}
		out = seen.add(out, owner)
		out = append(out, msg[rec.Head:rec.RData]...)
		rdata := len(out)
		switch rec.Type {
		case TypeNS, TypeCNAME, TypePTR, TypeMX, TypeSOA:
			before, names, _ := rec.Type.names()
			at := rec.RData + before
			out = append(out, msg[rec.RData:at]...)
			for range names {
				var n []byte
				if n, at, err = expand(name[:0], msg, at); err != nil {
					return spare
				}
				out = seen.add(out, n)
			}
			out = append(out, msg[at:rec.Next]...)
		default:
			out = append(out, msg[rec.RData:rec.Next]...)
		}
		binary.BigEndian.PutUint16(out[rdata-2:], uint16(len(out)-rdata))
		off = rec.Next
	}
	a.Buf = out
	return msg
}

// add writes name behind out, its longest suffix that is there already as a
// pointer, and remembers the rest.
func (s *suffixes) add(out, name []byte) []byte {
	start := len(out)
	for i := 0; i < len(name) && name[i] != 0; i += int(name[i]) + 1 {
		slot := hash(name[i:])
		for s.at[slot] != 0 && !same(out, int(s.at[slot]), name[i:]) {
			slot++ // wraps: the table has 256 places
		}
		if at := s.at[slot]; at != 0 {
			out = append(out, name[:i]...)
			return append(out, 0xC0|byte(at>>8), byte(at))
		}
		// Pointers have fourteen bits; and the table never gets so full that
		// looking through it is long.
		if start+i < 1<<14 && s.n < len(s.at)*3/4 {
			s.at[slot] = uint16(start + i)
			s.n++
		}
	}
	return append(out, name...)
}

// same says whether the name at msg[off:] is name. Suffixes of a name that is
// being written are in the table before their bytes are in msg; they cannot be
// equal to a longer one, so their offset lies behind the end.
func same(msg []byte, off int, name []byte) bool {
	for {
		if off >= len(msg) {
			return false
		}
		n := int(msg[off])
		if n >= 0xC0 {
			if off+1 >= len(msg) {
				return false
			}
			off = (n&0x3F)<<8 | int(msg[off+1])
			continue
		}
		if len(name) < n+1 || off+1+n > len(msg) || string(msg[off:off+1+n]) != string(name[:n+1]) {
			return false
		}
		if n == 0 {
			return true
		}
		off, name = off+n+1, name[n+1:]
	}
}

// hash is FNV-1a folded to the table's size.
func hash(name []byte) uint8 {
	h := uint32(2166136261)
	for _, c := range name {
		h = (h ^ uint32(c)) * 16777619
	}
	return uint8(h ^ h>>8 ^ h>>16 ^ h>>24)
}
