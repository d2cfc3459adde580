package etcd

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// A Handler answers queries from SkyDNS messages in etcd: the etcd directive. Its reference
// page is docs/reference/directives/etcd.md.
type Handler struct {
	zones    wire.ZoneMap[struct{}]
	ttl      uint32 // of messages without a TTL
	negative uint32 // of negative answers
	leaseMin uint32 // lower bound of TTLs from leases
	leaseMax uint32 // upper bound of TTLs from leases
	priority uint16 // of messages without a priority
	skydns   bool   // behave as SkyDNS where CoreDNS differs

	noApexFallback bool
	hostmaster     wire.Name // "" is hostmaster in each zone
	local          wire.Name // the name whose records local.dns in each zone has; "" is none
	through        config.Fallthrough

	index     *index
	keyReader keyReader
	direct    func() bool // reports whether each query reads etcd; nil if none does
	seed      maphash.Seed
	stateKey  dns.StateKey
}

// A keyReader reads the keys at a path and below it from etcd, for one query, which calls release once
// it does not use them any more.
type keyReader interface {
	read(ctx context.Context, path string) (x *index, release func(), err error)
}

// ServeDNS answers queries for names in the handler's zones.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	apex := h.apex(q)
	switch {
	case apex < 0:
		return dns.Next
	case q.Type.IsTransfer():
		q.Fail(wire.Refused)
		return dns.Done
	case h.readsEtcd():
		return dns.Wait
	}
	l := lookup{Handler: h, q: q, apex: apex, index: h.index}
	return l.conclude(l.answer())
}

// Resolve answers queries that would block a reader for too long: because they need
// many keys, read etcd, or need sub-queries.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	l := lookup{Handler: h, q: q, apex: h.apex(q), index: h.index, ctx: ctx}
	if q.State(h.stateKey) != nil {
		l.prior = cloneResult(q.ResumeSubQuery(ctx))
	}
	if h.readsEtcd() {
		l.index, l.reader = h.index.newQueryIndex(), h.keyReader
		l.index.endList()
		defer l.release()
	}
	if l.conclude(l.answer()) == dns.Next {
		q.Next(ctx)
	}
	return nil
}

// readsEtcd reports whether each query reads etcd, because the index does not
// have the keys.
func (h *Handler) readsEtcd() bool { return h.direct != nil && h.direct() }

// Ready reports whether all keys have been listed once. It stays true while etcd
// is unreachable.
func (h *Handler) Ready() bool { return h.readsEtcd() || h.index.synced() }

// AuthoritativeZones returns the zones of h.
func (h *Handler) AuthoritativeZones() []wire.Name { return h.zones.Zones() }

// apex returns the number of the label at which the longest zone begins that contains the query
// name, or -1.
func (h *Handler) apex(q *dns.Query) int {
	_, at := h.zones.Longest(&q.Request, 0)
	return at
}

// ttlOf returns the TTL of m's records: the TTL of the message or, if less, the
// remaining time of its lease.
func (h *Handler) ttlOf(m *message, now time.Time) uint32 {
	if m.lease == nil {
		if m.ttl == 0 {
			return h.ttl
		}
		return m.ttl
	}
	left := h.leaseMin
	if ends := m.lease.expiry.Load(); ends != 0 {
		seconds := (ends - int64(clock.At(now))) / int64(time.Second)
		left = uint32(min(max(seconds, int64(h.leaseMin)), int64(h.leaseMax)))
	}
	if m.ttl == 0 {
		return left
	}
	return min(m.ttl, left)
}

// A set has the hashes of the records that have been written.
type set struct {
	few  [32]uint64
	n    int
	many map[uint64]struct{}
	last uint64 // the hash that was last passed to add
}

// add adds a record, and reports whether it was absent.
func (s *set) add(seed maphash.Seed, record []byte) (added bool) {
	sum := maphash.Bytes(seed, record)
	s.last = sum
	for _, old := range s.few[:min(s.n, len(s.few))] {
		if old == sum {
			return false
		}
	}
	if s.n++; s.n <= len(s.few) {
		s.few[s.n-1] = sum
		return true
	}
	if s.many == nil {
		s.many = map[uint64]struct{}{}
	}
	before := len(s.many)
	if s.many[sum] = struct{}{}; len(s.many) == before {
		s.n--
		return false
	}
	return true
}

// remove removes sum, which must be the last of the hashes in the set that was added.
func (s *set) remove(sum uint64) {
	if s.n > len(s.few) {
		delete(s.many, sum)
	}
	s.n--
}
