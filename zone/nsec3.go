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
	// maxIterations is the number that validators accept (RFC 9276 §3.2). It bounds the
	// work for a query.
	maxIterations = 150
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
		return p, fmt.Errorf("%s: hash algorithm %d is not supported: sign the zone with NSEC, or with NSEC3 and SHA-1", t, rdata[0])
	}
	if p.iterations > maxIterations {
		return p, fmt.Errorf("%s: %d iterations, at most %d are allowed: sign the zone with 0 iterations", t, p.iterations, maxIterations)
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

var errNSEC3Owner = errors.New("the first label of an NSEC3 record's owner name must be a hash, and the rest the zone's name")

// nsec3Node returns the node of the NSEC3 record with an owner name. Such a name does not
// exist for other types (RFC 5155 §7.2.8).
func (b *Builder) nsec3Node(owner string) (*node, error) {
	hash, err := nsec3Encoding.DecodeString(strings.ToUpper(owner[1 : 1+owner[0]]))
	if err != nil || len(hash) != sha1.Size || wire.Lower(owner[1+owner[0]:]) != b.zone.origin {
		return nil, errNSEC3Owner
	}
	n := b.zone.nsec3Nodes[string(hash)]
	if n == nil {
		n = &node{name: []byte(owner)}
		b.zone.nsec3Nodes[string(hash)] = n
	}
	return n, nil
}

// setNSEC3 sets z.nsec3s, if the zone has a chain of NSEC3 records: those with the
// parameters of an NSEC3PARAM record.
func (z *Zone) setNSEC3() {
	for hash, n := range z.nsec3Nodes {
		if n.sets = slices.DeleteFunc(n.sets, func(s rrset) bool { return s.n == 0 }); len(n.sets) == 0 {
			delete(z.nsec3Nodes, hash)
			continue
		}
		n.sets[0].unifyTTL()
	}
	params := z.nodes[string(z.origin)].get(wire.TypeNSEC3PARAM)
	if params == nil {
		return
	}
	eachRecord(params.records, func(r wire.Record) {
		// Flags other than zero: the chain is not complete (RFC 5155 §4.1.2).
		rdata := string(params.records[r.RData:r.Next])
		p, err := parseNSEC3(wire.TypeNSEC3PARAM, rdata)
		if err != nil || rdata[1] != 0 || len(z.nsec3s) > 0 {
			return
		}
		var chain []nsecNode
		for hash, n := range z.nsec3Nodes {
			if other, err := parseNSEC3(wire.TypeNSEC3, string(n.sets[0].rdata())); err == nil && other == p {
				chain = append(chain, nsecNode{hash, n})
			}
		}
		slices.SortFunc(chain, func(a, b nsecNode) int { return strings.Compare(a.key, b.key) })
		if apex := p.hash(z.apex); len(chain) > 0 && findNSEC(chain, apex[:]).key == string(apex[:]) {
			z.nsec3s, z.nsec3Param = chain, p
		}
	})
}

// matchNSEC3 adds the NSEC3 record of n to the proofs. It returns false if there is none,
// since the chain omits unsigned delegations (opt-out), or n has names below it only.
func (l *lookup) matchNSEC3(n *node) bool {
	var room [wire.MaxName]byte
	hash := l.nsec3Param.hash(wire.AppendLower(room[:0], n.name))
	found := findNSEC(l.nsec3s, hash[:])
	if found.key != string(hash[:]) {
		return false
	}
	l.addProof(found.node)
	return true
}

// proveEncloser adds the closest encloser proof of a name (RFC 5155 §7.2.1): the NSEC3
// record of its closest encloser that has one, from n on, and the one that covers the
// next closer name.
func (l *lookup) proveEncloser(n *node, name []byte) (encloser *node) {
	for n.parent != nil && !l.matchNSEC3(n) {
		n = n.parent
	}
	if n.parent == nil {
		l.matchNSEC3(n)
	}
	l.cover(nextCloser(name, n))
	return n
}

// nextCloser returns the name that has one label more than its encloser.
func nextCloser(name []byte, encloser *node) []byte {
	for skip := countLabels(name) - countLabels(encloser.name) - 1; skip > 0; skip-- {
		name = name[1+name[0]:]
	}
	return name
}
