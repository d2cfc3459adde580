package records

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// Objects has the records of the ConfigMaps and DNSEndpoints of a cluster. It is the Sink that
// receives them: each waits for the turn of its namespace (turns.go), is read (content.go), and
// takes the names that no older object has. One goroutine applies changes; queries read names.
type objects struct {
	names
	settings   objectSettings
	kinds      []cluster.Kind
	log        *slog.Logger
	board      *health.Board
	claim      *memory.Claim
	origins    atomic.Pointer[cluster.ReadOrigin]
	task       *follow.Task
	changed    follow.Signal // something waits for its turn
	synced     chan struct{} // closed when all objects have been read once
	unregister []func()

	mu       sync.Mutex
	turns    turns
	listed   map[cluster.Kind]bool
	known    map[string]*object    // by objectKey
	rivals   map[wire.Name][]rival // of names that an older object has
	usage    map[string]usage      // by namespace
	faults   faults
	corefile *names // of the present plan; nil before it is served
	bytes    int64  // about what the records use
}

// An object is one that has been read.
type object struct {
	key     string // see objectKey
	created int64  // seconds since 1970
	packed  string // see draft.pack
	records int32
	valid   bool // packed is all of a state that was valid
}

// Usage is how much a namespace has.
type usage struct{ objects, records int }

// A rival has the sets of a name for the time when no older object has it.
type rival struct{ *entry }

// objectKey returns a key of an object of any kind.
func objectKey(kind cluster.Kind, key cluster.Key) string {
	return string(rune('0'+kind)) + key.Namespace + "/" + key.Name
}

func (o *object) kind() cluster.Kind { return cluster.Kind(o.key[0] - '0') }

func (o *object) objectKey() cluster.Key {
	return splitKey(o.key)
}

func splitKey(key string) cluster.Key {
	for i := range key {
		if key[i] == '/' {
			return cluster.Key{Namespace: key[1:i], Name: key[i+1:]}
		}
	}
	return cluster.Key{}
}

// String returns the kind and the key, as in "ConfigMap shop/names".
func (o *object) String() string { return o.kind().ObjectKind() + " " + o.objectKey().String() }

// before reports whether o has a name that both have. The older one has it, and of two that are
// made in one second the first by its namespace, name and kind.
func (o *object) before(p *object) bool {
	switch a, b := o.objectKey(), p.objectKey(); {
	case o.created != p.created:
		return o.created < p.created
	case a != b:
		return a.Compare(b) < 0
	}
	return o.kind() < p.kind()
}

var _ cluster.Comparer = (*objects)(nil)

// SetOrigins implements cluster.Traceable.
func (x *objects) SetOrigins(read cluster.ReadOrigin) { x.origins.Store(&read) }

// add has a change wait for its turn.
func (x *objects) add(key, namespace string, o cluster.Object) {
	if !x.turns.add(key, namespace, o, !x.isListed(), max(waitingLimit, x.settings.most*sizeUnit)) {
		x.faults.full(namespace, x.settings.most)
	}
}

// Put implements cluster.Sink.
func (x *objects) Put(kind cluster.Kind, all ...cluster.Object) {
	x.mu.Lock()
	for _, o := range all {
		x.add(objectKey(kind, o.Key()), o.Key().Namespace, o)
	}
	x.mu.Unlock()
	x.changed.Send()
}

// Delete implements cluster.Sink.
func (x *objects) Delete(kind cluster.Kind, key cluster.Key) {
	x.mu.Lock()
	x.add(objectKey(kind, key), key.Namespace, nil)
	x.mu.Unlock()
	x.changed.Send()
}

// Listed implements cluster.Sink.
func (x *objects) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	x.mu.Lock()
	for key, o := range x.known {
		if o.kind() == kind && !has(o.objectKey()) {
			x.add(key, o.objectKey().Namespace, nil)
		}
	}
	x.listed[kind] = true
	x.mu.Unlock()
	x.changed.Send()
}

