package secondary

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// A server has what the zones of all server blocks share, and their catalogs. Reloads keep it, so that a
// server block finds its members again, whatever else of it has changed.
type server struct {
	checks
	files
	copies
	budget budget // of the members of catalogs
	memory *memory.Budget

	mu       sync.Mutex
	catalogs []*catalogs
	awaiting *config.Start // the plan that awaits its zones, until the time until
	until    time.Time
}

// serverOf returns the server, with the zones of the process that it replaces.
func serverOf(start *config.Start, b *config.Block) *server {
	s, _ := config.Keep(start, nil, func() (*server, error) {
		s := newServer(b.Log, b.Memory)
		if f := start.Data(s.StateName()); f != nil {
			defer f.Close()
			s.copies.receive(f, b.Memory)
		}
		return s, nil
	})
	return s
}

func newServer(log *slog.Logger, b *memory.Budget) *server {
	return &server{
		copies: copies{log: log, all: map[*zoneCopy]struct{}{}, passed: map[passedKey]passedZone{}},
		budget: budget{limit: maxMemberBytes, waiting: map[*share]waiter{}}, memory: b,
	}
}

// claim returns the catalogs for the catalogs of a server block: one of the old plan that has
// one of them and that no other server block of the new plan uses, or a new one.
func (s *server) claim(start *config.Start, origins []wire.Name, b *config.Block) (*catalogs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.catalogs, func(has *catalogs) bool {
		to := has.wanted.Load()
		return has.claimed != start && to != nil &&
			slices.ContainsFunc(origins, func(origin wire.Name) bool { return to.find(origin) != nil })
	})

	var m *catalogs
	if i >= 0 {
		m = s.catalogs[i]
	} else {
		m = &catalogs{log: b.Log, server: s, scope: new(scope), transfers: slots.New(maxTransfers, maxFromPrimary)}
		m.transfers.MaxWaiting = math.MaxInt
		m.health.board = b.Health()
		m.current.Store(&zoneSet{members: map[wire.Name]*member{}})
		s.catalogs = append(s.catalogs, m)
	}
	m.claimed = start
	return config.Keep(start, m, func() (*catalogs, error) { return m, nil })
}

// awaitUntil returns the time until which a plan may await its zones.
func (s *server) awaitUntil(start *config.Start) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaiting != start {
		s.awaiting, s.until = start, time.Now().Add(firstAttempt)
	}
	return s.until
}

// remove forgets a catalogs.
func (s *server) remove(m *catalogs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catalogs = slices.DeleteFunc(s.catalogs, func(has *catalogs) bool { return has == m })
}

// Stop implements config.Stopper.
func (s *server) Stop() { s.copies.drop() }
