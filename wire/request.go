package wire

import (
	"encoding/binary"
	"slices"
)

// A Fault is the result of parsing a request.
type Fault uint8

const (
	NoFault        Fault = iota
	Unreadable           // no header, or a reply: send nothing
	Malformed            // FORMERR
	UnknownOpcode        // an opcode other than QUERY: NOTIMP, unless a chain has handlers of it
	UnknownVersion       // an EDNS version other than 0: BADVERS
)

// A Request holds the parsed parts of a client's packet: the header, one question,
// and the OPT record. The packet belongs to the caller.
type Request struct {
	ID      uint16
	Flags   uint16 // second word of the header, as received
	Type    Type
	Class   Class
	EDNS    bool   // the request has an OPT record
	DO      bool   // DNSSEC OK
	UDPSize uint16 // the largest UDP reply that the client accepts: at least 512

	options [2]uint16 // start and end of the OPT record's RDATA in the packet
	end     uint16    // offset after the question in the packet; HeaderLen if there is none
	offsets []uint8   // of each label in name, and of the root label
	name    []byte
}

// grow makes name and offsets empty, with the capacity for any name.
func (r *Request) grow() {
	if cap(r.name) < MaxName || cap(r.offsets) < MaxLabels+1 {
		memory := make([]byte, MaxName+MaxLabels+1)
		r.name, r.offsets = memory[:0:MaxName], memory[MaxName:]
	}
	r.name = r.name[:0]
	r.offsets = r.offsets[:0]
}

// Compact moves the name to memory of its own that is as small as possible. The next
// Parse or SetQuestion allocates memory for any name.
func (r *Request) Compact() {
	n := len(r.name)
	memory := slices.Concat(r.name, r.offsets)
	r.name, r.offsets = memory[:n:n], memory[n:]
}

// Parse parses packet. Unless it returns Unreadable, ID, Flags and the question are
// set; with Malformed and UnknownOpcode there may be no question, and then its name is empty.
// Bytes after the last record are ignored.
func (r *Request) Parse(packet []byte) Fault {
	r.ID, r.Flags, r.Type, r.Class = 0, 0, 0, 0
	r.EDNS, r.DO, r.UDPSize = false, false, MinUDPSize
	r.end, r.options = HeaderLen, [2]uint16{}
	r.grow()

	if len(packet) < HeaderLen {
		return Unreadable
	}
	r.ID = binary.BigEndian.Uint16(packet)
	r.Flags = binary.BigEndian.Uint16(packet[2:])
	if r.Flags&FlagQR != 0 {
		return Unreadable // a reply
	}

	questions := binary.BigEndian.Uint16(packet[4:])
	opcode := r.Flags >> 11 & 15
	off, ok := r.parseQuestion(packet)
	if opcode != 0 && opcode != OpcodeNotify && opcode != OpcodeUpdate {
		if ok && questions == 1 {
			// Messages of other opcodes may have the same format: the reply to
			// one with an OPT record needs one (RFC 6891 §6.1.1).
			_ = r.parseRecords(packet, off)
		}
		return UnknownOpcode
	}

	// A message without a question, with several (RFC 9619) or with an incomplete one gets FORMERR, as
	// from BIND and CoreDNS. Its OPT record needs another one (RFC 6891 §7).
	if questions == 0 {
		_ = r.parseRecords(packet, HeaderLen)
	}
	if !ok || questions != 1 {
		return Malformed
	}
	if fault := r.parseRecords(packet, off); opcode == 0 {
		return fault
	}
	return UnknownOpcode
}

// parseQuestion parses the question after the header. Its name cannot be compressed,
// since no other name precedes it.
func (r *Request) parseQuestion(packet []byte) (next int, ok bool) {
	const minQuestion = 5 // root, type, class
	if binary.BigEndian.Uint16(packet[4:]) == 0 || len(packet) < HeaderLen+minQuestion {
		return HeaderLen, false
	}
	r.grow()

	in, offsets := packet[HeaderLen:], r.offsets[:MaxLabels+1]
	name := in[:min(len(in), MaxName)]
	off, labels := 0, 0
	for {
		if off >= len(name) || name[off] > MaxLabel {
			return HeaderLen, false
		}
		size := int(name[off])
		offsets[labels] = uint8(off)
		off += size + 1
		if size == 0 {
			break
		}
		labels++
	}

	if off+4 > len(in) {
		return HeaderLen, false
	}
	r.name = r.name[:off]
	r.offsets = r.offsets[:labels+1]
	copyLower(r.name, in)

	r.Type = Type(binary.BigEndian.Uint16(in[off:]))
	r.Class = Class(binary.BigEndian.Uint16(in[off+2:]))
	r.end = uint16(HeaderLen + off + 4)
	return int(r.end), true
}