// Missing implements cluster.Comparer.
func (x *objects) Missing(kind cluster.Kind, has func(cluster.Key) bool) (missing, all int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.known {
		if o.kind() == kind {
			if all++; !has(o.objectKey()) {
				missing++
			}
		}
	}
	return missing, all
}

// run applies changes until ctx ends.
func (x *objects) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := x.step()
		if wait == 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-x.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// idle is how long run waits if no object waits for its turn.
const idle = time.Hour

// step applies the change whose turn it is, and returns zero, or how long to wait for the next.
func (x *objects) step() (wait time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	c, wait := x.turns.next(now, !x.isSynced())
	if c == nil {
		x.sync()
		return wait
	}

	o := x.known[c.key]
	switch {
	case c.object == nil && o != nil:
		x.remove(o)
	case c.object == nil:
	case o == nil && x.isFull(c.namespace):
		x.faults.full(c.namespace, x.settings.most)
	default:
		// Clients of the source wait for mu, but not while a large object is read.
		x.mu.Unlock()
		read := readObject(c.object, x.settings.rules, x.settings.ttl, x.settings.most)
		packed := read.pack()
		x.mu.Lock()
		x.apply(c, read, packed)
	}
	x.turns.took(c.namespace, now, time.Since(now))
	x.sync()
	return 0
}

func (x *objects) isSynced() bool {
	select {
	case <-x.synced:
		return true
	default:
		return false
	}
}

// isListed reports whether all kinds have been listed.
func (x *objects) isListed() bool { return len(x.listed) == len(x.kinds) }

// sync closes synced once all objects of the lists have been read. Changes after these may wait: a
// namespace whose objects change all the time delays no start.
func (x *objects) sync() {
	if x.isSynced() || !x.isListed() || x.turns.awaited > 0 {
		return
	}
	close(x.synced)
	x.log.Info("records: Read the objects", "count", len(x.known), "records", x.total(), "invalid", x.faults.count())
}

// apply applies what has been read of an object. If something is wrong with it and it was valid
// before, its former records stay.
func (x *objects) apply(c *change, read *content, packed string) {
	o, created := x.known[c.key], createdAt(c.object)
	if o != nil && o.created != created { // another object, which has the age of its own
		x.remove(o)
		o = nil
	}
	if o == nil {
		o = &object{key: c.key, created: created}
		x.known[c.key] = o
		x.bytes += bytesOf(0)
		x.use(c.namespace, 1, 0)
	}

	exceeded := x.limitOf(o, c.namespace, read, packed)
	if exceeded != "" {
		packed, read.records = "", 0 // no part of it fits
	}
	fault := cmp.Or(read.fault(), exceeded)
	if fault == "" || !o.valid {
		x.replace(o, packed, read.records)
		o.valid = fault == ""
	}
	x.report(o, fault)
}

// createdAt returns when an object was created, in seconds since 1970.
func createdAt(o cluster.Object) int64 {
	switch o := o.(type) {
	case *cluster.ConfigMap:
		return o.Created
	case *cluster.DNSEndpoint:
		return o.Created
	}
	return 0
}

// limitOf returns which limit an object that has been read exceeds, or "".
func (x *objects) limitOf(o *object, namespace string, read *content, packed string) string {
	if read.isFull() {
		return fmt.Sprintf("it has more than %d records, which a namespace may have (max_records)", x.settings.most)
	}
	if n := x.usage[namespace].records - int(o.records) + read.records; n > x.settings.most {
		return fmt.Sprintf("with it namespace %s would have %d records, and may have %d (max_records)", namespace, n, x.settings.most)
	}
	if err := x.claim.Grow(x.bytes + int64(len(packed))*2 + bytesOf(read.records)); err != nil {
		return err.Error()
	}
	return ""
}

// bytesOf returns about the memory of an object beyond the bytes of its records.
func bytesOf(records int) int64 { return int64(200 * (1 + records)) }

