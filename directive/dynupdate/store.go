package dynupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/saved"
)

const (
	// updateTimeout bounds how long an update waits for others, and for the lock of the database.
	updateTimeout = 5 * time.Second
	// retryInterval is the time between two attempts to open the database.
	retryInterval = 5 * time.Second
)

// A store has the zone of one database, or one without a database. All plans and server blocks that
// name it share it.
type store struct {
	id      storeID
	options options // of the plan that has made it: for the database
	log     *slog.Logger
	health  *health.Board
	budget  *memory.Budget
	claim   *memory.Claim // of current
	stores  *sync.Map
	drop    func() // ends the gauge

	current   atomic.Pointer[version]
	followers zone.Followers
	turns     *slots.Pool // one update at a time, and clients take turns

	begin sync.Once
	ready chan struct{} // closed when this process may write the database
	task  follow.Task

	mu     sync.Mutex // held during an update
	unlock func()     // of the database; nil without a lock
	closed bool
}

// A storeID identifies a store across reloads: by its database, or else by its zone and zone file.
type storeID struct {
	database, file string
	origin         wire.Name
}

func (o *options) storeID() storeID {
	if o.database != "" {
		return storeID{database: o.database}
	}
	return storeID{file: o.file, origin: o.origin}
}

// storesOf returns the IDs of the server's stores.
func storesOf(b *config.Block) *sync.Map {
	type key struct{}
	return config.Share(b, key{}, func() *sync.Map { return new(sync.Map) })
}

// newStore returns a store that has a version of the zone, and takes over its claim.
func newStore(o *options, v *version, claim *memory.Claim, b *config.Block) *store {
	s := &store{
		id: o.storeID(), options: *o, log: b.Log, health: b.Health(), budget: b.Memory, claim: claim,
		stores: storesOf(b), turns: slots.New(1, 1), ready: make(chan struct{}),
	}
	s.current.Store(v)
	s.drop = b.Metrics.TemporaryGauge("seamark_dynupdate_records", "Number of records in a zone that can be updated.",
		func() float64 { return float64(s.current.Load().records) }, "zone", o.origin.String())
	s.stores.Store(s.id, nil)
	return s
}

// start lets the store write the database. It is called when a plan with the store serves: a plan that
// fails must leave no database behind, and the process that this one replaces has the lock until
// then.
func (s *store) start() {
	s.begin.Do(func() {
		if s.options.database == "" {
			close(s.ready)
			return
		}
		s.task.Go(s.open)
	})
}

// open opens the database, and tries again until ctx ends.
func (s *store) open(ctx context.Context) {
	last := ""
	for {
		err := s.tryOpen(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			s.health.Clear(s, "database")
			close(s.ready)
			return
		}

		if err.Error() != last {
			last = err.Error()
			s.log.Error("dynupdate: Failed to open database",
				"zone", s.options.origin, "file", s.options.database, "error", err)
		}
		s.report(err)
		if !clock.Sleep(ctx, retryInterval) {
			return
		}
	}
}

// tryOpen locks the database and reads it again, since another process may have changed it meanwhile.
// If there is none, it is made from the current version.
func (s *store) tryOpen(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, retryInterval)
	defer cancel()
	unlock, err := watch.Lock(limited, s.options.database)
	if err != nil {
		return err
	}

	claim := s.budget.Claim(memory.Zones)
	v, err := s.options.readDatabase(claim)
	if errors.Is(err, fs.ErrNotExist) {
		v = s.current.Load()
		err = s.write(v)
	}
	if err != nil {
		claim.Release()
		unlock()
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlock = unlock
	claim.Release()
	s.publish(v)
	return nil
}

// write writes a version to the database.
func (s *store) write(v *version) error {
	return watch.Replace(s.options.database, 0o600, func(f *os.File) error {
		return saved.Write(f, []byte(fileHead+s.options.origin), v.zone)
	})
}

// publish serves a version.
func (s *store) publish(v *version) {
	s.claim.Set(v.zone.Memory())
	old := s.current.Swap(v)
	before, _ := old.zone.Serial()
	if after, _ := v.zone.Serial(); after != before {
		s.followers.Changed(s.options.origin)
	}
}

// report adds the condition that updates fail.
func (s *store) report(err error) {
	s.health.Set(s, "database", health.Condition{
		Severity: health.Warning, Object: s.options.database,
		Text: fmt.Sprintf("the zone %s cannot be updated: %v", s.options.origin, err),
		Next: "check the database of dynupdate, its directory and the disk",
	})
}

var (
	errClosed  = errors.New("the server no longer serves the zone")
	errNotOpen = errors.New("the database is not open yet")
)

// update applies the update of a query. It returns an error if the zone has not changed because of
// one, a *codeError unless it is SERVFAIL.
func (s *store) update(ctx context.Context, q *dns.Query, o *options, key wire.Name) (serial uint32, changed bool, err error) {
	client := q.Peer.Addr()
	if err := s.turns.Acquire(ctx, client); err != nil {
		return 0, false, fmt.Errorf("waiting for other updates: %w", err)
	}
	defer s.turns.Release(client)

	select {
	case <-s.ready:
	case <-ctx.Done():
		return 0, false, errNotOpen
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false, errClosed
	}

	// Names that point into the packet are written out, which can take megabytes: only the message that
	// has the turn is read.
	m, err := parseMessage(q.Packet(), o.maxUpdateRecords)
	if err != nil {
		return 0, false, err
	}
	return s.apply(m, o, key)
}

// apply applies a message: the new version is in the database before it is served.
func (s *store) apply(m message, o *options, key wire.Name) (serial uint32, changed bool, err error) {
	old := s.current.Load()
	e := &edit{zone: old.zone, names: map[wire.Name]*editedName{}, room: s.budget.Claim(memory.Transfers), bytes: m.size}
	defer e.room.Release()
	if err := o.apply(e, m, key); err != nil || !e.changed {
		return 0, false, err
	}

	v, err := e.version(old.records)
	if err != nil {
		return 0, false, err
	}
	if err := o.check(v); err != nil {
		return 0, false, reject(wire.Refused, "%v", err)
	}
	if err := s.claim.Grow(v.zone.Memory()); err != nil {
		return 0, false, err
	}

	if o.database != "" {
		if err := s.write(v); err != nil {
			s.claim.Set(old.zone.Memory())
			s.log.Error("dynupdate: Failed to write database", "zone", o.origin, "file", o.database, "error", err)
			s.report(err)
			return 0, false, err
		}
		s.health.Clear(s, "database")
	}
	s.publish(v)
	serial, _ = v.zone.Serial()
	return serial, true, nil
}

// Stop implements config.Stopper.
func (s *store) Stop() {
	s.begin.Do(func() {}) // start has no effect any more
	s.task.Stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.unlock != nil {
		s.unlock()
	}
	s.drop()
	s.health.Forget(s)
	s.stores.Delete(s.id)
	s.claim.Release()
}
