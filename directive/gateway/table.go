package gateway

import (
	"iter"
	"net/netip"

	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A table has the answers for hosts. One goroutine changes it; readers take no lock. The zero value is
// empty.
type table struct {
	exact     zone.Table[answer]
	wildcards zone.Table[wildAnswer] // by the name after "*."
}

// An answer for a host. It is immutable.
type answer struct {
	records
	from objects.ID // that owns the host
	via  string     // whose addresses they are
}

// A wildAnswer has the answers for names below a wildcard: those with one more label, and all.
type wildAnswer struct{ label, all *answer }

// Records are the records of an answer. Answers with the same addresses share them.
type records struct {
	a, aaaa string // with the question's name as their owner
	count   [2]int // of a and aaaa
	alias   wire.Name
}

func (r *records) isEmpty() bool { return r.a == "" && r.aaaa == "" && r.alias == "" }

// newRecords returns the records of a target.
func newRecords(t *target, ttl uint32) records {
	r := records{alias: t.alias}
	var buf [2][]byte
	for _, addr := range t.addrs {
		i := familyOf(addr)
		buf[i] = wire.AppendAddress(buf[i], wire.OwnerIsQuestion, ttl, addr)
		r.count[i]++
	}
	r.a, r.aaaa = string(buf[0]), string(buf[1])
	return r
}

// familyOf returns the index of an address's type in arrays: A, AAAA.
func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// find returns the answer for a query name, nil if there is none. Length is that of the longest delegated
// zone that the name is in: wildcards above it do not match. The exact host comes first, and then the
// longest wildcard.
func (x *table) find(q *dns.Query, length int) *answer {
	name := q.Name()
	if a := x.exact.Get(name); a != nil {
		return a
	}
	for at := 1; at <= q.Labels(); at++ {
		parent := name[q.LabelOffset(at):]
		if len(parent) < length {
			break
		}
		w := x.wildcards.Get(parent)
		switch {
		case w == nil:
		case at == 1:
			return w.label
		case w.all != nil:
			return w.all
		}
	}
	return nil
}

// update has the table have what is published, and changes only what differs.
func (x *table) update(p published, ttl uint32) (changed int) {
	made := map[*target]records{}
	answerOf := func(w won, old *answer) *answer {
		if w.unit == nil {
			return nil
		}
		r, ok := made[w.to]
		if !ok {
			r = newRecords(w.to, ttl)
			made[w.to] = r
		}
		if old != nil && old.records == r && old.from == w.unit.ID && old.via == w.to.from {
			return old
		}
		return &answer{r, w.unit.ID, w.to.from}
	}

	for h, s := range p.hosts {
		if !h.wild {
			old := x.exact.Get([]byte(h.name))
			if now := answerOf(s.label, old); now != old {
				x.exact.Set(string(h.name), now)
				changed++
			}
			continue
		}
		var was wildAnswer
		if old := x.wildcards.Get([]byte(h.name)); old != nil {
			was = *old
		}
		if now := (wildAnswer{answerOf(s.label, was.label), answerOf(s.all, was.all)}); now != was {
			x.wildcards.Set(string(h.name), &now)
			changed++
		}
	}

	for name := range x.exact.All() {
		if p.hosts[host{wire.Name(name), false}] == nil {
			x.exact.Delete(name)
			changed++
		}
	}
	for name := range x.wildcards.All() {
		if p.hosts[host{wire.Name(name), true}] == nil {
			x.wildcards.Delete(name)
			changed++
		}
	}
	return changed
}

// all returns the owner names and their answers, for any reader.
func (x *table) all() iter.Seq2[wire.Name, *answer] {
	return func(yield func(wire.Name, *answer) bool) {
		for name, a := range x.exact.All() {
			if !yield(wire.Name(name), a) {
				return
			}
		}
		for parent, w := range x.wildcards.All() {
			if !yield(wire.Name(wildcard+parent), w.label) {
				return
			}
		}
	}
}

// each yields the records with an owner name one by one. It returns false if yield did.
func (r *records) each(owner wire.Name, ttl uint32, yield func([]byte) bool) bool {
	if r.alias != "" {
		buf := wire.AppendRecordHeader(nil, string(owner), wire.TypeCNAME, ttl, len(r.alias))
		return yield(append(buf, r.alias...))
	}
	for _, addr := range r.addrs() {
		if !yield(wire.AppendAddress(nil, string(owner), ttl, addr)) {
			return false
		}
	}
	return true
}

// addrs returns the addresses of the records.
func (r *records) addrs() (all []netip.Addr) {
	for i, set := range [2]string{r.a, r.aaaa} {
		for size := len(set) / max(1, r.count[i]); set != ""; set = set[size:] {
			addr, _ := netip.AddrFromSlice([]byte(set[size-[2]int{4, 16}[i] : size]))
			all = append(all, addr)
		}
	}
	return all
}
