package wire

import (
	"encoding/binary"
	"iter"
)

// Options returns an iterator over the options in an OPT record's RDATA (RFC 6891
// §6.1.2). It stops before an incomplete option.
func Options(rdata []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(code uint16, data []byte) bool) {
		for len(rdata) >= 4 {
			n := 4 + int(binary.BigEndian.Uint16(rdata[2:]))
			if n > len(rdata) || !yield(binary.BigEndian.Uint16(rdata), rdata[4:n]) {
				return
			}
			rdata = rdata[n:]
		}
	}
}

// AppendOption appends an option to buf.
func AppendOption(buf []byte, code uint16, data []byte) []byte {
	buf = binary.BigEndian.AppendUint16(buf, code)
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(data)))
	return append(buf, data...)
}

// HasOption reports whether an OPT record's RDATA has an option with the code.
func HasOption(rdata []byte, code uint16) bool {
	for c := range Options(rdata) {
		if c == code {
			return true
		}
	}
	return false
}

// HopByHopOption reports whether an option concerns only a client and the server
// that it sends the query to, so that it must not be forwarded.
func HopByHopOption(code uint16) bool {
	return code == OptionNSID || code == OptionCookie || code == OptionKeepalive || code == OptionPadding
}

// AppendOPT appends an OPT record with the upper bits of a response code, whose caller appends
// that many bytes of options (RFC 6891 §6.1.2).
func AppendOPT(buf []byte, code RCode, do bool, options int) []byte {
	flags := uint16(0)
	if do {
		flags = 1 << 15
	}
	buf = append(buf, 0) // the owner is the root
	buf = binary.BigEndian.AppendUint16(buf, uint16(TypeOPT))
	buf = binary.BigEndian.AppendUint16(buf, AdvertisedUDPSize) // in place of the class
	buf = append(buf, byte(code>>4), 0)                         // version 0
	buf = binary.BigEndian.AppendUint16(buf, flags)
	return binary.BigEndian.AppendUint16(buf, uint16(options))
}
