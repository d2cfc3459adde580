package forward

import (
	"bytes"
	"encoding/binary"

	"github.com/seamark/seamark/wire"
)

// A fault is why a packet of an upstream is not an answer; it is the reason
// that seamark_forward_discarded_total names.
type fault string

const (
	sound     fault = ""
	malformed fault = "malformed" // does not parse
	unasked   fault = "id"        // nobody waits for that id
	question  fault = "question"  // the id is right, the question is not
	foreign   fault = "records"   // no record of it belongs to the question
	oversize  fault = "size"      // larger than what was asked for
	late      fault = "late"      // right, but the question was answered meanwhile
	scrubbed  fault = "record"    // one record of a good reply was left out
)

// A reply is what an upstream said, for every client that asked the same: its
// records are in the answer's form, checked, and belong to the question.
type reply struct {
	code    wire.RCode
	flags   uint16
	cut     bool // TC
	edns    bool // it has an OPT
	records []byte
	count   [3]uint16
	options []byte // of its OPT, without those that are between us and the upstream
	left    int    // records that did not belong
	poor    bool   // it answered another type: NODATA, which is not kept
}

// nodata says that the name exists and has nothing of the type.
func (r *reply) nodata() bool { return r.code == wire.NoError && r.count[wire.Answers] == 0 }

// dislikes says that the upstream does not understand the request; without an
// OPT, it may be EDNS that it does not know.
func (r *reply) dislikes() bool {
	return !r.edns && (r.code == wire.FormErr || r.code == wire.NotImp)
}

// A parser reads replies. It keeps memory from one to the next, and belongs to
// one goroutine.
type parser struct {
	all     wire.Answer // every record, its names written out
	found   []found
	names   [][]byte // the question's name and those that CNAMEs lead to
	targets [][]byte // names that records tell, whose addresses may follow
	dnames  [][]byte // owners of DNAMEs above these
}

// A found record is one of the parser's.
type found struct {
	wire.Record
	section wire.Section
	keep    bool
}

const (
	// mostNames bounds what one reply makes the parser look for.
	mostNames = 32
	// mostWritten bounds what it takes with names written out: compression can
	// make a message twenty times its size.
	mostWritten = 4 * wire.MaxMessage
)

// echoes says whether packet answers the question with which it was asked: as
// it was spelled, or in lower case, which some servers make of it. A header
// alone is an answer if it says that the server does not understand us.
func echoes(packet, asked []byte) bool {
	flags := binary.BigEndian.Uint16(packet[2:])
	if flags&wire.FlagQR == 0 || flags>>11&15 != 0 {
		return false
	}
	if n := binary.BigEndian.Uint16(packet[4:]); n != 1 {
		code := wire.RCode(flags & 15)
		return n == 0 && len(packet) == wire.HeaderLen && (code == wire.FormErr || code == wire.NotImp)
	}
	in := packet[wire.HeaderLen:]
	if len(in) < len(asked) {
		return false
	}
	in = in[:len(asked)]
	if bytes.Equal(in, asked) {
		return true
	}
	name := len(asked) - 4
	for i, c := range asked[:name] {
		if in[i] != lower(c) {
			return false
		}
	}
	return bytes.Equal(in[name:], asked[name:])
}

// parse reads a packet that echoes the question. do says that the client wants
// the records of DNSSEC.
func (p *parser) parse(packet, asked []byte, do bool) (*reply, fault) {
	flags := binary.BigEndian.Uint16(packet[2:])
	r := &reply{code: wire.RCode(flags & 15), flags: flags, cut: flags&wire.FlagTC != 0}
	if len(packet) == wire.HeaderLen {
		return r, sound
	}
	if err := p.read(r, packet, wire.HeaderLen+len(asked)); err != sound {
		if r.cut {
			// Some cut their replies wherever the space ends.
			return &reply{code: r.code, flags: flags, cut: true, edns: r.edns}, sound
		}
		return nil, err
	}
	p.choose(asked, do)
	answers, named := false, false
	for i := range p.found {
		f := &p.found[i]
		answers = answers || f.section == wire.Answers
		named = named || f.section == wire.Answers && has(p.names, p.owner(f))
		if !f.keep {
			r.left++
			continue
		}
		r.count[f.section]++
		buf := p.all.Buf
		r.records = appendOwner(r.records, asked, buf[f.Owner:f.Head])
		at := len(r.records)
		r.records = append(r.records, buf[f.Head:f.Next]...)
		if r.records[at+4]&0x80 != 0 { // RFC 2181 §8
			clear(r.records[at+4 : at+8])
		}
	}
	if answers && r.code == wire.NoError && r.count[wire.Answers] == 0 {
		// Some load balancers have one answer to all types. It is about the
		// name, at least, and asking again would bring it again.
		if r.poor = named; !named {
			return nil, foreign
		}
	}
	return r, sound
}

