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

// decode returns the segment in a packet. If it has none, it returns the reason.
func decode(link uint32, frame []byte, whole bool) (s segment, skipped Skipped) {
	datagram, skipped := network(link, frame)
	if skipped != "" {
		return s, skipped
	}
	var protocol byte
	var source, destination netip.Addr
	if datagram, protocol, source, destination, skipped = ip(datagram, whole); skipped != "" {
		return s, skipped
	}
	switch protocol {
	case protocolUDP:
		if len(datagram) < 8 {
			return s, SkippedCut
		}
		size := int(binary.BigEndian.Uint16(datagram[4:]))
		if size < 8 || size > len(datagram) {
			return s, SkippedCut
		}
		s.payload = datagram[8:size]
	case protocolTCP:
		if len(datagram) < 20 {
			return s, SkippedCut
		}
		header := int(datagram[12]>>4) * 4
		if header < 20 || header > len(datagram) {
			return s, SkippedCut
		}
		flags := datagram[13]
		s.tcp, s.fin, s.syn, s.rst = true, flags&1 != 0, flags&2 != 0, flags&4 != 0
		s.sequence, s.payload = binary.BigEndian.Uint32(datagram[4:]), datagram[header:]
	default:
		return s, SkippedProtocol
	}
	s.source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(datagram))
	s.destination = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(datagram[2:]))
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

// ip returns the payload of an IP packet. whole is false if the capture has a part of it.
func ip(b []byte, whole bool) (payload []byte, protocol byte, source, destination netip.Addr, skipped Skipped) {
	if len(b) == 0 {
		return nil, 0, source, destination, SkippedCut
	}
	switch b[0] >> 4 {
	case 4:
		return ipv4(b, whole)
	case 6:
		return ipv6(b, whole)
	}
	return nil, 0, source, destination, SkippedProtocol
}

func ipv4(b []byte, whole bool) (payload []byte, protocol byte, source, destination netip.Addr, skipped Skipped) {
	if len(b) < 20 {
		return nil, 0, source, destination, SkippedCut
	}
	header, size := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if size == 0 && whole { // the network card divides it into packets, or has put it together
		size = len(b)
	}
	if header < 20 || size < header || size > len(b) {
		return nil, 0, source, destination, SkippedCut
	}
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 { // an offset, or more fragments
		return nil, 0, source, destination, SkippedFragment
	}
	source, destination = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	return b[header:size], b[9], source, destination, ""
}

// maxExtensions bounds the extension headers of an IPv6 packet.
const maxExtensions = 8

func ipv6(b []byte, whole bool) (payload []byte, protocol byte, source, destination netip.Addr, skipped Skipped) {
	if len(b) < 40 {
		return nil, 0, source, destination, SkippedCut
	}
	size := 40 + int(binary.BigEndian.Uint16(b[4:]))
	if size == 40 && whole {
		size = len(b)
	}
	if size > len(b) {
		return nil, 0, source, destination, SkippedCut
	}
	source, destination = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	protocol, payload = b[6], b[40:size]
	for range maxExtensions {
		switch protocol {
		case 0, 43, 60: // hop-by-hop options, routing, destination options
		case 44:
			return nil, 0, source, destination, SkippedFragment
		default:
			return payload, protocol, source, destination, ""
		}
		if len(payload) < 8 || len(payload) < (int(payload[1])+1)*8 {
			return nil, 0, source, destination, SkippedCut
		}
		protocol, payload = payload[0], payload[(int(payload[1])+1)*8:]
	}
	return nil, 0, source, destination, SkippedProtocol
}
