package records

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// A table finds what a name has. It does not change once it is made.
type table struct {
	names map[wire.Name]*node
	wild  map[wire.Name]*node // by the name behind "*."
	deep  int                 // labels of the longest in wild
	above map[string]struct{} // names that names with records are below
}

// A node is the records of one name.
type node struct {
	first  corefile.Token // where the first of them stands
	sets   []set
	target []byte // of its CNAME record, which is alone then; as it is spelled
}

// A set is the records of one type.
type set struct {
	t     wire.Type
	ttl   uint32
	rdata []string
	to    []target // the names among ours that they lead to, with addresses
}

type target struct {
	name []byte // as it is spelled
	node *node
}

func (s *set) address() bool { return s.t == wire.TypeA || s.t == wire.TypeAAAA }

// find gives the question's records: its name's own, or those of the longest
// wildcard above it.
func (t *table) find(q *dns.Query) *node {
	name, labels := q.Name(), q.Labels()
	if n := t.names[wire.Name(name)]; n != nil {
		return n
	}
	if len(t.wild) == 0 {
		return nil
	}
	for i := max(1, labels-t.deep); i <= labels; i++ {
		if n := t.wild[wire.Name(name[q.LabelOffset(i):])]; n != nil {
			return n
		}
	}
	return nil
}

// wildcard is the first label of names that stand for others.
const wildcard = "\x01*"

// add adds one record, which stands at a token of the Corefile. Its owner is
// given beside it.
func (t *table) add(at corefile.Token, owner wire.Name, r zonefile.Record) error {
	if t.names == nil {
		t.names, t.wild, t.above = map[wire.Name]*node{}, map[wire.Name]*node{}, map[string]struct{}{}
	}
	in, key := t.names, owner
	if below, ok := strings.CutPrefix(string(owner), wildcard); ok {
		in, key = t.wild, wire.Name(below)
	}
	n := in[key]
	if n == nil {
		n = &node{first: at}
		in[key] = n
		for up := owner; up != wire.Root; {
			up = up[1+up[0]:]
			t.above[string(up)] = struct{}{}
		}
	}
	i := slices.IndexFunc(n.sets, func(s set) bool { return s.t == r.Type })
	if len(n.sets) > 0 && i < 0 && (r.Type == wire.TypeCNAME || n.target != nil) {
		return fmt.Errorf("%s has a CNAME record and others: see %s:%d", owner, n.first.File, n.first.Line)
	}
	if i < 0 {
		i = len(n.sets)
		n.sets = append(n.sets, set{t: r.Type, ttl: r.TTL})
	}
	s := &n.sets[i]
	switch one := r.Type == wire.TypeCNAME || r.Type == wire.TypeSOA; {
	case slices.Contains(s.rdata, r.RData):
	case one && len(s.rdata) > 0:
		return fmt.Errorf("%s has a second %s record: see %s:%d", owner, r.Type, n.first.File, n.first.Line)
	default:
		s.rdata = append(s.rdata, r.RData)
	}
	s.ttl = min(s.ttl, r.TTL) // RFC 2181 §5.2
	if r.Type == wire.TypeCNAME {
		n.target = []byte(r.RData)
	}
	return nil
}

// settle is called when all records are there: it finds those that go with
// others.
func (t *table) settle() {
	for name := range t.wild {
		t.deep = max(t.deep, name.Labels())
	}
	for _, in := range [...]map[wire.Name]*node{t.names, t.wild} {
		for _, n := range in {
			for i := range n.sets {
				n.sets[i].lead(t)
			}
		}
	}
}

// lead finds the names whose addresses go with the records of s (RFC 1035
// §3.3, RFC 2782, RFC 9460 §4.1).
func (s *set) lead(t *table) {
	before := 0
	switch s.t {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeSVCB, wire.TypeHTTPS:
		before = 2
	case wire.TypeSRV:
		before = 6
	default:
		return
	}
	for _, rdata := range s.rdata {
		name, _, ok := wire.ReadName(nil, []byte(rdata), before)
		if !ok || slices.ContainsFunc(s.to, func(to target) bool { return wire.SameName(to.name, name) }) {
			continue
		}
		if n := t.of(wire.Lower(string(name))); n != nil && slices.ContainsFunc(n.sets, func(s set) bool { return s.address() }) {
			s.to = append(s.to, target{name, n})
		}
	}
}

// of is find for a name that nobody asks for.
func (t *table) of(name wire.Name) *node {
	if n := t.names[name]; n != nil {
		return n
	}
	for name != wire.Root {
		name = name[1+name[0]:]
		if n := t.wild[name]; n != nil {
			return n
		}
	}
	return nil
}
