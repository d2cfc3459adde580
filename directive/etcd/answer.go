package etcd

import (
	"context"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// maxChain is the length of the longest chain of CNAME records.
	maxChain = 8
	// maxSteps is the largest number of CNAME targets that one answer follows: each
	// name in a chain may have many.
	maxSteps = 256
)

// An outcome is the result of a lookup.
type outcome uint8

const (
	missing outcome = iota // the name does not exist
	present                // the name exists; the answer is written, and is empty if it has no records of the type
	unknown                // the keys are not known yet, or reading them failed
	waiting                // Resolve must repeat the lookup
)

// A lookup answers one query in one of the handler's zones.
type lookup struct {
	*Handler
	q     *dns.Query
	apex  int // the label of the query name at which the zone begins
	index *index
	ctx   context.Context // nil on a reader, which must not block

	reader   keyReader  // reads the keys that are looked up; nil if index has them
	read     []readPath // by reader
	prior    *subResult // the result of the sub-query for which the query was parked
	err      error      // why the answer is incomplete
	mustWait bool       // Resolve must repeat the lookup
	parked   bool       // a sub-query has been parked

	section  wire.Section
	written  set
	ttls     [3]ttls          // by section
	root     string           // the first name of the chain, if not the query name
	chain    [maxChain]string // the CNAME targets between root and the present name
	steps    int              // number of CNAME targets followed
	branched bool             // the answer has more than one chain
	external int              // the number of sub-queries for addresses of targets outside the zones
}

// conclude turns the outcome of a lookup into a reply.
func (l *lookup) conclude(o outcome) dns.Verdict {
	q := l.q
	indexed := l.index.synced() // false if the index was cleared during the lookup, which may have missed keys
	switch {
	case l.mustWait, !indexed && l.ctx == nil && l.readsEtcd():
		o = waiting
	case !indexed, l.err != nil && q.Answer.Empty():
		o = unknown
	}

	switch o {
	case waiting:
		q.Fail(wire.NoError)
		if l.parked {
			q.SetState(l.stateKey, l.Handler)
		}
		return dns.Wait
	case unknown:
		// The name may exist: NXDOMAIN, or the answer of the next handler, could be wrong.
		q.Fail(wire.ServFail)
		q.Err = l.err
		return dns.Done
	case missing:
		if l.through.Through(q.Name()) {
			return dns.Next
		}
		q.RCode = wire.NXDomain
	}

	q.AA = !l.skydns || q.Type != wire.TypePTR
	l.equalizeTTLs()
	if q.Answer.Empty() {
		l.writeSOA(wire.Authority)
	}
	return dns.Done
}

// answer looks up the query name and writes the answer.
func (l *lookup) answer() outcome {
	if !l.index.synced() {
		return unknown
	}

	q := l.q
	apex := l.apex == 0
	if apex && (q.Type == wire.TypeSOA || q.Type == wire.TypeANY) {
		l.writeSOA(wire.Answers)
		return present
	}

	var buf [wire.MaxName]byte
	path, ok := appendPath(buf[:0], l.lookupName())
	if !ok {
		return missing
	}
	if apex {
		path = l.apexPath(path, q.Type)
	}

	r, ok := l.find(path)
	switch {
	case !ok:
		return unknown
	case l.tooWide(&r):
		return waiting
	case !r.nonEmpty() && !apex:
		return missing
	}
	l.write(r, path, apex)
	if q.Answer.Empty() && !apex && !l.mustWait && l.err == nil {
		l.writeAlias(r, path)
	}
	return present
}

// write writes the records of the keys in r, the keys at and below path.
func (l *lookup) write(r keyRange, path []byte, apex bool) {
	q := l.q
	owner := [2]byte([]byte(wire.OwnerIsQuestion))

	switch q.Type {
	case wire.TypeA, wire.TypeAAAA, wire.TypeTXT:
		l.writeName(r, owner[:], q.Name(), typeSetOf(q.Type), 0)
	case wire.TypeCNAME, wire.TypePTR:
		l.writeExact(r, path, q.Type)
	case wire.TypeSRV:
		l.writeSRV(r)
		l.writeTargets(r, false)
	case wire.TypeMX:
		l.writeMX(r)
		l.writeTargets(r, true)
	case wire.TypeNS:
		if apex {
			l.writeNS(r)
		}
	case wire.TypeANY:
		l.writeAny(r, path, owner[:], apex)
	}
}

// writeAny writes one RRset (RFC 8482 §4.1): the first that exists.
func (l *lookup) writeAny(r keyRange, path, owner []byte, apex bool) {
	a := &l.q.Answer
	if l.writeExact(r, path, wire.TypeCNAME); a.Empty() && !apex {
		l.writeAlias(r, path)
	}
	for _, types := range [3]typeSet{setA, setAAAA, setTXT} {
		if a.Empty() {
			selected := r
			l.selectGroup(&selected, types)
			l.writeDirect(selected, owner, types)
		}
	}
	if a.Empty() {
		l.writeSRV(r)
	}
}

// tooWide reports whether r has too many keys for a UDP reader, so that Resolve must
// repeat the lookup.
func (l *lookup) tooWide(r *keyRange) bool {
	l.mustWait = l.mustWait || l.ctx == nil && r.exceedsReader()
	return l.mustWait
}

// lookupName returns the name to look up: the query name, or the option local for
// local.dns.
func (l *lookup) lookupName() []byte {
	q := l.q
	if l.local != "" && l.apex == 2 && string(q.Name()[:q.LabelOffset(2)]) == "\x05local\x03dns" {
		return []byte(l.local)
	}
	return q.Name()
}

