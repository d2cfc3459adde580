package forward

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"runtime"
	"slices"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// A reply is the validated reply of an upstream, for all clients that sent the
// query. Its records belong to the query and are encoded as in wire.Answer.
type reply struct {
	code      wire.RCode
	flags     uint16
	truncated bool
	edns      bool  // it has an OPT record
	fault     fault // noQuestion, empty, unfinished, referral or resolverReferral
	records   []byte
	count     [3]uint16
	options   []byte // of the OPT record, without hop-by-hop ones
	dropped   int    // the number of records dropped
	otherType bool   // the name had only records of other types: NODATA that is not cached
	// target is that of the last CNAME record if this server has to ask for it: because it is in a
	// zone of its own data, or because the reply is unfinished; else nil.
	target []byte
	// The message as it was received, and when (of package clock). They are set if the
	// request has observed set.
	packet   []byte
	received time.Duration

	claim *memory.Claim // of a large reply, until a query has it; else nil
	err   error         // there is no memory for the records: it has none
}

// largeReply is the size from which on a reply counts as memory of queries that wait: hundreds of
// them may be received before the first query continues.
const largeReply = 16 << 10

// answerCopies is how often the records of a large reply are in memory until the query is answered: in the answer, and
// in the entry that the cache makes.
const answerCopies = 2

// reserve reserves bytes for a large reply, before it is copied.
func (r *reply) reserve(b *memory.Budget, bytes int) error {
	if bytes < largeReply || b == nil {
		return nil
	}
	r.claim = b.Claim(memory.Waiting)
	runtime.AddCleanup(r, (*memory.Claim).Release, r.claim) // no query may be left to take it
	return r.claim.Grow(int64(bytes))
}

// isNODATA reports whether the name exists without records of the type.
func (r *reply) isNODATA() bool { return r.code == wire.NoError && r.count[wire.Answers] == 0 }

// write makes r the answer to q.
func (r *reply) write(q *dns.Query) {
	q.Answer.Append(wire.Answers, r.records, 0)
	q.Answer.Count = r.count
	q.RCode = r.code
	q.AA = r.flags&wire.FlagAA != 0
	q.RA = r.flags&wire.FlagRA != 0
	q.AD = r.flags&wire.FlagAD != 0
	q.TC = r.truncated
	q.Cacheable = !r.truncated && !r.otherType

	// Other options are for clients that have sent them (RFC 7871 §7.2.1). Rewrite may have added some.
	for code, data := range wire.Options(r.options) {
		if code == wire.OptionEDE || wire.HasOption(q.Options, code) {
			q.AddReplyOption(code, data)
		}
	}
}

// A parser parses replies. It reuses its memory and is not safe for concurrent
// use.
type parser struct {
	ownZones  *dns.OwnZones // records of names in them are dropped, unless the queried name is in the zone
	ownTarget []byte        // the name in them that a CNAME record leads to; nil for none

	memory *memory.Budget // for large replies; may be nil
	kept   int            // bytes that are kept of the reply besides its records

	answer  wire.Answer // all records, uncompressed
	records []parsedRecord
	aliases []int    // indexes in records of the CNAME and DNAME records among the answers
	cnames  []int    // of these, the result of alias
	names   [][]byte // the queried name and the targets of CNAME records
	end     []byte   // of the chain: one of names, or ownTarget
	// What DNAME records make: a CNAME record that the reply lacks, or a name that is too long.
	redirected, tooLong bool
	targets             [][]byte // names in RDATA whose addresses may follow
	dnames              [][]byte // owners of DNAME records above names

	seed      maphash.Seed
	canonical []byte          // of the record that isDuplicate compares
	seen      map[uint64]bool // hashes of records, to find duplicates
}

// A parsedRecord is a record of the reply.
type parsedRecord struct {
	wire.Record
	section wire.Section
	keep    bool
	broken  bool // an answer whose data does not have the form of its type: the data is left out
	rank    int  // of the kept answers, set by sortAnswers
}

const (
	// maxNames bounds the length of a CNAME chain, and the names whose addresses
	// are kept.
	maxNames = 32
	// maxUncompressed bounds the uncompressed size of a reply. Compression can
	// reduce a message to a twentieth.
	maxUncompressed = 4 * wire.MaxMessage
)

// isCutInQuestion reports whether packet is a response that ends within the question of the query.
func isCutInQuestion(packet, question []byte) bool {
	rest := packet[wire.HeaderLen:]
	return packet[2]>>7 != 0 && hasQuestion(packet) && len(rest) < len(question) &&
		wire.SameName(rest, question[:len(rest)])
}

func hasQuestion(packet []byte) bool { return binary.BigEndian.Uint16(packet[4:]) != 0 }

// isResponse reports whether packet is a response to a standard query.
func isResponse(packet []byte) bool { return packet[2]>>3 == 1<<4 }