// replace replaces the records of an object.
func (x *objects) replace(o *object, packed string, records int) {
	before := *o
	o.packed, o.records = packed, int32(records)
	x.use(o.objectKey().Namespace, 0, records-int(before.records))
	x.bytes += int64(len(packed)-len(before.packed))*2 + bytesOf(records) - bytesOf(int(before.records))

	affected := map[*object]bool{}
	now := map[wire.Name]bool{}
	for owner, sets := range ownersOf(packed) {
		now[owner] = true
		x.take(owner, &entry{o, sets}, affected)
	}
	for owner := range ownersOf(before.packed) {
		if !now[owner] {
			x.leave(owner, o, affected)
		}
	}
	delete(affected, o) // the caller reports it
	for _, other := range slices.SortedFunc(maps.Keys(affected), func(a, b *object) int { return cmp.Compare(a.key, b.key) }) {
		x.report(other, x.faults.of(other))
	}
}

// take gives a name to the object of e, unless an older one has it.
func (x *objects) take(owner wire.Name, e *entry, affected map[*object]bool) {
	own := x.names.get(owner)
	switch {
	case own == nil || own.from == e.from:
		x.names.set(owner, e)
	case e.from.before(own.from):
		x.names.set(owner, e)
		x.dropRival(owner, e.from)
		x.addRival(owner, own)
		x.affect(owner, affected)
	default:
		x.addRival(owner, e)
	}
}

// leave takes a name from an object, and gives it to the oldest of the others that have it.
func (x *objects) leave(owner wire.Name, o *object, affected map[*object]bool) {
	if own := x.names.get(owner); own == nil || own.from != o {
		x.dropRival(owner, o)
		return
	}
	oldest := -1
	for i, r := range x.rivals[owner] {
		if oldest < 0 || r.from.before(x.rivals[owner][oldest].from) {
			oldest = i
		}
	}
	if oldest < 0 {
		x.names.delete(owner)
		return
	}
	heir := x.rivals[owner][oldest].entry
	x.names.set(owner, heir)
	x.affect(owner, affected)
	x.dropRival(owner, heir.from)
}

// affect adds the objects that have a name which another one has got.
func (x *objects) affect(owner wire.Name, affected map[*object]bool) {
	for _, r := range x.rivals[owner] {
		affected[r.from] = true
	}
}

func (x *objects) addRival(owner wire.Name, e *entry) {
	x.dropRival(owner, e.from)
	x.rivals[owner] = append(x.rivals[owner], rival{e})
}

func (x *objects) dropRival(owner wire.Name, o *object) {
	left := slices.DeleteFunc(x.rivals[owner], func(r rival) bool { return r.from == o })
	if len(left) == 0 {
		delete(x.rivals, owner)
		return
	}
	x.rivals[owner] = left
}

// remove removes an object that no longer exists.
func (x *objects) remove(o *object) {
	x.replace(o, "", 0)
	x.bytes -= bytesOf(0)
	x.claim.Set(x.bytes)
	x.use(o.objectKey().Namespace, -1, 0)
	delete(x.known, o.key)
	x.faults.clear(o)
}

// use adds to the objects and records of a namespace.
func (x *objects) use(namespace string, objects, records int) {
	now := usage{x.usage[namespace].objects + objects, x.usage[namespace].records + records}
	if now == (usage{}) {
		delete(x.usage, namespace)
	} else {
		x.usage[namespace] = now
	}
	if !x.isFull(namespace) {
		delete(x.faults.crowded, namespace)
	}
}

// isFull reports whether a namespace may have no further object.
func (x *objects) isFull(namespace string) bool {
	now := x.usage[namespace]
	return max(now.objects, now.records) >= x.settings.most
}

// total returns the number of records.
func (x *objects) total() (records int) {
	for _, now := range x.usage {
		records += now.records
	}
	return records
}
