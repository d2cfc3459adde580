package kubernetes

import (
	"net/netip"
	"strconv"
)

// appendHashLabel writes the label that kube-dns gives to an address, without a
// length byte: 1.2.3.4 has 6263626163303737. It is a hash of the SkyDNS message
// with that address, printed as hexadecimal digits, and these printed so again:
// 16 of them, or fewer where the hash begins with zeros. Two addresses may share
// one.
func appendHashLabel(buf []byte, ip netip.Addr) []byte {
	var digits [8]byte
	const hex = "0123456789abcdef"
	for _, c := range strconv.AppendUint(digits[:0], uint64(hashOf(ip)), 16) {
		buf = append(buf, hex[c>>4], hex[c&15])
	}
	return buf
}

// hashOf is the hash in the label of an address.
func hashOf(ip netip.Addr) uint32 {
	var room [48]byte
	return fnv(fnv(fnv(fnvBasis, "&{"), ip.AppendTo(room[:0])), " 0 10 10  false 30 0  }")
}
