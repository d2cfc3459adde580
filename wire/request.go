package wire

import "encoding/binary"

// A Fault is what is wrong with a request.
type Fault uint8

const (
	NoFault        Fault = iota
	Unreadable           // no header, no question that can be told, or a reply: say nothing
	Malformed            // FORMERR
	UnknownOpcode        // opcode other than QUERY: NOTIMP
	UnknownVersion       // EDNS version other than 0: BADVERS
)

// A Request is what a client's packet says: the header, one question, the OPT.
// Parse fills it; the packet itself stays with its owner.
type Request struct {
	ID      uint16
	Flags   uint16 // second word of the header, as it came
	Type    Type
	Class   Class
	EDNS    bool   // there was an OPT
	DO      bool   // DNSSEC OK
	UDPSize uint16 // the UDP size that the client takes: at least 512

	options [2]uint16 // where the OPT's RDATA begins and ends in the packet
	end     uint16    // offset in the packet behind the question; HeaderLen if there is none
	nameLen uint8
	labels  uint8
	offsets [MaxLabels + 1]uint8 // where each label begins in name; that of the root last
	name    [MaxName]byte
}

// Parse reads packet. Unless the fault is Unreadable, ID, Flags and the
// question are set; with the fault Unknown there may be no question, and its
// name is empty then. Bytes behind the last record are ignored.
func (r *Request) Parse(packet []byte) Fault {
	// Nothing of the request before stays, whatever this one is. (name and
	// offsets are read up to nameLen and labels.)
	r.ID, r.Flags, r.Type, r.Class = 0, 0, 0, 0
	r.EDNS, r.DO, r.UDPSize = false, false, MinUDPSize
	r.end, r.nameLen, r.labels, r.options = HeaderLen, 0, 0, [2]uint16{}
	if len(packet) < HeaderLen {
		return Unreadable
	}
	r.ID = binary.BigEndian.Uint16(packet)
	r.Flags = binary.BigEndian.Uint16(packet[2:])
	if r.Flags&FlagQR != 0 {
		return Unreadable
	}
	questions := binary.BigEndian.Uint16(packet[4:])
	opcode := r.Flags >> 11 & 15
	off, ok := r.parseQuestion(packet)
	if opcode != 0 {
		if ok && questions == 1 {
			// The other opcodes' messages may be built alike: if there is an
			// OPT, the reply has one too (RFC 6891 §6.1.1).
			_ = r.parseRecords(packet, off)
		}
		return UnknownOpcode
	}
	if questions == 0 || !ok {
		return Unreadable
	}
	if questions > 1 { // RFC 9619
		return Malformed
	}
	return r.parseRecords(packet, off)
}

// parseQuestion reads the question behind the header. A name in it cannot be
// compressed: there is nothing before it to point to.
func (r *Request) parseQuestion(packet []byte) (next int, ok bool) {
	const least = 5 // root, type, class
	if binary.BigEndian.Uint16(packet[4:]) == 0 || len(packet) < HeaderLen+least {
		return HeaderLen, false
	}
	in := packet[HeaderLen:]
	off, labels := 0, 0
	for {
		if off >= len(in) {
			return HeaderLen, false
		}
		n := int(in[off])
		// The root label, which comes here too, needs one of the 255 bytes.
		if n > MaxLabel || off+n+1 > len(in) || off+n+1 > MaxName {
			return HeaderLen, false
		}
		r.offsets[labels] = uint8(off)
		if n == 0 {
			break
		}
		off += n + 1
		labels++
	}
	off++
	if off+4 > len(in) {
		return HeaderLen, false
	}
	copyLower(r.name[:off], in)
	r.nameLen, r.labels = uint8(off), uint8(labels)
	r.Type = Type(binary.BigEndian.Uint16(in[off:]))
	r.Class = Class(binary.BigEndian.Uint16(in[off+2:]))
	r.end = uint16(HeaderLen + off + 4)
	return int(r.end), true
}

// parseRecords looks for the OPT record among what follows the question.
func (r *Request) parseRecords(packet []byte, off int) Fault {
	if len(packet) == off && binary.BigEndian.Uint64(packet[4:]) == 1<<48 {
		return NoFault // nothing but a question: most of the world
	}
	skipped := int(binary.BigEndian.Uint16(packet[6:])) + int(binary.BigEndian.Uint16(packet[8:]))
	all := skipped + int(binary.BigEndian.Uint16(packet[10:]))
	version := uint8(0)
	for i := range all {
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
		// What the options of another version look like is not known.
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

// Options is the RDATA of the OPT record: options of EDNS, one behind the
// other; empty if there is none. packet is what was parsed.
func (r *Request) Options(packet []byte) []byte { return packet[r.options[0]:r.options[1]] }

// SetQuestion puts another question in the place of the one that was parsed.
// name is in wire form, in any spelling, and no part of Name; it says false, and
// changes nothing, if that is no name.
func (r *Request) SetQuestion(name []byte, t Type, c Class) bool {
	if !valid(name) {
		return false
	}
	off, labels := 0, 0
	for ; name[off] != 0; off += int(name[off]) + 1 {
		r.offsets[labels] = uint8(off)
		labels++
	}
	r.offsets[labels] = uint8(off)
	r.nameLen, r.labels = uint8(len(name)), uint8(labels)
	copyLower(r.name[:len(name)], name)
	r.Type, r.Class = t, c
	return true
}

// RestoreQuestion takes back what SetQuestion did. packet is what was parsed.
func (r *Request) RestoreQuestion(packet []byte) { r.parseQuestion(packet) }

// valid says whether name is one whole name in wire form, written out.
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

// Name is the question's name in wire form, lower case. It is valid until the
// next Parse or SetQuestion.
func (r *Request) Name() []byte { return r.name[:r.nameLen] }

// Labels counts the labels of the question's name.
func (r *Request) Labels() int { return int(r.labels) }

// LabelOffset is where label i, counted from the left, begins in Name. That of
// Labels is the root's.
func (r *Request) LabelOffset(i int) int { return int(r.offsets[i]) }

// Question is the question as the client spelled it: name, type and class.
// packet is what was parsed.
func (r *Request) Question(packet []byte) []byte { return packet[HeaderLen:r.end] }

// AppendRequest writes a request for name and type in class IN behind buf.
func AppendRequest(buf []byte, id, flags uint16, name []byte, t Type) []byte {
	buf = binary.BigEndian.AppendUint16(buf, id)
	buf = binary.BigEndian.AppendUint16(buf, flags)
	buf = append(buf, 0, 1, 0, 0, 0, 0, 0, 0)
	buf = append(buf, name...)
	buf = binary.BigEndian.AppendUint16(buf, uint16(t))
	return binary.BigEndian.AppendUint16(buf, uint16(ClassIN))
}
