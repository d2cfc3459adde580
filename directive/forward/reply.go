package forward

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/seamark/seamark/wire"
)

// A discardReason is why a packet is not a reply to a query: the label reason of
// seamark_forward_discarded_total.
type discardReason string

const (
	valid         discardReason = ""
	malformed     discardReason = "malformed"
	unknownID     discardReason = "id"       // no query waits for that ID
	wrongQuestion discardReason = "question" // the ID is right, the question is not
	unrelated     discardReason = "records"  // no record belongs to the query
	oversize      discardReason = "size"     // larger than the requested size
	late          discardReason = "late"     // valid, but the query was answered before
	extraRecord   discardReason = "record"   // a record of a valid reply was dropped
)

// A reply is the validated reply of an upstream, for all clients that sent the
// query. Its records belong to the query and are encoded as in wire.Answer.
type reply struct {
	code      wire.RCode
	flags     uint16
	truncated bool
	edns      bool // it has an OPT record
	records   []byte
	count     [3]uint16
	options   []byte // of the OPT record, without hop-by-hop ones
	dropped   int    // the number of records dropped
	otherType bool   // only records of other types: NODATA that is not stored
}

// isNODATA reports whether the name exists without records of the type.
func (r *reply) isNODATA() bool { return r.code == wire.NoError && r.count[wire.Answers] == 0 }

// rejectsRequest reports whether the upstream did not understand the request.
// Without an OPT record, the upstream may not support EDNS.
func (r *reply) rejectsRequest() bool {
	return !r.edns && (r.code == wire.FormErr || r.code == wire.NotImp)
}

// A parser parses replies. It reuses its memory and is not safe for concurrent
// use.
type parser struct {
	answer  wire.Answer // all records, uncompressed
	records []parsedRecord
	aliases []int    // indexes of the CNAME and DNAME records to follow
	names   [][]byte // the queried name and the targets of CNAME records
	targets [][]byte // names in RDATA whose addresses may follow
	dnames  [][]byte // owners of DNAME records above names

	seed   maphash.Seed
	folded []byte
	seen   map[uint64]bool // hashes of records, to find duplicates
}

// A parsedRecord is a record of the reply.
type parsedRecord struct {
	wire.Record
	section wire.Section
	keep    bool
}

const (
	// maxNames bounds the length of a CNAME chain, and the names whose addresses
	// are kept.
	maxNames = 32
	// maxUncompressed bounds the uncompressed size of a reply. Compression can
	// reduce a message to a twentieth.
	maxUncompressed = 4 * wire.MaxMessage
)

