package zone

import (
	"encoding/binary"
	"math"

	"github.com/seamark/seamark/wire"
)

// A node is a name that exists: it has records, or a name below it has (RFC 4592 §2.2.2).
// It is immutable. It has one Go pointer and no header for a record, so that a zone with
// many names is small and costs the garbage collector little.
type node struct {
	hash uint32
	meta uint32 // the number of names directly below, and flags
	// data has a byte of kinds, the length of the name and the name, and the RRsets in the
	// order of their types. An RRset is its type in two bytes, its TTL in four, the numbers
	// of its records and its signatures, and the bytes of both, as varints, and then the
	// records and the signatures. A record is a varint with four times the length of what
	// follows and the flags of stored; a byte with the number of the bytes at its end that
	// the owner name ends with, too; and the RDATA without these. A signature has its TTL in
	// four bytes before that.
	data string
}

// Flags of node.meta.
const (
	// isHidden reports that a delegation or a DNAME record of an ancestor hides the node.
	isHidden = 1 << 31
	// hasWildcard reports that a child is named "*".
	hasWildcard = 1 << 30
	children    = 1<<30 - 1
)

// Kinds in the first byte of node.data.
const (
	// isDelegation reports whether the node is a zone cut. NS records at a wildcard are
	// ordinary records here; RFC 4592 §4.2 leaves their meaning open.
	isDelegation = 1 << iota
	hasDNAME
	hasNSEC
	hasCNAME
	// hasUpperName reports that the stored part of the name has letters in upper case.
	hasUpperName
	// isComplete reports that the name is stored with the zone's name, since that is
	// spelled in another way.
	isComplete
)

func (n *node) is(kind byte) bool { return n.data[0]&kind != 0 }

// spelled returns the stored part of the name.
func (n *node) spelled() string { return n.data[2 : 2+int(n.data[1])] }

// appendName appends the name in wire form, with the zone file's spelling.
func (z *Zone) appendName(buf []byte, n *node) []byte {
	if buf = append(buf, n.spelled()...); n.is(isComplete) {
		return buf
	}
	return append(buf, z.origin...)
}

// nameLen returns the length of the name.
func (z *Zone) nameLen(n *node) int {
	if n.is(isComplete) {
		return len(n.spelled())
	}
	return len(n.spelled()) + len(z.origin)
}

// appendKey appends the name in lower case without the zone's name.
func (z *Zone) appendKey(buf []byte, n *node) []byte {
	start := len(buf)
	buf = append(buf, n.spelled()...)
	if n.is(isComplete) {
		buf = buf[:len(buf)-len(z.origin)]
	}
	wire.AppendLower(buf[:start], buf[start:])
	return buf
}

// A set is the records of one type at a node, and their signatures.
type set struct {
	n        *node
	t        wire.Type
	ttl      uint32 // of all records
	count    int
	sigCount int
	records  string
	sigs     string
}

// hasSets reports whether the node has records.
func (n *node) hasSets() bool { return len(n.data) > 2+int(n.data[1]) }

// sets returns the RRsets, for set.read.
func (n *node) sets() string { return n.data[2+int(n.data[1]):] }

// read sets s to the first RRset of rest at n, and returns what follows it.
func (s *set) read(n *node, rest string) (after string) {
	s.n, s.t = n, wire.Type(rest[0])<<8|wire.Type(rest[1])
	s.ttl = uint32(rest[2])<<24 | uint32(rest[3])<<16 | uint32(rest[4])<<8 | uint32(rest[5])
	var size, sigSize int
	if rest[6]|rest[7]|rest[8]|rest[9] < 0x80 { // most RRsets
		s.count, s.sigCount, size, sigSize = int(rest[6]), int(rest[7]), int(rest[8]), int(rest[9])
		rest = rest[10:]
	} else {
		s.count, rest = Varint(rest[6:])
		s.sigCount, rest = Varint(rest)
		size, rest = Varint(rest)
		sigSize, rest = Varint(rest)
	}
	s.records, s.sigs = rest[:size], rest[size:size+sigSize]
	return rest[size+sigSize:]
}

// Varint returns the number that s begins with, as binary.AppendUvarint writes it, and the rest.
func Varint(s string) (n int, rest string) {
	if s[0] < 0x80 {
		return int(s[0]), s[1:]
	}
	shift := 0
	for i := 0; ; i++ {
		n |= int(s[i]&0x7f) << shift
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
		shift += 7
	}
}

// get sets s to the RRset of type t at n and reports whether that has records. If not, s is
// the zero set or has only signatures.
func (s *set) get(n *node, t wire.Type) bool {
	for rest := n.sets(); rest != ""; {
		if found := wire.Type(rest[0])<<8 | wire.Type(rest[1]); found > t {
			break
		}
		if rest = s.read(n, rest); s.t == t {
			return s.count > 0
		}
	}
	*s = set{}
	return false
}

// A stored is the RDATA of a record as it is stored.
type stored struct {
	prefix string
	shared int // bytes at the end that the owner name ends with, too
	flags  byte
}

