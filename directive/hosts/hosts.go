package hosts

import (
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from lines in the format of /etc/hosts: the hosts directive. Its reference
// page is docs/reference/directives/hosts.md.
type Handler struct {
	zones       wire.ZoneMap[struct{}]
	ttl         uint32
	fallthru    config.Fallthrough
	unsupported bool // queries for unsupported types fall through
	table       *table
	networks    *networks // nil without localise
	inline      []text    // lines of the Corefile, as it is now
}

// ServeDNS answers queries for names and addresses that have a line.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if h.unsupported && !supported(q.Type) && h.fallthru.Through(q.Name()) {
		return dns.Next
	}

	x := h.table.index.Load()
	addr, reverse := reversed(q.Name())
	if reverse {
		if names := x.namesOf(addr); len(names) > 0 {
			h.pointers(q, x, names)
			return h.done(q, present)
		}
	}

	_, apex := h.zones.Longest(&q.Request, 0)
	if apex < 0 {
		return dns.Next
	}
	addrs, found := x.lookup(q, apex)

	switch {
	case found == present:
		h.addresses(q, addrs)
	case reverse || h.fallthru.Through(q.Name()):
		return dns.Next
	}
	return h.done(q, found)
}

// Ready reports whether every ConfigMap has been read once.
func (h *Handler) Ready() bool { return h.table.ready() }

// AuthoritativeZones returns the zones of h.
func (h *Handler) AuthoritativeZones() []wire.Name { return h.zones.Zones() }

// NameExists reports whether q's name or a name below it has a line. A handler that
// answers NXDOMAIN checks it first (RFC 8020).
func (h *Handler) NameExists(q *dns.Query) bool {
	_, apex := h.zones.Longest(&q.Request, 0)
	if apex < 0 {
		return false
	}
	_, found := h.table.index.Load().lookup(q, apex)
	return found != missing
}

// supported reports whether lines can have records of type t.
func supported(t wire.Type) bool {
	return t == wire.TypeA || t == wire.TypeAAAA || t == wire.TypePTR || t == wire.TypeANY
}

// done completes the answer. A negative one is SERVFAIL until every ConfigMap has
// been read.
func (h *Handler) done(q *dns.Query, found found) dns.Verdict {
	q.AA = true
	switch {
	case !q.Answer.Empty():
	case !h.table.ready():
		q.Fail(wire.ServFail)
	case found == missing:
		q.RCode = wire.NXDomain
	}
	return dns.Done
}

// addresses writes the addresses of the query type, as many as the reply can hold.
func (h *Handler) addresses(q *dns.Query, addrs addresses) {
	a := &q.Answer
	if q.Type == wire.TypeA || q.Type == wire.TypeANY {
		v4 := addrs.v4
		network, filter := h.networks.local(q, v4)
		if filter && many(v4) {
			v4, filter = within(v4, network), false
		}
		for ; len(v4) > 0 && len(a.Buf) <= q.SizeLimit(); v4 = v4[4:] {
			if filter && !network.Contains(netip.AddrFrom4([4]byte(v4))) {
				continue
			}
			a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeA, h.ttl, 4), v4[:4]...)
			a.Append(wire.Answers, nil, 1)
		}
	}
	if q.Type == wire.TypeAAAA || q.Type == wire.TypeANY {
		for v6 := addrs.v6; len(v6) > 0 && len(a.Buf) <= q.SizeLimit(); v6 = v6[16:] {
			a.Buf = append(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeAAAA, h.ttl, 16), v6[:16]...)
			a.Append(wire.Answers, nil, 1)
		}
	}
}

// shrink is more than the factor by which compression makes usual PTR records
// smaller.
const shrink = 4

// pointers writes the names of an address as PTR records.
func (h *Handler) pointers(q *dns.Query, x *index, names []uint32) {
	if q.Type != wire.TypePTR && q.Type != wire.TypeANY {
		return
	}
	a := &q.Answer
	for _, at := range names {
		if len(a.Buf) > shrink*q.SizeLimit() {
			q.TC = true // compression might make the other records fit
			return
		}
		size := len(x.key(at)) + 1
		a.Buf = x.appendName(wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypePTR, h.ttl, size), at)
		a.Append(wire.Answers, nil, 1)
	}
}
