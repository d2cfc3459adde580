package shadow

import (
	"encoding/binary"
	"net/netip"
)

// Link types of captures: https://www.tcpdump.org/linktypes.html.
const (
	linkNull     = 0
	linkEthernet = 1
	linkRaw      = 101
	linkLoop     = 108
	linkCooked   = 113 // Linux, of "any" interface
	linkIPv4     = 228
	linkIPv6     = 229
	linkCooked2  = 276
)

// rawOnOpenBSD and rawOnBSD are the numbers of raw IP packets in captures of those systems.
const rawOnBSD, rawOnOpenBSD = 12, 14

const (
	etherIPv4   = 0x0800
	etherVLAN   = 0x8100
	etherIPv6   = 0x86dd
	etherQinQ   = 0x88a8
	etherQinQ91 = 0x9100
)

const protocolTCP, protocolUDP = 6, 17

// A segment is the payload of a UDP or TCP packet.
type segment struct {
	source, destination netip.AddrPort
	tcp                 bool
	syn, fin, rst       bool   // of TCP
	sequence            uint32 // of TCP
	payload             []byte
}

// An ipPacket is an IP packet, or a fragment of one.
type ipPacket struct {
	source, destination netip.Addr
	protocol            byte // of the payload
	payload             []byte
	fragment            bool
	id                  uint32 // of the packet that the fragment belongs to
	offset              int    // of the fragment in its payload
	more                bool   // fragments follow
}

// decode returns the segment in a packet. If it has none, it returns the reason, or nothing if
// more fragments have to come.
func decode(p *packet, f *fragments) (s *segment, skipped Skipped) {
	b, skipped := network(p.link, p.data)
	if skipped != "" {
		return nil, skipped
	}
	d, skipped := ip(b, p.whole)
	if skipped != "" {
		return nil, skipped
	}
	if d.fragment {
		if !f.add(p.time, &d) {
			return nil, ""
		}
		d.fragment = false
		if skipped = d.skipExtensions(); skipped == "" && d.fragment {
			skipped = SkippedFragment // in a fragment
		}
		if skipped != "" {
			return nil, skipped
		}
	}
	return transport(&d)
}

// transport returns the segment in an IP packet.
func transport(d *ipPacket) (s *segment, skipped Skipped) {
	s = new(segment)
	switch d.protocol {
	case protocolUDP:
		if len(d.payload) < 8 {
			return nil, SkippedCut
		}
		size := int(binary.BigEndian.Uint16(d.payload[4:]))
		if size < 8 || size > len(d.payload) {
			return nil, SkippedCut
		}
		s.payload = d.payload[8:size]
	case protocolTCP:
		if len(d.payload) < 20 {
			return nil, SkippedCut
		}
		header := int(d.payload[12]>>4) * 4
		if header < 20 || header > len(d.payload) {
			return nil, SkippedCut
		}
		flags := d.payload[13]
		s.tcp, s.fin, s.syn, s.rst = true, flags&1 != 0, flags&2 != 0, flags&4 != 0
		s.sequence, s.payload = binary.BigEndian.Uint32(d.payload[4:]), d.payload[header:]
	default:
		return nil, SkippedProtocol
	}

	s.source = netip.AddrPortFrom(d.source, binary.BigEndian.Uint16(d.payload))
	s.destination = netip.AddrPortFrom(d.destination, binary.BigEndian.Uint16(d.payload[2:]))
	return s, ""
}