// echoesQuestion reports whether packet is a response with the question of the query, in
// the same spelling or in lower case, as some servers send it. A response without
// a question is accepted if it is a bare header that rejects the query.
func echoesQuestion(packet, asked []byte) bool {
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

// parse parses a packet that echoes the question. do is the DO bit of the query.
func (p *parser) parse(packet, asked []byte, do bool) (*reply, discardReason) {
	flags := binary.BigEndian.Uint16(packet[2:])
	r := &reply{code: wire.RCode(flags & 15), flags: flags, truncated: flags&wire.FlagTC != 0}
	if len(packet) == wire.HeaderLen {
		return r, valid
	}
	if err := p.read(r, packet, wire.HeaderLen+len(asked)); err != valid {
		if r.truncated {
			// Some servers truncate within a record.
			return &reply{code: r.code, flags: flags, truncated: true, edns: r.edns}, valid
		}
		return nil, err
	}
	if !p.selectRecords(asked, do) {
		return brokenChain(r), valid
	}
	answers, named := false, false
	for i := range p.records {
		f := &p.records[i]
		answers = answers || f.section == wire.Answers
		named = named || f.section == wire.Answers && containsName(p.names, p.owner(f))
		if !f.keep {
			r.dropped++
			continue
		}
		r.count[f.section]++
		buf := p.answer.Buf
		r.records = appendOwner(r.records, asked, buf[f.Owner:f.Head])
		at := len(r.records)
		r.records = append(r.records, buf[f.Head:f.Next]...)
		if r.records[at+4]&0x80 != 0 { // RFC 2181 §8
			clear(r.records[at+4 : at+8])
		}
	}
	if answers && r.code == wire.NoError && r.count[wire.Answers] == 0 {
		// Some load balancers send the same answer for all types. The name
		// exists, and another query would have the same result.
		if r.otherType = named; !named {
			return nil, unrelated
		}
	}
	return r, valid
}

// brokenChain returns the SERVFAIL reply in place of r, whose CNAME records form a
// loop or a chain that is too long.
func brokenChain(r *reply) *reply {
	const otherError = 0 // RFC 8914 §4.1
	text := append([]byte{otherError, 0}, "upstream sent a CNAME loop or too long a CNAME chain"...)
	return &reply{
		code: wire.ServFail, flags: r.flags & wire.FlagRA, edns: r.edns, dropped: 1,
		options: wire.AppendOption(nil, wire.OptionEDE, text),
	}
}

// read reads all records into p, and the OPT record into r.
func (p *parser) read(r *reply, packet []byte, off int) discardReason {
	if p.seen == nil {
		p.seed, p.seen = maphash.MakeSeed(), map[uint64]bool{}
	}
	clear(p.seen)
	p.answer.Reset(p.answer.Buf, nil)
	p.records = p.records[:0]
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
			start := len(p.answer.Buf)
			next, err := p.answer.AppendRecord(s, packet, off)
			if err != nil || len(p.answer.Buf) > maxUncompressed {
				return malformed
			}
			off = next
			rec, _ = wire.ReadRecord(p.answer.Buf, start)
			if n := rec.Next - rec.RData; rec.Type == wire.TypeA && n != 4 || rec.Type == wire.TypeAAAA && n != 16 {
				return malformed
			}
			f := parsedRecord{Record: rec, section: s}
			if p.isDuplicate(&f) {
				p.answer.Buf = p.answer.Buf[:start]
				r.dropped++
				continue
			}
			p.records = append(p.records, f)
		}
	}
	return valid
}

// isDuplicate reports whether the section has had the same record before, with
// any TTL (RFC 2181 §5).
func (p *parser) isDuplicate(f *parsedRecord) bool {
	p.folded = wire.AppendLower(p.folded[:0], p.owner(f))
	p.folded = append(p.folded, byte(f.section))
	p.folded = append(p.folded, p.answer.Buf[f.Head:f.Head+4]...) // type and class
	if f.Type == wire.TypeCNAME {
		p.folded = wire.AppendLower(p.folded, p.rdata(f))
	} else {
		p.folded = append(p.folded, p.rdata(f)...)
	}
	hash := maphash.Bytes(p.seed, p.folded)
	if p.seen[hash] {
		return true
	}
	p.seen[hash] = true
	return false
}

func (p *parser) owner(f *parsedRecord) []byte { return p.answer.Buf[f.Owner:f.Head] }
func (p *parser) rdata(f *parsedRecord) []byte { return p.answer.Buf[f.RData:f.Next] }

// opt reads the OPT record: the upper bits of the response code, and the options
// to pass on.
func (r *reply) opt(packet []byte, rec wire.Record) bool {
	r.edns = true
	r.code |= wire.RCode(packet[rec.Head+4]) << 4
	fits := true
	r.options, fits = appendForwardedOptions(nil, packet[rec.RData:rec.Next])
	return fits
}

// appendForwardedOptions appends the options that are not hop-by-hop to buf. NSID
// is kept because rewrite may have added it to the query.
func appendForwardedOptions(buf, options []byte) (out []byte, fits bool) {
	size := 0
	for code, data := range wire.Options(options) {
		size += 4 + len(data)
		if code == wire.OptionNSID || !wire.HopByHopOption(code) {
			buf = wire.AppendOption(buf, code, data)
		}
	}
	return buf, size == len(options)
}