// read takes every record in, and the OPT apart.
func (p *parser) read(r *reply, packet []byte, off int) fault {
	p.all.Reset(p.all.Buf, nil)
	p.found = p.found[:0]
	for s := range wire.Section(3) {
		for range binary.BigEndian.Uint16(packet[6+2*s:]) {
			rec, ok := wire.ReadRecord(packet, off)
			switch {
			case !ok:
				return malformed
			case rec.Type == wire.TypeOPT:
				if s != wire.Additional || r.edns || packet[off] != 0 || !r.opt(packet, rec) {
					return malformed
				}
				off = rec.Next
				continue
			}
			start := len(p.all.Buf)
			next, err := p.all.AppendRecord(s, packet, off)
			if err != nil || len(p.all.Buf) > mostWritten {
				return malformed
			}
			off = next
			rec, _ = wire.ReadRecord(p.all.Buf, start)
			if n := rec.Next - rec.RData; rec.Type == wire.TypeA && n != 4 || rec.Type == wire.TypeAAAA && n != 16 {
				return malformed
			}
			p.found = append(p.found, found{Record: rec, section: s})
		}
	}
	return sound
}

// opt reads the OPT record: the upper bits of the code, and the options that
// are not only between us and the upstream.
func (r *reply) opt(packet []byte, rec wire.Record) bool {
	r.edns = true
	r.code |= wire.RCode(packet[rec.Head+4]) << 4
	fits := true
	r.options, fits = appendThrough(nil, packet[rec.RData:rec.Next])
	return fits
}

// appendThrough writes those options behind buf that are not only between us and
// the upstream; a server's name may have been asked for by rewrite.
func appendThrough(buf, options []byte) (out []byte, fits bool) {
	size := 0
	for code, data := range wire.Options(options) {
		size += 4 + len(data)
		if code == wire.OptionNSID || !wire.HopByHopOption(code) {
			buf = wire.AppendOption(buf, code, data)
		}
	}
	return buf, size == len(options)
}

// choose marks the records that belong to the question.
func (p *parser) choose(asked []byte, do bool) {
	name := asked[:len(asked)-4]
	t := wire.Type(binary.BigEndian.Uint16(asked[len(asked)-4:]))
	class := wire.Class(binary.BigEndian.Uint16(asked[len(asked)-2:]))
	p.names, p.targets, p.dnames = append(p.names[:0], name), p.targets[:0], p.dnames[:0]
	p.answers(t, class, do)
	p.authority(class, do)
	for i := range p.found {
		if p.found[i].keep {
			p.tells(&p.found[i])
		}
	}
	for i := range p.found {
		f := &p.found[i]
		address := f.Type == wire.TypeA || f.Type == wire.TypeAAAA || do && f.Type == typeRRSIG
		f.keep = f.keep || f.section == wire.Additional && address && p.classOf(f, class) && has(p.targets, p.owner(f))
	}
}

// Types of DNSSEC (RFC 4034, RFC 5155), and those between which a question's
// type is no record's: TKEY to ANY (RFC 6895 §3.1).
const (
	typeRRSIG wire.Type = 46
	typeNSEC  wire.Type = 47
	typeNSEC3 wire.Type = 50
	firstMeta wire.Type = 249
	lastMeta  wire.Type = 255
)