// network returns the IP packet in a frame.
func network(link uint32, frame []byte) (datagram []byte, skipped Skipped) {
	header, kind := 0, 0 // the length of the link's header, and where its EtherType is
	switch link {
	case linkRaw, linkIPv4, linkIPv6, rawOnBSD, rawOnOpenBSD:
		return frame, ""
	case linkNull, linkLoop:
		if len(frame) < 4 {
			return nil, SkippedCut
		}
		return frame[4:], "" // the family's number depends on the system; ip looks at the version
	case linkEthernet:
		header, kind = 14, 12
	case linkCooked:
		header, kind = 16, 14
	case linkCooked2:
		header, kind = 20, 0
	default:
		return nil, SkippedLink
	}

	if len(frame) < header {
		return nil, SkippedCut
	}
	ether := binary.BigEndian.Uint16(frame[kind:])
	frame = frame[header:]
	for ether == etherVLAN || ether == etherQinQ || ether == etherQinQ91 {
		if len(frame) < 4 {
			return nil, SkippedCut
		}
		ether, frame = binary.BigEndian.Uint16(frame[2:]), frame[4:]
	}

	if ether != etherIPv4 && ether != etherIPv6 {
		return nil, SkippedProtocol
	}
	return frame, ""
}

// ip returns an IP packet. whole is false if the capture has a part of it.
func ip(b []byte, whole bool) (d ipPacket, skipped Skipped) {
	if len(b) == 0 {
		return d, SkippedCut
	}
	switch b[0] >> 4 {
	case 4:
		return ipv4(b, whole)
	case 6:
		return ipv6(b, whole)
	}
	return d, SkippedProtocol
}

func ipv4(b []byte, whole bool) (d ipPacket, skipped Skipped) {
	if len(b) < 20 {
		return d, SkippedCut
	}
	header, size := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if size == 0 && whole { // the network card divides it into packets, or has put it together
		size = len(b)
	}
	if header < 20 || size < header || size > len(b) {
		return d, SkippedCut
	}
	const moreFragments, offsetMask = 0x2000, 0x1fff
	flags := binary.BigEndian.Uint16(b[6:])
	return ipPacket{
		source: netip.AddrFrom4([4]byte(b[12:])), destination: netip.AddrFrom4([4]byte(b[16:])),
		protocol: b[9], payload: b[header:size],
		fragment: flags&(moreFragments|offsetMask) != 0, id: uint32(binary.BigEndian.Uint16(b[4:])),
		offset: int(flags&offsetMask) * 8, more: flags&moreFragments != 0,
	}, ""
}

func ipv6(b []byte, whole bool) (d ipPacket, skipped Skipped) {
	if len(b) < 40 {
		return d, SkippedCut
	}
	size := 40 + int(binary.BigEndian.Uint16(b[4:]))
	if size == 40 && whole {
		size = len(b)
	}
	if size > len(b) {
		return d, SkippedCut
	}
	d = ipPacket{
		source: netip.AddrFrom16([16]byte(b[8:])), destination: netip.AddrFrom16([16]byte(b[24:])),
		protocol: b[6], payload: b[40:size],
	}
	return d, d.skipExtensions()
}

// maxExtensions bounds the extension headers of an IPv6 packet.
const maxExtensions = 8

// skipExtensions removes the extension headers in front of the payload of an IPv6 packet, up
// to that of a fragment.
func (d *ipPacket) skipExtensions() Skipped {
	if d.source.Is4() {
		return ""
	}

	for range maxExtensions {
		b := d.payload
		switch d.protocol {
		case 0, 43, 60: // hop-by-hop options, routing, destination options
		case 44:
			if len(b) < 8 {
				return SkippedCut
			}
			offset := binary.BigEndian.Uint16(b[2:])
			d.fragment, d.offset, d.more, d.id = true, int(offset&^7), offset&1 != 0, binary.BigEndian.Uint32(b[4:])
			d.protocol, d.payload = b[0], b[8:]
			return ""
		default:
			return ""
		}

		// The sizes of these three are in units of 8 bytes, without the first (RFC 8200 §4.2).
		if len(b) < 8 || len(b) < (int(b[1])+1)*8 {
			return SkippedCut
		}
		d.protocol, d.payload = b[0], b[(int(b[1])+1)*8:]
	}
	return SkippedProtocol
}
