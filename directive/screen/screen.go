// Package screen implements the screen directive, which restricts the queries
// that are forwarded and filters the answers of upstreams. setup.go reads the
// directive, screen.go checks queries, answers.go checks answers, and
// private.go has the private addresses and their reverse names.
//
// Package builtin lists Setup, before the directives that forward queries. The
// package opens no sockets and does not change answers from this server's own
// data.
package screen

import (
	"log/slog"
	"sync/atomic"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Screen restricts forwarded queries and filters the answers of upstreams: the screen
// directive. Its reference page is docs/reference/directives/screen.md.
type Screen struct {
	zones   wire.ZoneMap[bool] // true for local, false for except
	plain   bool
	reverse bool
	least   int // labels

	rebind    bool
	trusted   wire.ZoneMap[struct{}] // zones whose answers may have private addresses
	localhost bool                   // answers may have localhost addresses
	drop      []wire.Type

	neighbours []neighbour
	log        *slog.Logger
	lastLogged atomic.Int64  // Unix time of the last logged answer
	suppressed atomic.Uint64 // refused answers not logged since then

	locals, plains, few, reverses, rebinds, drops *metrics.Counter
}

// A neighbour is a handler above screen that has names of its own. NameExists
// reports whether one of them is q's name or below it.
type neighbour interface{ NameExists(q *dns.Query) bool }

// A reason is the option for which a query is not forwarded.
type reason uint8

const (
	none reason = iota
	privateReverse
	local
	plainName
	fewLabels
)

func (s *Screen) reason(q *dns.Query) reason {
	inLocal, at := s.zones.Longest(&q.Request, 0)
	switch {
	case s.reverse && (inLocal || at < 0) && privateName(q):
		return privateReverse
	case inLocal:
		return local
	case s.plain && q.Labels() == 1 && (q.Type == wire.TypeA || q.Type == wire.TypeAAAA || q.Type == wire.TypeANY):
		return plainName
	case q.Labels() < s.least:
		return fewLabels
	}
	return none
}

// ServeDNS answers queries that must not be forwarded.
func (s *Screen) ServeDNS(q *dns.Query) dns.Verdict {
	switch s.reason(q) {
	case privateReverse:
		s.reverses.AddTo(q.Shard(), 1)
		q.AA = true // RFC 6303: this server is authoritative for the zone
	case local:
		s.locals.AddTo(q.Shard(), 1)
	case plainName:
		s.plains.AddTo(q.Shard(), 1)
	case fewLabels:
		s.few.AddTo(q.Shard(), 1)
		q.Fail(wire.ServFail)
		return dns.Done
	default:
		return dns.Next
	}

	// The client expects the answer of a resolver. Without RA and AA some clients
	// take NOERROR without records for a lame server, and query another one.
	q.RA = true
	q.RCode = wire.NXDomain
	for _, n := range s.neighbours {
		if n.NameExists(q) {
			q.RCode = wire.NoError // RFC 8020
		}
	}
	return dns.Done
}