func (p *parser) owner(f *found) []byte { return p.all.Buf[f.Owner:f.Head] }
func (p *parser) rdata(f *found) []byte { return p.all.Buf[f.RData:f.Next] }

func (p *parser) classOf(f *found, class wire.Class) bool {
	return class == wire.ClassANY || wire.Class(binary.BigEndian.Uint16(p.all.Buf[f.Head+2:])) == class
}

func has(names [][]byte, name []byte) bool {
	for _, n := range names {
		if same(n, name) {
			return true
		}
	}
	return false
}

// answers follows the CNAMEs from the question's name. They may stand in any
// order, so it looks until nothing more is found.
func (p *parser) answers(t wire.Type, class wire.Class, do bool) {
	for more := true; more; {
		more = false
		known, above := len(p.names), len(p.dnames)
		missing := false
		for i := range p.found {
			f := &p.found[i]
			if f.section != wire.Answers || f.keep || !p.classOf(f, class) {
				continue
			}
			f.keep = p.answer(f, t, do)
			missing = missing || !f.keep
		}
		more = missing && (len(p.names) > known || len(p.dnames) > above)
	}
}

func (p *parser) answer(f *found, t wire.Type, do bool) bool {
	owner := p.owner(f)
	whole := t == f.Type || firstMeta <= t && t <= lastMeta // ANY and the like take what there is
	switch {
	case f.Type == wire.TypeDNAME && !whole:
		for _, n := range p.names {
			if len(n) > len(owner) && within(n, owner) {
				if len(p.dnames) < mostNames {
					p.dnames = append(p.dnames, owner)
				}
				return true
			}
		}
		return false
	case f.Type == typeRRSIG && !whole:
		return do && (has(p.names, owner) || has(p.dnames, owner))
	case f.Type == wire.TypeCNAME && !whole:
		if !has(p.names, owner) {
			return false
		}
		if target := p.rdata(f); len(p.names) < mostNames && !has(p.names, target) {
			p.names = append(p.names, target)
		}
		return true
	}
	return whole && has(p.names, owner)
}

// authority keeps what a zone that holds one of the names says of itself, and
// with DO the proofs of that zone.
func (p *parser) authority(class wire.Class, do bool) {
	var zone []byte
	for i := range p.found {
		f := &p.found[i]
		if f.section == wire.Answers && f.keep && f.Type == typeRRSIG && zone == nil {
			// The proof of a wildcard comes without the zone's own records.
			if signer, ok := nameAt(p.rdata(f), 18); ok && p.holds(signer) {
				zone = signer
			}
		}
		if f.section != wire.Authority || !p.classOf(f, class) {
			continue
		}
		switch f.Type {
		case wire.TypeSOA, wire.TypeNS, wire.TypeDS:
			if owner := p.owner(f); p.holds(owner) {
				f.keep = true
				if f.Type != wire.TypeDS && len(owner) > len(zone) {
					zone = owner
				}
			}
		}
	}
	if !do {
		return
	}
	for i := range p.found {
		f := &p.found[i]
		if f.section != wire.Authority || !p.classOf(f, class) {
			continue
		}
		switch f.Type {
		case typeNSEC, typeNSEC3, typeRRSIG:
			owner := p.owner(f)
			f.keep = p.holds(owner) || zone != nil && within(owner, zone)
		}
	}
}

// holds says whether one of the names is in that zone.
func (p *parser) holds(zone []byte) bool {
	for _, n := range p.names {
		if within(n, zone) {
			return true
		}
	}
	return false
}

// tells remembers the name that a record leads to.
func (p *parser) tells(f *found) {
	before := 0
	switch f.Type {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeAFSDB, wire.TypeKX, wire.TypeSVCB, wire.TypeHTTPS:
		before = 2
	case wire.TypeSRV:
		before = 6
	default:
		return
	}
	target, ok := nameAt(p.rdata(f), before)
	if !ok || len(p.targets) >= mostNames {
		return
	}
	if len(target) == 1 { // RFC 9460 §2.5: the owner itself
		target = p.owner(f)
	}
	if !has(p.targets, target) {
		p.targets = append(p.targets, target)
	}
}
