// Package nftset adds the addresses of answers to sets of nftables before the answers are sent: the
// directive nftset.
//
// A Handler looks at each answer on its way up. If all its addresses are known to be in their sets for long
// enough, the answer is sent at once. Otherwise the query waits while the keeper, of which a server has one,
// writes to the sets. Package sys/nftables has the messages to the kernel.
package nftset

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/seamark/seamark/wire"
)

// A Handler is the directive nftset of one server block. Its reference page is
// docs/reference/directives/nftset.md.
type Handler struct {
	uses    []*use
	policy  []grouper
	metrics *metrics.Registry
	late    *metrics.Counter // of the chain passed to BindChain
}

// A use is one line nftset with its options.
type use struct {
	names  []nftables.Set
	sets   []*set // of names, once the plan has started
	zones  wire.ZoneMap[bool]
	groups []string
	except []netip.Prefix
	least  time.Duration // of timeouts
	wait   time.Duration // of a query
}

// A grouper knows to which group a client belongs: the directive policy.
type grouper interface {
	// GroupOf returns the name of the group of a query's client, "" if there is none.
	GroupOf(q *dns.Query) string
	HasGroup(name string) bool
}

const (
	// longest is the longest TTL that counts. That a resolver keeps an answer longer is not usual (RFC 8767 §4).
	longest = 7 * 24 * time.Hour
	// leastRoom and roomPart make timeouts longer than TTLs: an address that many queries have, whose TTL is
	// always the same, is then not written for each of them.
	leastRoom = 5 * time.Second
	roomPart  = 4
)

// timeoutFor returns the timeout of an element that is needed for some time.
func timeoutFor(need time.Duration) time.Duration {
	return min(need+max(need/roomPart, leastRoom), nftables.MaxTimeout)
}

// ServeDNS implements [dns.Handler].
func (h *Handler) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// CompleteDNS implements [dns.Completer]. The query waits if an address has to be written.
func (h *Handler) CompleteDNS(q *dns.Query) dns.Verdict {
	now, verdict := clock.At(q.Now()), dns.Done
	h.visit(q, func(_ *use, e element, need time.Duration) {
		if verdict == dns.Done && e.set.lacks(e, need, now) {
			verdict = dns.Wait
		}
	})
	return verdict
}

// Resolve implements [dns.Resolver]. It returns when the addresses have been written, or cannot be, or
// the time for that is over: the packet filter decides what an address is worth that is not in its set.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	var keeper *keeper
	var all []demand
	var wait time.Duration
	h.visit(q, func(u *use, e element, need time.Duration) {
		all = append(all, demand{e, need})
		keeper, wait = e.set.keeper, max(wait, u.wait)
	})
	if keeper == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if !keeper.write(ctx, q.Peer.Addr(), all) {
		h.late.Add(1)
	}
	return nil
}

// visit calls each with the elements of an answer, and how long each of them has to be in its set. A
// sub-query is a part of the answer to its parent.
func (h *Handler) visit(q *dns.Query, each func(u *use, e element, need time.Duration)) {
	if q.Parent() != nil || q.Answer.Empty() || q.RCode != wire.NoError || q.Explained() {
		return
	}
	for _, u := range h.uses {
		if h.applies(u, q) {
			u.visit(q, each)
		}
	}
}

// applies reports whether a line is for the query's name and client.
func (h *Handler) applies(u *use, q *dns.Query) bool {
	if len(u.zones.All()) > 0 {
		if in, _ := u.zones.LongestOf(q.Name()); !in {
			return false
		}
	}
	return len(u.groups) == 0 || slices.ContainsFunc(h.policy, func(p grouper) bool {
		return slices.Contains(u.groups, p.GroupOf(q))
	})
}

// visit calls each with the elements for the line's sets.
func (u *use) visit(q *dns.Query, each func(u *use, e element, need time.Duration)) {
	buf, client := q.Answer.Buf, q.Peer.Addr().WithZone("")
	q.Answer.Walk(func(section wire.Section, r wire.Record) bool {
		if section != wire.Answers {
			return false
		}
		ip, ok := addressOf(r, buf)
		if !ok || !u.mayAdd(ip) {
			return true
		}

		need := max(min(time.Duration(binary.BigEndian.Uint32(buf[r.Head+4:]))*time.Second, longest), u.least)
		for _, s := range u.sets {
			if e, ok := s.element(client, ip); ok {
				each(u, e, need)
			}
		}
		return true
	})
}

// addressOf returns the address of a record of type A or AAAA.
func addressOf(r wire.Record, buf []byte) (netip.Addr, bool) {
	if r.Type != wire.TypeA && r.Type != wire.TypeAAAA {
		return netip.Addr{}, false
	}
	ip, ok := netip.AddrFromSlice(buf[r.RData:r.Next])
	return ip, ok && ip.Is4() == (r.Type == wire.TypeA)
}

// mayAdd reports whether an address may be in a set. The owner of an allowed name chooses its addresses, so
// those of the machine itself and of its links are left out, and those of the option except.
func (u *use) mayAdd(ip netip.Addr) bool {
	plain := ip.Unmap()
	if !plain.IsGlobalUnicast() {
		return false
	}
	return !slices.ContainsFunc(u.except, func(p netip.Prefix) bool { return p.Contains(plain) })
}

// BindChain returns a copy of h that counts for c.
func (h *Handler) BindChain(c *dns.Chain) any {
	bound := *h
	bound.late = h.metrics.Counter("seamark_nftset_late_replies_total",
		"Replies that were sent before their addresses were in the sets, since the kernel took too long.",
		"server", c.Server, "view", c.View)
	return &bound
}
