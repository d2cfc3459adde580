package etcd

import (
	"context"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	// maxChain is how many CNAMEs may lead from one to the next.
	maxChain = 8
	// maxSteps is how many names an answer may lead through in all: each of a
	// chain's may have many targets.
	maxSteps = 256
)

// An outcome is what was found for a question.
type outcome uint8

const (
	missing outcome = iota // the name does not exist
	present                // it does; the answer is written, and empty if it lacks the type
	unknown                // what would tell is not there
	waiting                // it must not be found out upon a reader
)

// A lookup is one question in one of the handler's zones.
type lookup struct {
	*Handler
	q    *dns.Query
	zone *zoneInfo
	x    *index
	ctx  context.Context // off the reader; nil upon it

	from   asker    // who is asked for the keys at a path, before x is looked at
	asked  []string // for what it has been
	before *found   // what a further question has given already
	failed error    // why something could not be found out
	waits  bool     // it cannot be found out upon a reader
	begun  bool     // a further question is under way

	section  wire.Section
	written  set
	ttls     [3]ttls          // of each section
	root     string           // the name at which chains begin, if it is not the question's
	chain    [maxChain]string // the names that they have led to
	steps    int
	branched bool // it is not one name that leads to one
	outside  int  // how many targets that others know have been asked for
}

// conclude makes a reply of what was found.
func (l *lookup) conclude(o outcome) dns.Verdict {
	q := l.q
	kept := l.x.synced() // not if there got to be too many keys meanwhile: any may have been missed
	switch {
	case l.waits, !kept && l.ctx == nil && l.asks():
		o = waiting
	case !kept, l.failed != nil && q.Answer.Empty():
		o = unknown
	}
	switch o {
	case waiting:
		q.Fail(wire.NoError)
		if l.begun {
			q.SetState(l.word, l.Handler)
		}
		return dns.Wait
	case unknown:
		// Neither NXDOMAIN nor anybody else's to answer.
		q.Fail(wire.ServFail)
		q.Err = l.failed
		return dns.Done
	case missing:
		if l.through.Through(q.Name()) {
			return dns.Next
		}
		q.RCode = wire.NXDomain
	}
	q.AA = !l.skydns || q.Type != wire.TypePTR
	l.level()
	if q.Answer.Empty() {
		l.soa(wire.Authority)
	}
	return dns.Done
}

// answer finds what the name has and writes it.
func (l *lookup) answer() outcome {
	if !l.x.synced() {
		return unknown
	}
	q := l.q
	apex := q.Labels() == l.zone.labels
	if apex && (q.Type == wire.TypeSOA || q.Type == wire.TypeANY) {
		l.soa(wire.Answers)
		return present
	}
	var room [wire.MaxName]byte
	path, ok := appendPath(room[:0], l.named())
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
	case l.far(&r):
		return waiting
	case !r.any() && !apex:
		return missing
	}
	l.write(r, path, apex)
	return present
}

// write writes what r, which is at path, has for the question.
func (l *lookup) write(r run, path []byte, apex bool) {
	q := l.q
	owner := [2]byte([]byte(wire.OwnerIsQuestion))
	switch q.Type {
	case wire.TypeA, wire.TypeAAAA, wire.TypeTXT:
		l.reach(r, owner[:], q.Name(), kindOf(q.Type), 0)
	case wire.TypeCNAME, wire.TypePTR:
		l.exactly(r, path, q.Type)
	case wire.TypeSRV:
		l.services(r)
		l.targets(r, false)
	case wire.TypeMX:
		l.exchanges(r)
		l.targets(r, true)
	case wire.TypeNS:
		if apex {
			l.nameservers(r)
		}
	case wire.TypeANY: // one RRset (RFC 8482 §4.1): the first that there is
		l.exactly(r, path, wire.TypeCNAME)
		for _, k := range [3]kinds{four, six, texts} {
			if q.Answer.Empty() {
				some := r
				l.group(&some, k)
				l.direct(some, owner[:], k)
			}
		}
		if q.Answer.Empty() {
			l.services(r)
		}
	}
}

