package stubzones

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A zone is one of an object, with its upstreams. It is immutable.
type stubZone struct {
	*objects.Entry
	upstreams *forward.Upstreams
	variant   uint64 // another one for other upstreams: see dns.Query.Variant
}

// Zones has the zones of objects.
type zones struct {
	*objects.Objects
	table table
}

// newZones returns zones without any.
func (s *settings) newZones(b *config.Block, template *forward.Template) *zones {
	x := &zones{table: table{open: template.Open, changed: make(chan struct{}), replaced: follow.NewSignal()}}
	x.table.closer = follow.Go(x.table.run)
	x.Objects = objects.New(s.Settings, &x.table, b)
	return x
}

// Stop ends the watch, and closes all upstreams.
func (x *zones) Stop() {
	x.Objects.Stop()
	x.table.stop()
}

// A table has zones by name. One goroutine at a time changes it; readers of byName take no lock.
type table struct {
	byName zone.Table[stubZone]
	open   func(to []string) *forward.Upstreams

	mu       sync.Mutex
	changed  chan struct{} // closed when the upstreams change
	old      []oldUpstreams
	replaced follow.Signal // old has more
	closer   *follow.Task
}

// OldUpstreams are those of a zone that has gone or has others, and are closed when queries that were
// sent to them have ended.
type oldUpstreams struct {
	*forward.Upstreams
	end time.Time
}

const (
	// drainTime is longer than any query waits for its answer.
	drainTime = 10 * time.Second
	// mostOld is how many old upstreams are kept for their queries.
	mostOld = 100
)

// Get implements objects.Table.
func (t *table) Get(name wire.Name) *objects.Entry {
	if z := t.byName.Get([]byte(name)); z != nil {
		return z.Entry
	}
	return nil
}

// Set implements objects.Table. Upstreams that stay the same keep their connections, and cached answers.
func (t *table) Set(name wire.Name, e *objects.Entry) {
	old := t.byName.Get([]byte(name))
	if old != nil && old.Value == e.Value {
		t.byName.Set(string(name), &stubZone{e, old.upstreams, old.variant})
		return
	}
	t.byName.Set(string(name), &stubZone{e, t.open(strings.Fields(e.Value)), rand.Uint64() | 1})
	t.replace(old)
}

// Delete implements objects.Table.
func (t *table) Delete(name wire.Name) {
	old := t.byName.Get([]byte(name))
	t.byName.Delete(string(name))
	t.replace(old)
}

// replace closes the upstreams of an old zone, which may be nil, when their queries have ended.
func (t *table) replace(old *stubZone) {
	t.mu.Lock()
	close(t.changed)
	t.changed = make(chan struct{})
	if old != nil {
		t.old = append(t.old, oldUpstreams{old.upstreams, time.Now().Add(drainTime)})
	}
	t.mu.Unlock()
	t.replaced.Send()
}

// run closes old upstreams until ctx ends.
func (t *table) run(ctx context.Context) {
	for ctx.Err() == nil {
		due, wait := t.due(time.Now())
		for _, old := range due {
			old.Stop()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.replaced:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due removes and returns the old upstreams that have to be closed, and how long to wait for the next.
func (t *table) due(now time.Time) (due []oldUpstreams, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := max(0, len(t.old)-mostOld)
	for n < len(t.old) && !t.old[n].end.After(now) {
		n++
	}
	due = slices.Clone(t.old[:n])
	t.old = slices.Delete(t.old, 0, n)
	if len(t.old) == 0 {
		return due, time.Hour
	}
	return due, t.old[0].end.Sub(now)
}

// stop closes all upstreams.
func (t *table) stop() {
	t.closer.Stop()
	for _, old := range t.old {
		old.Stop()
	}
	for _, z := range t.byName.All() {
		z.upstreams.Stop()
	}
}

// all returns the zones, and a channel that is closed when they change.
func (t *table) all() (all map[string]*stubZone, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = map[string]*stubZone{}
	for name, z := range t.byName.All() {
		all[name] = z
	}
	return all, t.changed
}

// Names is a table without upstreams, for a check.
type names map[wire.Name]*objects.Entry

func (n names) Get(name wire.Name) *objects.Entry    { return n[name] }
func (n names) Set(name wire.Name, e *objects.Entry) { n[name] = e }
func (n names) Delete(name wire.Name)                { delete(n, name) }