// apexPath returns the path of the data of a zone's apex: ns.dns for NS, and
// apex.dns for addresses if it has any keys.
func (l *lookup) apexPath(path []byte, t wire.Type) []byte {
	switch n := len(path); t {
	case wire.TypeNS:
		return append(path, "dns\x00ns\x00"...)
	case wire.TypeA, wire.TypeAAAA:
		if path = append(path, "dns\x00apex\x00"...); l.noApexFallback {
			return path
		}
		if r, ok := l.find(path); ok && !r.nonEmpty() {
			return path[:n]
		}
	}
	return path
}

// find returns the keys at a path and below it. ok is false if reading them
// failed.
func (l *lookup) find(path []byte) (r keyRange, ok bool) {
	wild := -1
	if l.skydns {
		wild = wildAt(path)
	}

	literal := path
	if wild >= 0 {
		literal = path[:wild]
	}

	x := l.index
	if l.reader != nil {
		if x = l.fetch(string(literal)); x == nil {
			return r, false
		}
	}
	r = x.below(literal)
	if wild >= 0 {
		r.pattern = string(path)
	}
	return r, true
}

// A readPath is the keys at a path and below it.
type readPath struct {
	path    string
	index   *index
	release func()
}

// fetch returns the keys at a path and below it; nil if they cannot be read.
func (l *lookup) fetch(path string) *index {
	for _, r := range l.read {
		if r.path == path {
			return r.index
		}
	}

	x, release, err := l.reader.read(l.ctx, path)
	if err != nil {
		l.err = err
		return nil
	}
	l.read = append(l.read, readPath{path, x, release})
	return x
}

// release ends the use of what fetch has read.
func (l *lookup) release() {
	for _, r := range l.read {
		r.release()
	}
}

// writeExact writes the CNAME or PTR record of the key at path itself.
func (l *lookup) writeExact(r keyRange, path []byte, t wire.Type) {
	var m message
	for r.next(&m) {
		if r.pattern == "" && len(m.path) != len(path) {
			return // only keys below path follow
		}
		if m.name != "" && depth(m.path) == depth(string(path)) {
			l.writeTargetOf(t, m.name, l.ttlOf(&m, l.q.Now()))
			return
		}
	}
}

// beginRecord writes a record header, and returns its offset. The TTL is set by
// endRecord.
func (l *lookup) beginRecord(owner []byte, t wire.Type, size int) (at int) {
	a := &l.q.Answer
	at = len(a.Buf)
	a.Buf = wire.AppendRecordHeader(a.Buf, owner, t, 0, size)
	return at
}

// endRecord completes the record that begins at offset at and has an owner name
// of owner bytes. It discards a duplicate, and reports whether the record is new.
func (l *lookup) endRecord(at, owner int, ttl uint32) (added bool) {
	a := &l.q.Answer
	l.ttls[l.section].add(ttl)
	if !l.written.add(l.seed, a.Buf[at:]) {
		a.Buf = a.Buf[:at]
		return false
	}

	wire.Record{Head: at + owner}.SetTTL(a.Buf, ttl)
	a.Append(l.section, nil, 1)
	return true
}

// ttls describes the TTLs of a section.
type ttls struct {
	least        uint32
	known, mixed bool
}

func (t *ttls) add(ttl uint32) {
	if t.known && t.least != ttl {
		t.least, t.mixed = min(t.least, ttl), true
		return
	}
	t.least, t.known = ttl, true
}

// equalizeTTLs sets the TTL of all records of a section to the least one, since the
// records of an RRset have one TTL (RFC 2181 §5.2).
func (l *lookup) equalizeTTLs() {
	if !l.ttls[wire.Answers].mixed && !l.ttls[wire.Additional].mixed {
		return
	}
	a := &l.q.Answer
	a.Walk(func(s wire.Section, r wire.Record) bool {
		if t := &l.ttls[s]; t.mixed {
			r.SetTTL(a.Buf, min(r.TTL(a.Buf), t.least))
		}
		return true
	})
}

// writeSOA writes the zone's SOA record, with the timers of CoreDNS or of SkyDNS.
func (l *lookup) writeSOA(s wire.Section) {
	const mname, rname = "\x02ns\x03dns", "\x0ahostmaster"
	q, a := l.q, &l.q.Answer
	apex := wire.QuestionPointer(q.LabelOffset(l.apex))
	serial := uint32(l.index.changed.Load())
	if l.reader != nil {
		serial = uint32(time.Now().Unix())
	}

	ttl, fields := l.negative, [5]uint32{serial, 7200, 1800, 86400, l.negative}
	if l.skydns {
		fields = [5]uint32{serial, 28800, 7200, 604800, l.negative}
		if s == wire.Answers {
			ttl = l.ttl
		}
	}

	size := len(rname) + 2
	if l.hostmaster != "" {
		size = len(l.hostmaster)
	}

	a.Buf = wire.AppendRecordHeader(a.Buf, apex[:], wire.TypeSOA, ttl, len(mname)+2+size+20)
	a.Buf = append(append(a.Buf, mname...), apex[:]...)
	if l.hostmaster != "" {
		a.Buf = append(a.Buf, l.hostmaster...)
	} else {
		a.Buf = append(append(a.Buf, rname...), apex[:]...)
	}

	for _, v := range fields {
		a.Buf = append(a.Buf, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	a.Append(s, nil, 1)
}
