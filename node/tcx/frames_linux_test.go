package tcx

import (
	"encoding/binary"
	"net/netip"
)

// A frame describes an Ethernet frame of a test.
type frame struct {
	to              [6]byte
	source, target  netip.AddrPort
	tcp             bool
	flags           byte // of TCP
	payload         []byte
	fragment        uint16 // IPv4: flags and offset; IPv6: offset and flag, with a fragment header
	fragmented      bool
	options         []byte // of IPv4
	withoutChecksum bool   // UDP over IPv4
	partial         bool   // the field has the sum of the pseudo header alone
	protocol        byte   // instead of UDP or TCP
	trailer         []byte
}

// bytes returns the frame, with checksums that plain code computes.
func (f frame) bytes() []byte {
	segment := f.segment()
	protocol := byte(17)
	if f.tcp {
		protocol = 6
	}
	if f.protocol != 0 {
		protocol = f.protocol
	}
	b := append(append([]byte{}, f.to[:]...), 2, 0, 0, 0, 0, 9)
	if f.source.Addr().Is4() {
		b = append(b, 0x08, 0x00)
		header := make([]byte, 20, 60)
		header = append(header, f.options...)
		header[0] = 0x40 | byte(len(header)/4)
		binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(segment)))
		binary.BigEndian.PutUint16(header[6:], f.fragment)
		header[8], header[9] = 64, protocol
		copy(header[12:], f.source.Addr().AsSlice())
		copy(header[16:], f.target.Addr().AsSlice())
		binary.BigEndian.PutUint16(header[10:], ^fold(sum(0, header)))
		b = append(b, header...)
	} else {
		b = append(b, 0x86, 0xdd)
		header := make([]byte, 40)
		header[0], header[6], header[7] = 0x60, protocol, 64
		copy(header[8:], f.source.Addr().AsSlice())
		copy(header[24:], f.target.Addr().AsSlice())
		if f.fragmented {
			header[6] = 44
			extension := make([]byte, 8)
			extension[0] = protocol
			binary.BigEndian.PutUint16(extension[2:], f.fragment)
			header = append(header, extension...)
		}
		binary.BigEndian.PutUint16(header[4:], uint16(len(header)-40+len(segment)))
		b = append(b, header...)
	}
	return append(append(b, segment...), f.trailer...)
}

// later reports whether the frame is a fragment without the transport header.
func (f frame) later() bool {
	if f.source.Addr().Is4() {
		return f.fragment&0x1fff != 0
	}
	return f.fragmented && f.fragment&0xfff8 != 0
}

// segment returns the part after the IP header.
func (f frame) segment() []byte {
	if f.later() {
		return f.payload
	}
	size, at, protocol := 8, 6, byte(17)
	if f.tcp {
		size, at, protocol = 20, 16, 6
	}
	if f.protocol != 0 {
		protocol = f.protocol
	}
	b := append(make([]byte, size), f.payload...)
	binary.BigEndian.PutUint16(b, f.source.Port())
	binary.BigEndian.PutUint16(b[2:], f.target.Port())
	if f.tcp {
		b[12], b[13] = 5<<4, f.flags
	} else {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	}
	pseudo := sum(sum(0, f.source.Addr().AsSlice()), f.target.Addr().AsSlice()) + uint32(protocol) + uint32(len(b))
	check := ^fold(sum(pseudo, b))
	switch {
	case f.partial:
		check = fold(pseudo)
	case f.withoutChecksum:
		check = 0
	case check == 0 && !f.tcp:
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], check)
	return b
}

// sum adds the 16-bit words of b to n (RFC 1071).
func sum(n uint32, b []byte) uint32 {
	for i := 0; i < len(b); i += 2 {
		word := uint32(b[i]) << 8
		if i+1 < len(b) {
			word |= uint32(b[i+1])
		}
		n += word
	}
	return n
}

func fold(n uint32) uint16 {
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return uint16(n)
}