// echoesQuestion reports whether packet is a response with the question of the query, in
// the same spelling or in lower case, as some servers send it. A header without a
// question is accepted if there are no answers either.
func echoesQuestion(packet, question []byte) bool {
	if !isResponse(packet) {
		return false
	}
	if n := binary.BigEndian.Uint16(packet[4:]); n != 1 {
		return n == 0 && binary.BigEndian.Uint32(packet[6:]) == 0
	}

	received := packet[wire.HeaderLen:]
	if len(received) < len(question) {
		return false
	}
	received = received[:len(question)]
	if bytes.Equal(received, question) {
		return true
	}

	var lower [wire.MaxName]byte
	name := len(question) - 4
	return bytes.Equal(received[:name], wire.AppendLower(lower[:0], question[:name])) &&
		bytes.Equal(received[name:], question[name:])
}

// parse parses a packet for which echoesQuestion is true. do is the DO bit of the query.
func (p *parser) parse(packet, question []byte, do bool) (*reply, fault) {
	flags := binary.BigEndian.Uint16(packet[2:])
	r := &reply{code: wire.RCode(flags & 15), flags: flags, truncated: flags&wire.FlagTC != 0}
	if !hasQuestion(packet) {
		p.parseHeader(r, packet)
		return r, valid
	}

	isRead := p.read(r, packet, wire.HeaderLen+len(question))
	chained := isRead && p.selectRecords(question, do)
	switch {
	case isRead && !slices.ContainsFunc(p.records, func(r parsedRecord) bool { return r.keep && r.broken }):
	case r.truncated: // some servers truncate within a record
		return &reply{code: r.code, flags: flags, truncated: true, edns: r.edns}, valid
	default:
		return nil, malformed
	}
	if !chained {
		return brokenChainReply(r), valid
	}
	r.target = bytes.Clone(p.ownTarget)
	if p.tooLong && r.code == wire.NoError {
		r.code = wire.YXDomain // RFC 6672 §2.2
	}

	p.sortAnswers()
	answers, named := p.copyKept(r)
	if r.err != nil {
		return r, valid
	}
	if answers && r.code == wire.NoError && r.count[wire.Answers] == 0 {
		// Some load balancers send the same records for all types. The name
		// exists, and another query would have the same result.
		if r.otherType = named; !named {
			return nil, unrelated
		}
	}
	switch {
	case p.isUnfinished(r):
		r.fault, r.target = unfinished, bytes.Clone(p.end)
	case !answers:
		r.fault = p.faultWithoutAnswers(r)
	}
	return r, valid
}

// parseHeader parses a packet that has no question, and perhaps an OPT record, into r. Such a
// reply can only be an error.
func (p *parser) parseHeader(r *reply, packet []byte) {
	if r.truncated {
		return // the message over TCP may have one
	}
	r.fault = noQuestion
	if !p.read(r, packet, wire.HeaderLen) {
		r.options = nil
	}
	if r.code == wire.NoError || r.code == wire.NXDomain {
		r.code = wire.ServFail
	}
	r.options = appendError(r.options, "upstream sent a reply without the question")
}

// faultWithoutAnswers returns the fault of a reply whose answer section is empty. A lame server, or one
// without recursion, refers to other servers (RFC 2308 §2.2), or sends nothing.
func (p *parser) faultWithoutAnswers(r *reply) fault {
	if r.code != wire.NoError || r.truncated || r.flags&wire.FlagAA != 0 {
		return valid
	}

	isResolver, has := r.flags&wire.FlagRA != 0, func(t wire.Type) bool {
		return slices.ContainsFunc(p.records, func(r parsedRecord) bool { return r.section == wire.Authority && r.Type == t })
	}
	switch {
	case len(p.records) == 0 && !isResolver:
		return empty
	case !has(wire.TypeNS) || has(wire.TypeSOA):
		return valid
	case isResolver:
		return resolverReferral
	}
	return referral
}

// allowReferral accepts what a server may send to a query without RD.
func (r *reply) allowReferral() {
	switch r.fault {
	case referral, resolverReferral, empty:
		r.fault = valid
	case unfinished:
		r.fault, r.target = valid, nil
	}
}

// copyKept copies the records to keep into r. It reports whether the reply had answer records,
// and some of the queried name or an alias of it. Without memory it copies nothing and sets r.err.
func (p *parser) copyKept(r *reply) (answers, named bool) {
	size := 0
	for i := range p.records {
		if p.records[i].keep {
			size += len(p.owner(&p.records[i])) + p.records[i].Next - p.records[i].Head
		}
	}
	if r.err = r.reserve(p.memory, size+p.kept); r.err != nil {
		return false, false
	}
	r.records = make([]byte, 0, size) // at once: a reply of 60 KB would make five times as much garbage

	for i := range p.records {
		record := &p.records[i]
		answers = answers || record.section == wire.Answers
		named = named || record.section == wire.Answers && containsName(p.names, p.owner(record))
		if !record.keep {
			r.dropped++
			continue
		}

		r.count[record.section]++
		// A name that the question ends in becomes a pointer: each client gets it in its own spelling.
		r.records = p.answer.AppendOwner(r.records, p.owner(record))
		at := len(r.records)
		r.records = append(r.records, p.answer.Buf[record.Head:record.Next]...)
		if r.records[at+4]&0x80 != 0 { // RFC 2181 §8: a TTL with the highest bit is zero
			clear(r.records[at+4 : at+8])
		}
	}
	return answers, named
}

