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

// A table has the records by owner name. It is immutable after finish.
type table struct {
	names     map[wire.Name]*node
	wildcards wire.ZoneMap[*node]     // by the name after "*."
	ancestors map[string]struct{}     // all ancestors of owner names
	seen      map[seenRecord]struct{} // finds duplicates; nil after finish
}

// A seenRecord identifies a record of a table.
type seenRecord struct {
	node  *node
	t     wire.Type
	rdata string
}

// A node has the records of one owner name.
type node struct {
	first  corefile.Token // the position of the first record
	sets   []rrset
	target []byte // of the CNAME record, in the Corefile's spelling; nil if there is none
}

// An rrset has the records of one owner name and type.
type rrset struct {
	t       wire.Type
	ttl     uint32
	rdata   []string
	targets []target // the names in rdata that have addresses in the table
}

type target struct {
	name []byte // in the Corefile's spelling
	node *node
}

func (r *rrset) hasAddresses() bool { return r.t == wire.TypeA || r.t == wire.TypeAAAA }

// find returns the node of the query name, or else of the longest wildcard that
// matches it, or nil.
func (t *table) find(q *dns.Query) *node {
	n := t.names[wire.Name(q.Name())]
	if n == nil {
		n, _ = t.wildcard(q)
	}
	return n
}

// wildcard returns the node of the longest wildcard that matches the query name, or nil,
// and the index of the label of the name after which the labels are those of the wildcard.
func (t *table) wildcard(q *dns.Query) (n *node, at int) {
	return t.wildcards.Longest(&q.Request, 1)
}

// wildcard is the first label of a wildcard name.
const wildcard = "\x01*"

// add adds a record with the owner name owner, which is at a token of the
// Corefile; r.Owner is not used.
func (t *table) add(at corefile.Token, owner wire.Name, r zonefile.Record) error {
	n := t.addNode(at, owner)
	i := slices.IndexFunc(n.sets, func(s rrset) bool { return s.t == r.Type })
	if len(n.sets) > 0 && i < 0 && (r.Type == wire.TypeCNAME || n.target != nil) {
		return fmt.Errorf("%s has a CNAME record and other records: see %s:%d", owner, n.first.File, n.first.Line)
	}
	if i < 0 {
		i = len(n.sets)
		n.sets = append(n.sets, rrset{t: r.Type, ttl: r.TTL})
	}

	s := &n.sets[i]
	key := seenRecord{n, r.Type, r.RData}
	if _, ok := t.seen[key]; !ok {
		if (r.Type == wire.TypeCNAME || r.Type == wire.TypeSOA) && len(s.rdata) > 0 {
			return fmt.Errorf("%s has a second %s record: see %s:%d", owner, r.Type, n.first.File, n.first.Line)
		}
		t.seen[key] = struct{}{}
		s.rdata = append(s.rdata, r.RData)
	}

	s.ttl = min(s.ttl, r.TTL) // RFC 2181 §5.2
	if r.Type == wire.TypeCNAME {
		n.target = []byte(r.RData)
	}
	return nil
}

// addNode returns the node of an owner name. It adds the node if it does not exist.
func (t *table) addNode(at corefile.Token, owner wire.Name) *node {
	if t.names == nil {
		t.names, t.ancestors, t.seen = map[wire.Name]*node{}, map[string]struct{}{}, map[seenRecord]struct{}{}
	}
	parent, isWildcard := strings.CutPrefix(string(owner), wildcard)
	n := t.names[owner]
	if isWildcard {
		n = t.wildcards.Get(wire.Name(parent))
	}
	if n != nil {
		return n
	}

	n = &node{first: at}
	if isWildcard {
		t.wildcards.Set(wire.Name(parent), n)
	} else {
		t.names[owner] = n
	}
	for up := owner; up != wire.Root; {
		up = up[1+up[0]:]
		t.ancestors[string(up)] = struct{}{}
	}
	return n
}

// finish links the records to their targets. It is called after the last add.
func (t *table) finish() {
	t.seen = nil
	for _, nodes := range [...]map[wire.Name]*node{t.names, t.wildcards.All()} {
		for _, n := range nodes {
			for i := range n.sets {
				t.linkTargets(&n.sets[i])
			}
		}
	}
}

// linkTargets sets s.targets: the names whose addresses go into the additional
// section beside s (RFC 1035 §3.3, RFC 2782, RFC 9460 §4.1).
func (t *table) linkTargets(s *rrset) {
	before := 0 // bytes of RDATA before the name
	switch s.t {
	case wire.TypeNS:
	case wire.TypeMX, wire.TypeSVCB, wire.TypeHTTPS:
		before = 2
	case wire.TypeSRV:
		before = 6
	default:
		return
	}

	linked := map[wire.Name]struct{}{}
	for _, rdata := range s.rdata {
		spelled, _, ok := wire.ReadName(nil, []byte(rdata), before)
		if !ok {
			continue
		}

		name := wire.Lower(string(spelled))
		if _, ok := linked[name]; ok {
			continue
		}
		linked[name] = struct{}{}
		n := t.lookup(name)
		if n != nil && slices.ContainsFunc(n.sets, func(s rrset) bool { return s.hasAddresses() }) {
			s.targets = append(s.targets, target{spelled, n})
		}
	}
}

// lookup is like find for a name that is not a query name.
func (t *table) lookup(name wire.Name) *node {
	if n := t.names[name]; n != nil {
		return n
	}
	if name == wire.Root {
		return nil
	}
	n, _ := t.wildcards.LongestOf([]byte(name[1+name[0]:]))
	return n
}
