package signing

import (
	"errors"
	"slices"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// An RRset is the records of one owner and type, in class IN.
type RRset struct {
	Owner wire.Name
	Type  wire.Type
	TTL   uint32   // the original TTL (RFC 4034 §3.1.4)
	RData []string // in wire form with uncompressed names
}

// A Validity has the fields of a signature that do not depend on the RRset.
type Validity struct {
	Signer                wire.Name // the zone
	Inception, Expiration uint32    // in seconds since 1970
}

// Sign returns the RDATA of the RRSIG record with which k signs a set.
func (k *Key) Sign(set RRset, v Validity) (string, error) {
	rrs, err := set.unpack()
	if err != nil {
		return "", err
	}
	sig, err := k.sign(rrs, v)
	if err != nil {
		return "", err
	}
	return pack(sig)
}

func (k *Key) sign(rrs []dns.RR, v Validity) (*dns.RRSIG, error) {
	sig := &dns.RRSIG{
		Algorithm: k.public.Algorithm, KeyTag: k.Tag, SignerName: v.Signer.String(), OrigTtl: rrs[0].Header().Ttl,
		Inception: v.Inception, Expiration: v.Expiration,
	}
	return sig, sig.Sign(k.private, rrs)
}

// unpack returns the records of the set.
func (s *RRset) unpack() ([]dns.RR, error) {
	var msg []byte
	var rrs []dns.RR
	for _, rdata := range s.RData {
		msg = wire.AppendRecordHeader(msg[:0], string(s.Owner), s.Type, s.TTL, len(rdata))
		msg = append(msg, rdata...)

		rr, off, err := dns.UnpackRR(msg, 0)
		if err != nil {
			return nil, err
		}
		if off != len(msg) {
			return nil, errors.New("malformed record")
		}
		if s.Owner[0] > 1 && s.Owner[1] == '*' {
			// The library takes each name that begins with * for a wildcard.
			rr.Header().Name = `\042` + rr.Header().Name[1:]
		}
		rrs = append(rrs, rr)
	}
	if len(rrs) == 0 {
		return nil, errors.New("no records")
	}
	return rrs, nil
}

// pack returns the RDATA of rr.
func pack(rr dns.RR) (string, error) {
	msg := make([]byte, dns.Len(rr)+wire.MaxName)
	end, err := dns.PackRR(rr, msg, 0, nil, false)
	if err != nil {
		return "", err
	}
	r, ok := wire.ReadRecord(msg[:end], 0)
	if !ok {
		return "", errors.New("malformed record")
	}
	return string(msg[r.RData:r.Next]), nil
}

// AppendNSEC appends the RDATA of an NSEC record (RFC 4034 §4) to buf. types must be
// sorted.
func AppendNSEC(buf []byte, next wire.Name, types []wire.Type) []byte {
	buf = append(buf, next...)
	for len(types) > 0 {
		window := byte(types[0] >> 8)
		end := slices.IndexFunc(types, func(t wire.Type) bool { return byte(t>>8) != window })
		if end < 0 {
			end = len(types)
		}

		var bits [32]byte
		for _, t := range types[:end] {
			bits[byte(t)/8] |= 0x80 >> (t % 8)
		}

		n := int(byte(types[end-1]))/8 + 1
		buf = append(append(buf, window, byte(n)), bits[:n]...)
		types = types[end:]
	}
	return buf
}
