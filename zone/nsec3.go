package zone

import (
	"crypto/sha1"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/wire"
)

const (
	// nsec3SHA1 is the only hash algorithm (RFC 5155 §11).
	nsec3SHA1 = 1
	// maxIterations bounds the work for a query. Validators treat zones with more as unsigned, or
	// fail (RFC 9276 §3.2: the limits of their programs are 50 and less since CVE-2023-50868).
	maxIterations = 50
)

// An nsec3Param has the parameters of a chain of NSEC3 records.
type nsec3Param struct {
	iterations uint16
	salt       string
}

// parseNSEC3 returns the parameters in the RDATA of an NSEC3 or NSEC3PARAM record.
func parseNSEC3(t wire.Type, rdata string) (p nsec3Param, err error) {
	if len(rdata) < 5 || len(rdata) < 5+int(rdata[4]) {
		return p, fmt.Errorf("malformed %s record", t)
	}

	p = nsec3Param{uint16(rdata[2])<<8 | uint16(rdata[3]), rdata[5 : 5+int(rdata[4])]}
	if rdata[0] != nsec3SHA1 {
		return p, fmt.Errorf("%s: hash algorithm %d is not supported: sign the zone with NSEC, or with NSEC3 and SHA-1",
			t, rdata[0])
	}
	if p.iterations > maxIterations {
		return p, fmt.Errorf("%s: %d iterations, at most %d are allowed: sign the zone with 0 iterations",
			t, p.iterations, maxIterations)
	}
	return p, nil
}

// hash returns the hash of a name, which is in lower case (RFC 5155 §5).
func (p *nsec3Param) hash(name []byte) (sum [sha1.Size]byte) {
	var room [wire.MaxName + 255]byte
	sum = sha1.Sum(append(append(room[:0], name...), p.salt...))
	for range p.iterations {
		sum = sha1.Sum(append(append(room[:0], sum[:]...), p.salt...))
	}
	return sum
}

// nsec3Encoding is the form of hashes in names.
var nsec3Encoding = base32.HexEncoding

var errNSEC3Owner = errors.New("the first label of an NSEC3 record's owner name must be a hash, " +
	"and the rest the zone's name")

// checkNSEC3Owner checks the owner name of an NSEC3 record, without the zone's name.
func checkNSEC3Owner(key string) error {
	if key == "" || len(key) != 1+int(key[0]) {
		return errNSEC3Owner
	}
	hash, err := nsec3Encoding.DecodeString(strings.ToUpper(key[1:]))
	if err != nil || len(hash) != sha1.Size {
		return errNSEC3Owner
	}
	return nil
}

// nsec3Node returns the node of the NSEC3 record with a hash, or nil.
func (z *Zone) nsec3Node(hash string) *node {
	var raw [sha1.Size]byte
	copy(raw[:], hash)
	var key [1 + sha1.Size*8/5]byte
	key[0] = sha1.Size * 8 / 5
	nsec3Encoding.Encode(key[1:], raw[:])
	wire.AppendLower(key[:1], key[1:])
	return z.nsec3Names.get(key[:])
}

// setNSEC3 sets z.nsec3s, if the zone has a chain of NSEC3 records: those with the
// parameters of an NSEC3PARAM record.
func (z *Zone) setNSEC3() {
	z.nsec3s = nil

	var params set
	params.get(z.names.get(nil), wire.TypeNSEC3PARAM)
	for rest := params.records; rest != "" && z.nsec3s == nil; {
		var r stored
		r, rest = nextRecord(rest)

		// Flags other than zero: the chain is not complete (RFC 5155 §4.1.2).
		rdata := string(z.appendRData(nil, params.n, r))
		p, err := parseNSEC3(wire.TypeNSEC3PARAM, rdata)
		if err != nil || rdata[1] != 0 {
			continue
		}

		chain := z.nsec3Chain(p)
		if apex := p.hash(z.apex); len(chain) > 0 && findNSEC(chain, apex[:]) == string(apex[:]) {
			z.nsec3s, z.nsec3Param = chain, p
		}
	}
}

// nsec3Chain returns the hashes of the NSEC3 records with certain parameters, in order.
func (z *Zone) nsec3Chain(p nsec3Param) (chain []string) {
	for n := range z.nsec3Names.all {
		var s set
		if !s.get(n, wire.TypeNSEC3) {
			continue
		}
		r, _ := nextRecord(s.records)
		if other, err := parseNSEC3(wire.TypeNSEC3, string(z.appendRData(nil, n, r))); err == nil && other == p {
			hash, _ := nsec3Encoding.DecodeString(strings.ToUpper(string(z.appendKey(nil, n)[1:])))
			chain = append(chain, string(hash))
		}
	}
	slices.Sort(chain)
	return chain
}

// matchNSEC3 adds the NSEC3 record of n to the proofs. It returns false if there is none,
// since the chain omits unsigned delegations (opt-out), or n has names below it only.
func (l *lookup) matchNSEC3(n *node) bool {
	var room [wire.MaxName]byte
	hash := l.nsec3Param.hash(l.appendLower(room[:0], n))
	if findNSEC(l.nsec3s, hash[:]) != string(hash[:]) {
		return false
	}
	l.addProof(l.nsec3Node(string(hash[:])))
	return true
}

// proveEncloser adds the closest encloser proof of a name (RFC 5155 §7.2.1): the NSEC3
// record of its closest encloser that has one, from n on, and the NSEC3 record that covers
// the next closer name.
func (l *lookup) proveEncloser(n *node, name []byte) (encloser *node) {
	for !l.matchNSEC3(n) {
		parent := l.parent(n)
		if parent == nil {
			break
		}
		n = parent
	}
	l.cover(l.nextCloser(name, n))
	return n
}

// nextCloser returns the name that has one label more than its encloser.
func (z *Zone) nextCloser(name []byte, encloser *node) []byte {
	var room [wire.MaxName]byte
	for skip := wire.Labels(name) - wire.Labels(z.appendName(room[:0], encloser)) - 1; skip > 0; skip-- {
		name = name[1+name[0]:]
	}
	return name
}
