package kubernetes

import (
	"net/netip"
	"strconv"
)

// appendHashLabel appends the label that kube-dns makes of an address, without a length
// byte: 6263626163303737 for 1.2.3.4. It is the hash of the SkyDNS message with the
// address in hexadecimal digits, which are encoded in hexadecimal digits again: 16 of
// them, or fewer if the hash begins with zeros. Two addresses may have the same label.
func appendHashLabel(buf []byte, ip netip.Addr) []byte {
	var digits [8]byte
	const hex = "0123456789abcdef"
	for _, c := range strconv.AppendUint(digits[:0], uint64(hashOf(ip)), 16) {
		buf = append(buf, hex[c>>4], hex[c&15])
	}
	return buf
}

// hashOf returns the hash in the label of an address.
func hashOf(ip netip.Addr) uint32 {
	var room [48]byte
	return fnv(fnv(fnv(fnvBasis, "&{"), ip.AppendTo(room[:0])), " 0 10 10  false 30 0  }")
}
