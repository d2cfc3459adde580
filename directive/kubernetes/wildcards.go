package kubernetes

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// This file is the option wildcards: questions with labels that stand for any.
// They are rare and may concern every Service, so all of it may allocate, and
// what walks over a whole table is done in Resolve. That may happen beside changes:
// a table's cell has its key before its entry, and keeps it.

func (l *lookup) isStar(i int) bool { return string(l.label(i)) == "*" }

// wild says whether the question has a wildcard. Reverse names and those of
// ServiceImports, which kube-dns does not know, have none.
func (l *lookup) wild() bool {
	if l.zone.reverse || l.zone.multicluster {
		return false
	}
	for i := range l.below {
		if l.isStar(i) {
			return true
		}
	}
	return false
}

// wide says whether all Services or all namespaces have to be looked at.
func (l *lookup) wide() bool { return l.below > 2 && (l.isStar(l.below-2) || l.isStar(l.below-3)) }

// serveWildcard answers a question with wildcards, or says that it takes longer.
// Its lookup is another one than that of all questions, which is never allocated.
func (h *Handler) serveWildcard(q *dns.Query, z *zoneInfo) dns.Verdict {
	l := lookup{Handler: h, q: q, zone: z, below: q.Labels() - z.labels}
	if l.wide() {
		return dns.Wait
	}
	return l.conclude(l.spread())
}

// spread finds what a question with wildcards stands for, and writes its records.
func (l *lookup) spread() outcome {
	switch kind := string(l.label(l.below - 1)); {
	case kind == "pod":
		return l.wildPods()
	case kind != "svc" && kind != "*":
		return missing
	case l.below == 1:
		return present
	case l.below == 2:
		return l.wildNamespace()
	case !l.listed(cluster.Slices):
		return unknown
	}
	found := missing
	for _, t := range [3]wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeSRV} {
		if l.q.Type == wire.TypeANY && l.wants(t) {
			found = l.gather(t)
		}
	}
	if l.q.Type != wire.TypeANY {
		found = l.gather(l.q.Type)
	}
	return found
}

// wildNamespace answers for a name of namespaces.
func (l *lookup) wildNamespace() outcome {
	if !l.isStar(0) {
		return l.namespace(l.q.Name()[:l.q.LabelOffset(1)])
	}
	for range l.namespaces() {
		return present
	}
	return missing
}

// namespaces gives the labels of those that the question's label may stand for.
func (l *lookup) namespaces() iter.Seq[string] {
	return func(yield func(string) bool) {
		for label, s := range l.index.spaces.All() {
			if s.exposed.Load() && !yield(label) {
				return
			}
		}
	}
}

// wildPods answers IP-WITH-DASHES.*.pod. A pod's address itself has to be told:
// every address of a namespace is a pod's, unless they are verified.
func (l *lookup) wildPods() outcome {
	switch {
	case l.pods == podsDisabled:
		return missing
	case l.below == 2:
		return l.wildNamespace()
	case l.pods == podsVerified && !l.listed(cluster.Pods):
		return unknown
	}
	ip, ok := undash(l.label(0))
	if !ok || l.below > 3 {
		return missing
	}
	for label := range l.namespaces() {
		if l.pods == podsInsecure || l.index.pods.Get(podKey(nil, []byte(label), ip)) != nil {
			l.address(ip)
			return present
		}
	}
	return missing
}

// A catch is what matches a question with wildcards.
type catch struct {
	*lookup
	qtype wire.Type
	any   bool   // some name does
	alias *entry // the first ExternalName that does
	ips   map[netip.Addr]struct{}
	srv   []share
	n     int // of SRV records, as countSRV has it
}

// A share is what a question takes of one Service.
type share struct {
	service
	sel selection
}

// gather answers with the records of a type. They come in an order that servers
// with equal data agree on, if they are not more than the reply can hold.
func (l *lookup) gather(t wire.Type) outcome {
	c := catch{lookup: l, qtype: t, ips: map[netip.Addr]struct{}{}}
	for e := range l.candidates() {
		if c.take(e); c.full() {
			break
		}
	}
	switch {
	case !c.any && c.alias != nil:
		return l.alias(c.alias)
	case !c.any:
		return missing
	}
	a := &l.q.Answer
	for _, ip := range slices.SortedFunc(maps.Keys(c.ips), netip.Addr.Compare) {
		if len(a.Buf) > l.q.SizeLimit() {
			break // what is missing shows when the message is cut
		}
		a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, l.ttl, ip)
		a.Count[wire.Answers]++
	}
	slices.SortFunc(c.srv, func(a, b share) int { return bytes.Compare(a.name, b.name) })
	for _, s := range c.srv {
		if len(a.Buf) > l.q.SizeLimit() {
			return present
		}
		s.writeSRV(c.n, &s.sel)
	}
	for _, s := range c.srv {
		if l.q.ExceedsLimit() {
			break
		}
		s.writeTargets(&s.sel)
	}
	return present
}

