package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
)

// A proxyHeader is a header of the PROXY protocol, with which a proxy names its client: in
// front of the data of a connection, or of a datagram. The specification is HAProxy's
// doc/proxy-protocol.txt.
type proxyHeader struct {
	version int            // 1 or 2
	client  netip.AddrPort // not valid if the proxy sends for itself, or names no IP address
	tlvs    []byte         // of the data that were parsed; none if the proxy sends for itself
}

const (
	proxyV1 = "PROXY "
	proxyV2 = "\r\n\r\n\x00\r\nQUIT\n"

	// maxProxyV1 is the size of the longest header of version 1.
	maxProxyV1 = 107

	// proxyV2Len is the size of a header of version 2 without the addresses.
	proxyV2Len = len(proxyV2) + 4
)

// errIncomplete is returned for a header whose end is missing.
var errIncomplete = errors.New("incomplete header")

// parseProxyHeader parses the header that data begin with. It returns its size, which is 0
// if there is none.
func parseProxyHeader(data []byte) (h proxyHeader, size int, err error) {
	switch {
	case bytes.HasPrefix(data, []byte(proxyV2)):
		return parseProxyV2(data)
	case bytes.HasPrefix(data, []byte(proxyV1)):
		return parseProxyV1(data)
	case strings.HasPrefix(proxyV2, string(data)), strings.HasPrefix(proxyV1, string(data)):
		return h, 0, errIncomplete
	}
	return h, 0, nil
}

// parseProxyV1 parses a line such as "PROXY TCP4 192.0.2.1 198.51.100.1 4711 53\r\n".
func parseProxyV1(data []byte) (h proxyHeader, size int, err error) {
	line, _, complete := bytes.Cut(data[:min(len(data), maxProxyV1)], []byte("\r\n"))
	switch {
	case !complete && len(data) >= maxProxyV1:
		return h, 0, fmt.Errorf("version 1: line longer than %d bytes", maxProxyV1)
	case !complete:
		return h, 0, errIncomplete
	}

	h.version, size = 1, len(line)+len("\r\n")
	words := strings.Split(string(line[len(proxyV1):]), " ")
	if words[0] == "UNKNOWN" {
		return h, size, nil
	}
	if words[0] != "TCP4" && words[0] != "TCP6" || len(words) != 5 {
		return h, size, fmt.Errorf("version 1: got %q, want TCP4 or TCP6, two addresses and two ports", line)
	}

	var ends [2]netip.AddrPort
	for i := range ends {
		addr, addrErr := netip.ParseAddr(words[1+i])
		port, portErr := strconv.ParseUint(words[3+i], 10, 16)
		isPort := portErr == nil && strconv.FormatUint(port, 10) == words[3+i] // no leading zeros
		if addrErr != nil || addr.Zone() != "" || addr.Is4() != (words[0] == "TCP4") || !isPort {
			return h, size, fmt.Errorf("version 1: invalid address or port in %q", line)
		}
		ends[i] = netip.AddrPortFrom(addr.Unmap(), uint16(port))
	}
	h.client = ends[0]
	return h, size, nil
}

// Values of the bytes of a header of version 2.
const (
	proxyLocal   = 0x20 // version and command
	proxyForward = 0x21

	proxyUnspecified = 0 // family: the upper half of its byte
	proxyIPv4        = 1
	proxyIPv6        = 2
	proxyUnix        = 3
	proxyDatagram    = 2 // transport protocol: the lower half; 0 is unspecified, 1 a stream

	proxyCRC32C = 3 // type of a TLV
	proxyNoop   = 4 // one that only pads the header
)

// proxyAddrsLen is the size of the addresses of each family.
var proxyAddrsLen = [...]int{proxyUnspecified: 0, proxyIPv4: 12, proxyIPv6: 36, proxyUnix: 216}

// parseProxyV2 parses a binary header. Either transport protocol is accepted over UDP and
// TCP, since a proxy may receive queries by one and send them by the other.
func parseProxyV2(data []byte) (h proxyHeader, size int, err error) {
	if len(data) < proxyV2Len {
		return h, 0, errIncomplete
	}

	command, family, protocol := data[12], data[13]>>4, data[13]&0xF
	size = proxyV2Len + int(binary.BigEndian.Uint16(data[14:]))
	switch {
	case command != proxyLocal && command != proxyForward:
		return h, 0, fmt.Errorf("version 2: unknown version and command %#x", command)
	case family > proxyUnix || protocol > proxyDatagram:
		return h, 0, fmt.Errorf("version 2: unknown family and protocol %#x", data[13])
	case size > inSize:
		return h, 0, fmt.Errorf("version 2: header of %d bytes, want at most %d", size, inSize)
	case len(data) < size:
		return h, 0, errIncomplete
	}

	// The proxy sends for itself, as for a health check, or the client has no address.
	h.version = 2
	if command == proxyLocal || family == proxyUnspecified || protocol == 0 {
		return h, size, nil
	}

	body := data[proxyV2Len:size]
	if need := proxyAddrsLen[family]; len(body) < need {
		return h, size, fmt.Errorf("version 2: %d bytes, want at least %d of addresses", len(body), need)
	}
	switch family {
	case proxyIPv4:
		h.client = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body)), binary.BigEndian.Uint16(body[8:]))
	case proxyIPv6:
		h.client = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body)).Unmap(), binary.BigEndian.Uint16(body[32:]))
	}
	h.tlvs = body[proxyAddrsLen[family]:]
	return h, size, checkTLVs(data[:size], size-len(h.tlvs))
}

// tlvHeaderLen is the size of a TLV without its value.
const tlvHeaderLen = 3

// firstTLV returns the TLV that data begin with, or nil if its end is missing.
func firstTLV(data []byte) []byte {
	if len(data) < tlvHeaderLen {
		return nil
	}
	size := tlvHeaderLen + int(binary.BigEndian.Uint16(data[1:]))
	if len(data) < size {
		return nil
	}
	return data[:size]
}

// keptTLVs returns a copy of checked TLVs. Those that pad the header lose their values.
func keptTLVs(tlvs []byte) string {
	kept := make([]byte, 0, len(tlvs))
	for len(tlvs) > 0 {
		tlv := firstTLV(tlvs)
		tlvs = tlvs[len(tlv):]
		if tlv[0] == proxyNoop {
			tlv = []byte{proxyNoop, 0, 0}
		}
		kept = append(kept, tlv...)
	}
	return string(kept)
}

// checkTLVs checks the TLVs of a header from off on, and its checksum if it has one.
func checkTLVs(header []byte, off int) error {
	for off < len(header) {
		tlv := firstTLV(header[off:])
		if tlv == nil {
			return errors.New("version 2: extension longer than the header")
		}

		off += len(tlv)
		if tlv[0] != proxyCRC32C {
			continue
		}
		value := tlv[tlvHeaderLen:]
		if len(value) != crc32.Size {
			return fmt.Errorf("version 2: checksum of %d bytes, want %d", len(value), crc32.Size)
		}

		// The checksum is that of the header with zeros in its place.
		zeroed := bytes.Clone(header)
		clear(zeroed[off-crc32.Size : off])
		if crc32.Checksum(zeroed, crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(value) {
			return errors.New("version 2: wrong checksum")
		}
	}
	return nil
}
