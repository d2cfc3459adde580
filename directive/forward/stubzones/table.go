package stubzones

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A zone is one of an object, with its upstreams. It is immutable.
type stubZone struct {
	*objects.Entry
	upstreams *upstreams
	variant   uint64 // another one for other upstreams: see dns.Query.Variant
}

// variantOf returns the variant of a zone with some upstreams. It is the same in another process, to
// which the cache may be handed over.
func variantOf(name wire.Name, value string) uint64 {
	sum := sha256.Sum256([]byte(string(name) + value))
	return binary.BigEndian.Uint64(sum[:]) | 1
}

// Zones has the zones of objects.
type zones struct {
	*objects.Objects
	table table
	ready atomic.Bool // the zones of all objects have been opened once
}

// Ready reports whether the zones of all objects have been opened once.
func (x *zones) Ready() bool {
	if x.ready.Load() {
		return true
	}
	if !x.IsSynced() {
		return false
	}
	select {
	case <-x.table.opened():
		x.ready.Store(true)
		return true
	default:
		return false
	}
}

// Stop ends the watch, and closes all upstreams.
func (x *zones) Stop() {
	x.Objects.Stop()
	x.table.stop()
}

// A table has zones by name. Objects sets what they shall be, and does not wait until their upstreams are
// open: each zone is opened in a goroutine of its own, and then found by queries, which take no lock.
type table struct {
	byName zone.Table[stubZone] // changed with mu held
	pool   *pool

	mu       sync.Mutex
	wanted   map[wire.Name]*objects.Entry
	opening  int           // zones
	idle     chan struct{} // closed while opening is zero
	changed  chan struct{} // closed when the upstreams change
	old      []oldUpstreams
	replaced follow.Signal // old has more
	task     *follow.Task
}

func (t *table) init() {
	t.wanted, t.changed, t.replaced = map[wire.Name]*objects.Entry{}, make(chan struct{}), follow.NewSignal()
	t.idle = make(chan struct{})
	close(t.idle)
	t.task = follow.Go(t.run)
}

// OldUpstreams are those of a zone that has gone or has others, and are closed when queries that were
// sent to them have ended.
type oldUpstreams struct {
	*upstreams
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
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted[name]
}

// Set implements objects.Table. Upstreams that stay the same keep their connections, and cached answers.
// Others replace the former ones once they are open.
func (t *table) Set(name wire.Name, e *objects.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.wanted[name]
	t.wanted[name] = e
	if z := t.byName.Get([]byte(name)); z != nil && z.Value == e.Value {
		t.byName.Set(string(name), &stubZone{e, z.upstreams, z.variant})
		return
	}
	if before != nil && before.Value == e.Value {
		return // they are being opened
	}

	if t.opening == 0 {
		t.idle = make(chan struct{})
	}
	t.opening++
	t.task.Go(func(context.Context) { t.open(name, e.Value) })
}

// open opens the upstreams of a zone, which is found with them from then on, unless it shall have others
// meanwhile.
func (t *table) open(name wire.Name, value string) {
	u := t.pool.acquire(name, value)

	t.mu.Lock()
	e, old := t.wanted[name], t.byName.Get([]byte(name))
	if e != nil && e.Value == value && (old == nil || old.Value != value) {
		t.byName.Set(string(name), &stubZone{e, u, variantOf(name, value)})
		t.replace(old)
		u = nil
	}
	if t.opening--; t.opening == 0 {
		close(t.idle)
	}
	t.mu.Unlock()
	t.pool.release(u)
}

// opened returns a channel that is closed once all zones are open.
func (t *table) opened() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idle
}

// Delete implements objects.Table.
func (t *table) Delete(name wire.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.wanted, name)
	if old := t.byName.Get([]byte(name)); old != nil {
		t.byName.Delete(string(name))
		t.replace(old)
	}
}

// replace closes the upstreams of an old zone, which may be nil, when their queries have ended. The caller
// holds mu.
func (t *table) replace(old *stubZone) {
	close(t.changed)
	t.changed = make(chan struct{})
	if old != nil {
		t.old = append(t.old, oldUpstreams{old.upstreams, time.Now().Add(drainTime)})
		t.replaced.Send()
	}
}

// run closes old upstreams until ctx ends.
func (t *table) run(ctx context.Context) {
	for ctx.Err() == nil {
		due, wait := t.due(time.Now())
		for _, old := range due {
			t.pool.release(old.upstreams)
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

// stop closes all upstreams. Objects sets no others.
func (t *table) stop() {
	t.task.Stop()
	for _, old := range t.old {
		t.pool.release(old.upstreams)
	}
	for _, z := range t.byName.All() {
		t.pool.release(z.upstreams)
	}
}

// all returns the zones, and a channel that is closed when they change.
func (t *table) all() (all map[string]*stubZone, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Collect(t.byName.All()), t.changed
}

// Names is a table without upstreams, for a check.
type names map[wire.Name]*objects.Entry

func (n names) Get(name wire.Name) *objects.Entry    { return n[name] }
func (n names) Set(name wire.Name, e *objects.Entry) { n[name] = e }
func (n names) Delete(name wire.Name)                { delete(n, name) }