// full says that nothing more needs to be found.
func (c *catch) full() bool {
	const shortest = 28 // a SRV record
	switch c.qtype {
	case wire.TypeA, wire.TypeAAAA:
		return len(c.ips)*lenA > c.q.SizeLimit()
	case wire.TypeSRV:
		return c.n > 100 && len(c.srv)*shortest > c.q.SizeLimit()
	}
	return c.any
}

// candidates gives the entries of all Services whose names match.
func (l *lookup) candidates() iter.Seq[*entry] {
	name, at := l.q.Name(), l.below-3
	service, space := name[l.q.LabelOffset(at):l.q.LabelOffset(at+1)], name[l.q.LabelOffset(at+1):l.q.LabelOffset(at+2)]
	return func(yield func(*entry) bool) {
		switch {
		case l.isStar(at):
			for key, e := range l.index.services.All() {
				if (l.isStar(at+1) || key[1+int(key[0]):] == string(space)) && !yield(e) {
					return
				}
			}
		case l.isStar(at + 1):
			for label := range l.namespaces() {
				if e := l.index.services.Get(append(slices.Clip(service), label...)); e != nil && !yield(e) {
					return
				}
			}
		default:
			if e := l.index.services.Get(name[l.q.LabelOffset(at):l.q.LabelOffset(at+2)]); e != nil {
				yield(e)
			}
		}
	}
}

// take adds what matches of one Service.
func (c *catch) take(e *entry) {
	spelled := c.q.QuestionName()[c.q.LabelOffset(c.below):]
	name := append([]byte(e.home.key+"\x03svc"), spelled...)
	s := share{service: service{lookup: c.lookup, e: e, left: c.below - 3, name: name}}
	switch {
	case !e.visible() || len(name) > wire.MaxName: // nobody can have that name
		return
	case e.alias:
		if s.left == 0 && (c.alias == nil || e.home.before(c.alias.home)) {
			c.alias = e
		}
		return
	case !s.matches():
		return
	}
	c.any = true
	switch {
	case s.sel.proto != nil && s.sel.port == nil: // stands between a port and the Service
	case c.qtype == wire.TypeSRV:
		if n := s.countSRV(&s.sel); n > 0 {
			c.n += n
			c.srv = append(c.srv, s)
		}
	case c.qtype == wire.TypeA || c.qtype == wire.TypeAAAA:
		s.addressesTo(c)
	}
}

// before says whether the one Service's name is in front of the other's.
func (h *home) before(o *home) bool {
	a, b := h.name(), o.name()
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace)) < 0
}

// matches finds out what the labels in front of the Service's name select of it,
// as service.answer does for names without wildcards, and whether there is that.
func (s *share) matches() bool {
	front := s.left // labels that are not a port's
	sel := selection{own: !s.e.headless}
	if s.left > 0 && s.label(s.left - 1)[0] == '_' {
		sel.proto, front = s.label(s.left - 1)[1:], s.left-1
		if front > 0 {
			if s.label(front - 1)[0] != '_' {
				return false
			}
			sel.port, front = s.label(front - 1)[1:], front-1
		}
	}
	if front > 1 || front == 1 && (s.label(0)[0] == '_' || sel.proto != nil && !s.kubedns) {
		return false
	}
	if front == 1 && !s.isStar(0) {
		some := s.named(s.label(0))
		if own, ok := s.e.hashedIPs(s.label(0)); ok && s.kubedns {
			some = own
		} else if sel.own && sel.proto != nil {
			return false
		}
		some.proto, some.port = sel.proto, sel.port
		sel = some
	}
	sel.portless = s.kubedns && sel.proto == nil
	s.sel = sel
	if sel.own {
		return sel.proto == nil || s.e.own.has(&sel)
	}
	w := s.endpoints(&sel)
	return w.next()
}

// addressesTo adds the addresses of what is selected.
func (s *share) addressesTo(c *catch) {
	add := func(ip netip.Addr) {
		if familyOf(ip) == c.qtype {
			c.ips[ip] = struct{}{}
		}
	}
	if s.sel.own {
		for ip := range s.e.clusterIPs() {
			if s.sel.picksOwn(ip) {
				add(ip)
			}
		}
		return
	}
	for w := s.endpoints(&s.sel); w.next() && !c.full(); {
		add(w.ep.Addr)
	}
}
