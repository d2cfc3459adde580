package etcd

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// kinds are what is looked for at the end of a chain.
type kinds uint8

const (
	four kinds = 1 << iota
	six
	texts
)

func kindOf(t wire.Type) kinds {
	switch t {
	case wire.TypeA:
		return four
	case wire.TypeAAAA:
		return six
	case wire.TypeTXT:
		return texts
	}
	return 0
}

// has says that m itself has what is looked for.
func (k kinds) has(m *message) bool {
	return k&four != 0 && m.addr.Is4() || k&six != 0 && m.addr.Is6() || k&texts != 0 && m.text != ""
}

// leads says that m's name may lead to what is looked for. SkyDNS does not follow
// it for texts.
func (l *lookup) leads(m *message, k kinds) bool {
	return m.name != "" && (k&texts == 0 || m.text == "" && !l.skydns)
}

// reach writes what a name has, and what it leads to, and says whether that is
// anything. owner is the name in the answer's form; there are steps names before it.
func (l *lookup) reach(r run, owner, name []byte, k kinds, steps int) (found bool) {
	l.group(&r, k)
	found, names := l.direct(r, owner, k)
	if names > 1 || names > 0 && found {
		l.branched = true
	}
	if names > 0 && l.lead(r, owner, name, k, steps) {
		found = true
	}
	return found
}

// group leaves the messages of one group, if the keys are so.
func (l *lookup) group(r *run, k kinds) {
	if r.groups() {
		r.only(k&texts != 0)
	}
}

// direct writes the records of the messages themselves. It says whether there are
// any, and how many lead to other names.
func (l *lookup) direct(r run, owner []byte, k kinds) (found bool, names int) {
	q, a := l.q, &l.q.Answer
	var m message
	for r.next(&m) {
		if len(a.Buf) > q.SizeLimit() && (l.section == wire.Answers || q.ExceedsLimit()) {
			return true, 0 // what is missing shows when the message is cut
		}
		if l.leads(&m, k) {
			names++
		}
		if !k.has(&m) {
			continue
		}
		found = true
		at := len(a.Buf)
		if k&texts != 0 {
			l.text(owner, m.text)
		} else {
			a.Buf = wire.AppendAddress(a.Buf, owner, 0, m.addr)
		}
		l.keep(at, len(owner), l.ttlOf(&m, q.Now()))
	}
	return found, names
}

// text writes a TXT record in strings of 255 bytes.
func (l *lookup) text(owner []byte, text string) {
	a := &l.q.Answer
	l.head(owner, wire.TypeTXT, len(text)+(len(text)+254)/255)
	for text != "" {
		n := min(len(text), 255)
		a.Buf = append(append(a.Buf, byte(n)), text[:n]...)
		text = text[n:]
	}
}

// lead writes a CNAME record for each message whose host is a name, if that leads
// to anything, and behind it what it leads to. One that leads nowhere, to itself or
// too far is left out.
func (l *lookup) lead(r run, owner, name []byte, k kinds, steps int) (found bool) {
	a := &l.q.Answer
	var m message
	for r.next(&m) {
		if !l.leads(&m, k) || l.loops(m.name, name, steps) {
			continue
		}
		if steps >= maxChain || l.steps >= maxSteps || l.q.ExceedsLimit() {
			return found
		}
		l.steps++
		l.chain[steps] = m.name
		count, ttls := a.Count, l.ttls
		at := l.head(owner, wire.TypeCNAME, len(m.name))
		a.Buf = append(a.Buf, m.name...)
		fresh, sum := l.keep(at, len(owner), l.ttlOf(&m, l.q.Now())), l.written.last
		switch {
		case !fresh, l.target(m.name, k, steps+1):
			found = true
		case l.waits:
			return false
		default:
			l.written.forget(sum)
			a.Buf, a.Count, l.ttls = a.Buf[:at], count, ttls
		}
	}
	return found
}

// loops says that a host leads back to a name of its chain. What is below the name
// it stands for is among that name's answers anyway; SkyDNS looks there again.
func (l *lookup) loops(host string, name []byte, steps int) bool {
	if host == string(name) || host == l.root || l.root == "" && host == string(l.q.Name()) || slices.Contains(l.chain[:steps], host) {
		return true
	}
	return !l.skydns && len(host) > len(name) && wire.Name(host).Within(wire.Name(name))
}