// parseRecords searches the records after the question for an OPT record.
func (r *Request) parseRecords(packet []byte, off int) Fault {
	if len(packet) == off && binary.BigEndian.Uint64(packet[4:]) == 1<<48 {
		return NoFault // only a question, as in most requests
	}

	skipped := int(binary.BigEndian.Uint16(packet[6:])) + int(binary.BigEndian.Uint16(packet[8:]))
	records := skipped + int(binary.BigEndian.Uint16(packet[10:]))
	version := uint8(0)
	for i := range records {
		owner := off
		at, ok := skip(packet, off)
		if !ok || at+10 > len(packet) {
			return Malformed
		}
		size := int(binary.BigEndian.Uint16(packet[at+8:]))
		off = at + 10 + size
		if off > len(packet) {
			return Malformed
		}

		if i < skipped || Type(binary.BigEndian.Uint16(packet[at:])) != TypeOPT {
			continue
		}
		if r.EDNS || packet[owner] != 0 { // RFC 6891 §6.1.1
			return Malformed
		}

		r.EDNS = true
		r.UDPSize = max(MinUDPSize, binary.BigEndian.Uint16(packet[at+2:]))
		version = packet[at+5]
		// The format of options in other versions is not known.
		if version == 0 && !optionsFit(packet[at+10:off]) {
			return Malformed
		}
		r.DO = packet[at+6]&0x80 != 0
		r.options = [2]uint16{uint16(at + 10), uint16(off)}
	}

	if version != 0 {
		return UnknownVersion
	}
	return NoFault
}

// optionsFit reports whether rdata consists of complete options.
func optionsFit(rdata []byte) bool {
	for len(rdata) >= 4 {
		n := 4 + int(binary.BigEndian.Uint16(rdata[2:]))
		if n > len(rdata) {
			return false
		}
		rdata = rdata[n:]
	}
	return len(rdata) == 0
}

// Options returns the RDATA of the OPT record, which is a list of options; empty if
// there is none. packet is the parsed packet.
func (r *Request) Options(packet []byte) []byte { return packet[r.options[0]:r.options[1]] }

// SetQuestion replaces the parsed question. name is in wire form, in any letter
// case, and must not share memory with r. SetQuestion returns false and changes
// nothing if name is not valid.
func (r *Request) SetQuestion(name []byte, t Type, c Class) bool {
	if !valid(name) {
		return false
	}
	r.grow()
	off := 0
	for ; name[off] != 0; off += int(name[off]) + 1 {
		r.offsets = append(r.offsets, uint8(off))
	}
	r.offsets = append(r.offsets, uint8(off))
	r.name = r.name[:len(name)]
	copyLower(r.name, name)
	r.Type, r.Class = t, c
	return true
}

// RestoreQuestion reverts SetQuestion. packet is the parsed packet.
func (r *Request) RestoreQuestion(packet []byte) { r.parseQuestion(packet) }

// valid reports whether name is a complete, uncompressed name in wire form.
func valid(name []byte) bool {
	if len(name) > MaxName {
		return false
	}
	for i := 0; i < len(name); i += int(name[i]) + 1 {
		switch n := name[i]; {
		case n > MaxLabel:
			return false
		case n == 0:
			return i == len(name)-1
		}
	}
	return false
}

// Name returns the name of the question in wire form and lower case. It is valid
// until the next Parse or SetQuestion.
func (r *Request) Name() []byte { return r.name }

// Labels returns the number of labels in Name.
func (r *Request) Labels() int { return max(0, len(r.offsets)-1) }

// LabelOffset returns the offset in Name of label i, counted from the left. Label
// number Labels is the root label.
func (r *Request) LabelOffset(i int) int { return int(r.offsets[i]) }

// Question returns the question as the client sent it: name, type and class. packet
// is the parsed packet.
func (r *Request) Question(packet []byte) []byte { return packet[HeaderLen:r.end] }

// AppendRequest appends a request for name and type in class IN to buf.
func AppendRequest(buf []byte, id, flags uint16, name []byte, t Type) []byte {
	buf = binary.BigEndian.AppendUint16(buf, id)
	buf = binary.BigEndian.AppendUint16(buf, flags)
	buf = append(buf, 0, 1, 0, 0, 0, 0, 0, 0)
	buf = append(buf, name...)
	buf = binary.BigEndian.AppendUint16(buf, uint16(t))
	return binary.BigEndian.AppendUint16(buf, uint16(ClassIN))
}