// far says that so many keys are no reader's work, and has the lookup leave it.
func (l *lookup) far(r *run) bool {
	l.waits = l.waits || l.ctx == nil && r.wide()
	return l.waits
}

// named is the name to look at: the question's own, or what local.dns stands for.
func (l *lookup) named() []byte {
	q := l.q
	if l.local != "" && q.Labels() == l.zone.labels+2 && string(q.Name()[:q.LabelOffset(2)]) == "\x05local\x03dns" {
		return []byte(l.local)
	}
	return q.Name()
}

// apexPath is where the data of a zone's own name are: its name servers below
// ns.dns, its addresses below apex.dns, if there is anything.
func (l *lookup) apexPath(path []byte, t wire.Type) []byte {
	switch n := len(path); t {
	case wire.TypeNS:
		return append(path, "dns\x00ns\x00"...)
	case wire.TypeA, wire.TypeAAAA:
		if path = append(path, "dns\x00apex\x00"...); l.noApexFallback {
			return path
		}
		if r, ok := l.find(path); ok && !r.any() {
			return path[:n]
		}
	}
	return path
}

// find gives the keys at a path and below. It says false if nobody can tell.
func (l *lookup) find(path []byte) (r run, ok bool) {
	wild := -1
	if l.skydns {
		wild = wildAt(path)
	}
	literal := path
	if wild >= 0 {
		literal = path[:wild]
	}
	if l.from != nil && !l.fetch(string(literal)) {
		return r, false
	}
	r = l.x.below(literal)
	if wild >= 0 {
		r.pattern = string(path)
	}
	return r, true
}

// fetch brings into the index what is at a path and below.
func (l *lookup) fetch(path string) bool {
	for _, before := range l.asked {
		if before == path {
			return true
		}
	}
	all, err := l.from.ask(l.ctx, keyOf(l.x.prefix, []byte(path)))
	if err != nil {
		l.failed = err
		return false
	}
	l.x.put(all...)
	l.asked = append(l.asked, path)
	return true
}

// exactly writes the CNAME or PTR record of the key itself.
func (l *lookup) exactly(r run, path []byte, t wire.Type) {
	var m message
	for r.next(&m) {
		if r.pattern == "" && len(m.path) != len(path) {
			return // the key itself comes first
		}
		if m.name != "" && depth(m.path) == depth(string(path)) {
			at := l.head([]byte(wire.OwnerIsQuestion), t, len(m.name))
			l.q.Answer.Buf = append(l.q.Answer.Buf, m.name...)
			l.keep(at, len(wire.OwnerIsQuestion), l.ttlOf(&m, l.q.Now()))
			return
		}
	}
}

// head begins a record, whose TTL comes with keep, and says where.
func (l *lookup) head(owner []byte, t wire.Type, size int) (at int) {
	a := &l.q.Answer
	at = len(a.Buf)
	a.Buf = wire.AppendRecordHeader(a.Buf, owner, t, 0, size)
	return at
}

// keep takes in the record that begins at an offset and has an owner of so many
// bytes, unless it has been written before.
func (l *lookup) keep(at, owner int, ttl uint32) (fresh bool) {
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

// ttls are those of some records.
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

// level gives the records of a section one TTL, so that those of one name and type
// have it (RFC 2181 §5.2).
func (l *lookup) level() {
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

// soa writes the zone's SOA record, with the numbers of CoreDNS or of SkyDNS.
func (l *lookup) soa(s wire.Section) {
	const mname, rname = "\x02ns\x03dns", "\x0ahostmaster"
	q, a := l.q, &l.q.Answer
	apex := wire.QuestionPointer(q.LabelOffset(q.Labels() - l.zone.labels))
	serial := uint32(l.x.changed.Load())
	if l.from != nil {
		serial = uint32(time.Now().Unix())
	}
	ttl, numbers := l.negative, [5]uint32{serial, 7200, 1800, 86400, l.negative}
	if l.skydns {
		numbers = [5]uint32{serial, 28800, 7200, 604800, l.negative}
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
	for _, v := range numbers {
		a.Buf = append(a.Buf, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	a.Append(s, nil, 1)
}