// target writes what the name of a host has, be it here or elsewhere.
func (l *lookup) target(host string, k kinds, steps int) (found bool) {
	var room [2 * wire.MaxName]byte
	name := append(room[:0], host...)
	if l.serves(name) {
		path, ok := appendPath(room[wire.MaxName:wire.MaxName], name)
		if !ok {
			return false
		}
		for i := range l.zones {
			if k&texts == 0 && string(l.zones[i].name) == host {
				path = l.apexPath(path, wire.TypeA)
			}
		}
		r, ok := l.find(path)
		if !ok || l.far(&r) {
			return false
		}
		if r.any() {
			var owner [wire.MaxName]byte
			return l.reach(r, l.q.Answer.AppendOwner(owner[:0], name), name, k, steps)
		}
		if !l.through.Through(name) {
			return false
		}
	}
	if l.section == wire.Additional {
		return l.beside(name)
	}
	return l.elsewhere(name)
}

// A found is what a further question gave.
type found struct {
	name       []byte
	t          wire.Type
	answer     wire.Answer
	rcode      wire.RCode
	ra, tc     bool
	err        error
	unanswered bool
}

// foundIn keeps what sub says: its memory is used again.
func foundIn(sub *dns.Query) *found {
	f := read(sub)
	f.name, f.answer.Buf = slices.Clone(f.name), slices.Clone(f.answer.Buf)
	return &f
}

func read(sub *dns.Query) found {
	return found{sub.Name(), sub.Type, sub.Answer, sub.RCode, sub.RA, sub.TC, sub.Err, sub.Unanswered()}
}

// further puts a question to this server. It says false if the answer has to be
// waited for, which a reader cannot.
func (l *lookup) further(name []byte, t wire.Type) (found, bool) {
	if f := l.before; f != nil && f.t == t && bytes.Equal(f.name, name) {
		return *f, true
	}
	sub, ok := l.q.SubQuery(name, t)
	if !ok && l.ctx == nil {
		l.waits, l.begun = true, true
		return found{}, false
	}
	if !ok {
		sub = l.q.ResumeSubQuery(l.ctx)
	}
	return read(sub), true
}

var errElsewhere = errors.New("etcd: nothing is known of the targets of several names")

// elsewhere writes what a name has that the index does not. If it is the end of one
// chain the response code is its own (RFC 6604), and if nobody here serves it the
// CNAME is the answer.
func (l *lookup) elsewhere(name []byte) (has bool) {
	f, ok := l.further(name, l.q.Type)
	if !ok {
		return false
	}
	if f.unanswered {
		return true
	}
	if has = l.adopt(&f, wire.Answers); l.branched {
		if !has && f.rcode == wire.ServFail {
			l.failed = cmp.Or(f.err, errElsewhere)
		}
		return has
	}
	q := l.q
	q.RCode, q.RA, q.TC, q.Err = f.rcode, f.ra, f.tc, f.err
	if !has {
		l.adopt(&f, wire.Authority)
	}
	return true
}

// maxOutside is how many targets that the index does not have are looked up for the
// additional section.
const maxOutside = 8

// beside writes the addresses of such a target, if they can be had.
func (l *lookup) beside(name []byte) (has bool) {
	if l.outside++; l.outside > maxOutside {
		return false
	}
	for _, t := range [2]wire.Type{wire.TypeA, wire.TypeAAAA} {
		f, ok := l.further(name, t)
		if !ok {
			return false
		}
		if f.rcode == wire.ServFail {
			l.outside = maxOutside // whoever has it may not have others
			return has
		}
		has = l.adopt(&f, wire.Answers) || has
	}
	return has
}

// adopt copies the records of a section of f into the same one, or into the
// additional section if that is being written, and says whether there are any.
func (l *lookup) adopt(f *found, from wire.Section) (any bool) {
	a, to := &l.q.Answer, from
	if l.section == wire.Additional {
		to = wire.Additional
	}
	f.answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s != from || l.q.ExceedsLimit() {
			return s < from
		}
		if to == wire.Additional && r.Type != wire.TypeA && r.Type != wire.TypeAAAA && r.Type != wire.TypeCNAME {
			return true
		}
		at, count := len(a.Buf), a.Count
		if _, err := a.AppendRecord(to, f.answer.Buf, r.Owner); err != nil {
			return true
		}
		any = true
		own, _ := wire.ReadRecord(a.Buf, at)
		ttl := own.TTL(a.Buf)
		own.SetTTL(a.Buf, 0)
		if !l.written.add(l.seed, a.Buf[at:]) {
			a.Buf, a.Count = a.Buf[:at], count
			return true
		}
		own.SetTTL(a.Buf, ttl)
		return true
	})
	return any
}