// brokenChainReply returns the SERVFAIL reply in place of r, whose CNAME records form a
// loop or a chain that is too long.
func brokenChainReply(r *reply) *reply {
	return &reply{
		code: wire.ServFail, flags: r.flags & wire.FlagRA, edns: r.edns, dropped: 1,
		options: appendError(nil, "upstream sent a CNAME loop or too long a CNAME chain"),
	}
}

// appendError appends an extended error without a code of its own (RFC 8914 §4.1).
func appendError(options []byte, text string) []byte {
	return wire.AppendOption(options, wire.OptionEDE, append([]byte{0, 0}, text...))
}

// read reads all records into p, and the OPT record into r. It returns false if the packet ends
// within a record or is too large.
func (p *parser) read(r *reply, packet []byte, off int) bool {
	if p.seen == nil {
		p.seed, p.seen = maphash.MakeSeed(), map[uint64]bool{}
	}
	clear(p.seen)
	p.answer.Reset(p.answer.Buf, packet[wire.HeaderLen:off])
	p.records = p.records[:0]

	for s := range wire.Section(3) {
		for range binary.BigEndian.Uint16(packet[6+2*s:]) {
			rec, ok := wire.ReadRecord(packet, off)
			if !ok {
				return false
			}
			off = rec.Next
			if rec.Type == wire.TypeOPT {
				r.readOPT(packet, rec)
				continue
			}

			start := len(p.answer.Buf)
			record, ok := p.copyRecord(s, packet, rec)
			switch {
			case !ok || len(p.answer.Buf) > maxUncompressed:
				return false
			case record.broken && s != wire.Answers || !record.broken && p.isDuplicate(&record):
				p.answer.Buf = p.answer.Buf[:start]
				r.dropped++
				continue
			}
			p.records = append(p.records, record)
		}
	}
	return true
}

// copyRecord copies a record of packet to p.answer. ok is false if it is an answer without a valid
// owner, which may be the name of the query.
func (p *parser) copyRecord(s wire.Section, packet []byte, rec wire.Record) (record parsedRecord, ok bool) {
	start := len(p.answer.Buf)
	if _, err := p.answer.AppendValid(s, packet, rec.Owner); err == nil {
		record.Record, _ = wire.ReadRecord(p.answer.Buf, start)
		record.section = s
		return record, true
	}

	// Whether the owner belongs to the query is known once all records are read.
	buf, _, ok := wire.ReadName(p.answer.Buf, packet, rec.Owner)
	if !ok {
		return parsedRecord{broken: true}, s != wire.Answers
	}
	p.answer.Buf = append(append(buf, packet[rec.Head:rec.RData-2]...), 0, 0)
	record.Record, _ = wire.ReadRecord(p.answer.Buf, start)
	record.section, record.broken = s, true
	return record, true
}

// isDuplicate reports whether the section has had the same record before, with
// any TTL (RFC 2181 §5).
func (p *parser) isDuplicate(record *parsedRecord) bool {
	p.canonical = wire.AppendLower(p.canonical[:0], p.owner(record))
	p.canonical = append(p.canonical, byte(record.section))
	p.canonical = append(p.canonical, p.answer.Buf[record.Head:record.Head+4]...) // type and class
	if record.Type == wire.TypeCNAME {
		p.canonical = wire.AppendLower(p.canonical, p.rdata(record))
	} else {
		p.canonical = append(p.canonical, p.rdata(record)...)
	}
	hash := maphash.Bytes(p.seed, p.canonical)
	if p.seen[hash] {
		return true
	}
	p.seen[hash] = true
	return false
}

func (p *parser) owner(record *parsedRecord) []byte { return p.answer.Buf[record.Owner:record.Head] }
func (p *parser) rdata(record *parsedRecord) []byte { return p.answer.Buf[record.RData:record.Next] }

// readOPT reads the OPT record into r: the upper bits of the response code, and the
// options to pass on, unless they are malformed. There may be several OPT records, in any
// section: the options of the first count, and the bits of the first that has some.
func (r *reply) readOPT(packet []byte, rec wire.Record) {
	if r.code < 16 {
		r.code |= wire.RCode(packet[rec.Head+4]) << 4
	}
	if r.edns {
		r.dropped++
		return
	}

	r.edns = true
	if options, ok := appendForwardedOptions(nil, packet[rec.RData:rec.Next]); ok {
		r.options = options
	}
}

// appendForwardedOptions appends the options that are not hop-by-hop to buf. NSID
// is kept because rewrite may have added it to the query. ok is false if options are
// malformed.
func appendForwardedOptions(buf, options []byte) (out []byte, ok bool) {
	size := 0
	for code, data := range wire.Options(options) {
		size += 4 + len(data)
		if code == wire.OptionNSID || !wire.HopByHopOption(code) {
			buf = wire.AppendOption(buf, code, data)
		}
	}
	return buf, size == len(options)
}