// Flags of stored.
const (
	isRepeated = 1 << iota // names the target of a record before
	hasUpper               // the target has letters in upper case
	flagBits   = iota
)

func (s stored) len() int { return len(s.prefix) + s.shared }

// nextRecord returns the first record of rest, and what follows it.
func nextRecord(rest string) (r stored, after string) {
	n, rest := Varint(rest)
	flags := byte(n) & (1<<flagBits - 1)
	n >>= flagBits
	return stored{rest[1 : 1+n], int(rest[0]), flags}, rest[1+n:]
}

// nextSig returns the first signature of rest with its TTL, and what follows it.
func nextSig(rest string) (r stored, ttl uint32, after string) {
	ttl = uint32(rest[0])<<24 | uint32(rest[1])<<16 | uint32(rest[2])<<8 | uint32(rest[3])
	r, after = nextRecord(rest[4:])
	return r, ttl, after
}

// appendRData appends the RDATA of a record of n.
func (z *Zone) appendRData(buf []byte, n *node, r stored) []byte {
	buf = append(buf, r.prefix...)
	if r.shared == 0 {
		return buf
	}
	return z.appendShared(buf, n, r.shared)
}

// appendShared appends the last bytes of the name of n.
func (z *Zone) appendShared(buf []byte, n *node, shared int) []byte {
	name := n.spelled()
	switch own := shared - len(z.origin); {
	case n.is(isComplete):
		return append(buf, name[len(name)-shared:]...)
	case own <= 0:
		return append(buf, z.origin[-own:]...)
	default:
		return append(append(buf, name[len(name)-own:]...), z.origin...)
	}
}

// encoder makes the data of nodes.
type encoder struct {
	origin wire.Name
	buf    []byte
	body   []byte
}

// encode returns the data of a draft.
func (e *encoder) encode(d *draft) string {
	kinds, name := byte(0), d.name
	if cut := len(name) - len(e.origin); name[cut:] == string(e.origin) {
		name = name[:cut]
	} else {
		kinds = isComplete
	}
	if string(wire.Lower(name)) != name {
		kinds |= hasUpperName
	}

	e.buf = append(append(e.buf[:0], 0, byte(len(name))), name...)
	for i := range d.sets {
		s := &d.sets[i]
		switch {
		case s.n == 0:
		case s.t == wire.TypeNS && d.key != "" && !isWildcard(d.key):
			kinds |= isDelegation
		case s.t == wire.TypeDNAME:
			kinds |= hasDNAME
		case s.t == wire.TypeCNAME:
			kinds |= hasCNAME
		case s.t == wire.TypeNSEC:
			kinds |= hasNSEC
		}
		e.appendSet(d.name, s)
	}
	e.buf[0] = kinds
	return string(e.buf)
}

// appendSet appends an RRset. The TTL of all records is the smallest among them (RFC 2181
// §5.2).
func (e *encoder) appendSet(owner string, s *rrset) {
	ttl := uint32(math.MaxUint32)
	e.body = e.body[:0]

	// putTargets looks up each target once: see isRepeated.
	before := s.t.TargetOffset()
	var named map[string]struct{}
	if before >= 0 {
		named = make(map[string]struct{}, s.n)
	}

	for r := range eachRecord(s.records) {
		ttl = min(ttl, r.TTL(s.records))
		rdata := s.records[r.RData:r.Next]
		flags := uint64(0)
		if target := wire.NameAt(rdata, before); target != nil {
			low := string(wire.Lower(string(target)))
			if low != string(target) {
				flags |= hasUpper
			}
			if _, ok := named[low]; ok {
				flags |= isRepeated
			}
			named[low] = struct{}{}
		}
		e.appendRData(owner, rdata, flags)
	}

	size := len(e.body)
	for r := range eachRecord(s.sigs) {
		e.body = binary.BigEndian.AppendUint32(e.body, r.TTL(s.sigs))
		e.appendRData(owner, s.sigs[r.RData:r.Next], 0)
	}
	if s.n == 0 {
		ttl = 0
	}

	e.buf = append(e.buf, byte(s.t>>8), byte(s.t))
	e.buf = binary.BigEndian.AppendUint32(e.buf, ttl)
	for _, n := range [...]int{s.n, s.nSigs, size, len(e.body) - size} {
		e.buf = binary.AppendUvarint(e.buf, uint64(n))
	}
	e.buf = append(e.buf, e.body...)
}

func (e *encoder) appendRData(owner string, rdata []byte, flags uint64) {
	shared := 0
	for shared < min(len(owner), len(rdata), 255) && owner[len(owner)-1-shared] == rdata[len(rdata)-1-shared] {
		shared++
	}
	prefix := rdata[:len(rdata)-shared]
	e.body = binary.AppendUvarint(e.body, uint64(len(prefix))<<flagBits|flags)
	e.body = append(append(e.body, byte(shared)), prefix...)
}
