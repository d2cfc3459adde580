package nftset

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/nftables"
)

// A set is a set that lines of the Corefile name. It lives as long as a plan has it.
type set struct {
	name   nftables.Set
	number uint64 // of the sets of the keeper; set by it
	keeper *keeper
	log    *slog.Logger
	board  *health.Board

	added, failed, refused *metrics.Counter

	key     atomic.Uint32 // a nftables.Key; NoKey while the set cannot be written
	problem nftables.Problem
	partial bool          // the problem is one of elements, such as of a set that is full
	last    time.Duration // when the problem was seen last
}

func newSet(name nftables.Set, k *keeper, log *slog.Logger, board *health.Board, m *metrics.Registry) *set {
	counter := func(result string) *metrics.Counter {
		return m.Counter("seamark_nftset_elements_total",
			"Addresses for a set: added, failed since the set cannot have them, or refused since the client has too many.",
			"set", name.String(), "result", result)
	}
	return &set{
		name: name, keeper: k, log: log, board: board,
		added: counter("added"), failed: counter("failed"), refused: counter("refused"),
	}
}

// Stop implements [config.Stopper].
func (s *set) Stop() { s.keeper.remove(s) }

// element returns the element of an address for a client. It reports false if the set is for addresses of
// the other family, or of clients of the other family.
func (s *set) element(client, ip netip.Addr) (element, bool) {
	key := nftables.Key(s.key.Load())
	switch {
	case key == nftables.NoKey: // it counts as one that cannot be written
		return element{set: s, ip: ip}, true
	case !key.Takes(ip), key.ByClient() && !key.Takes(client):
		return element{}, false
	case key.ByClient():
		return element{s, client, ip}, true
	}
	return element{set: s, ip: ip}, true
}

// lacks reports whether an element has to be written. A set that cannot be written lacks nothing.
func (s *set) lacks(e element, need, now time.Duration) bool {
	if nftables.Key(s.key.Load()) == nftables.NoKey {
		s.failed.Add(1)
		return false
	}
	return s.keeper.lacks(e, need, now)
}

// A problem that only some elements have counts as solved once elements have been written for quiet
// without it, or it has not been seen for forgotten.
const (
	quiet     = 10 * time.Second
	forgotten = time.Minute
)

// note notes a problem of the set, or the end of one. key is NoKey if the set cannot be written. It is called
// with noteMu of the keeper.
func (s *set) note(key nftables.Key, p nftables.Problem, now time.Duration) {
	s.key.Store(uint32(key))
	if p == nftables.None && s.partial && now-s.last < quiet {
		return
	}
	if p != nftables.None {
		s.last, s.partial = now, key != nftables.NoKey
	}
	if p == s.problem {
		return
	}

	s.problem = p
	if p == nftables.None {
		s.partial = false
		s.board.Clear(s.keeper, s.name)
		s.log.Info("nftset: Set can be written again", "table", s.name.Family+" "+s.name.Table, "name", s.name.Name)
		return
	}
	s.log.Error("nftset: Addresses are not added to a set",
		"table", s.name.Family+" "+s.name.Table, "name", s.name.Name, "error", p)
	s.board.Set(s.keeper, s.name, health.Condition{
		Severity: health.Warning, Object: s.name.String(),
		Text: "addresses of answers are not added to the set " + s.name.String() + ": " + p.Error(),
		Next: "nft list set " + s.name.String(),
	})
}
