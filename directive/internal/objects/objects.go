package objects

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

// Objects has the names of the objects of a cluster. It is the Sink that receives them: each waits for
// the turn of its namespace (turns.go), is read, and takes the names that no older object has. One
// goroutine applies changes to the Table, from which queries read.
type Objects struct {
	settings   Settings
	table      Table
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
	known    map[string]*Object    // by objectKey
	rivals   map[wire.Name][]rival // of names that an older object has
	usage    map[string]usage      // by namespace
	faults   faults
	corefile Table // of the present plan; nil before it is served
	bytes    int64 // about what the content uses
}

// A Table has what queries find by names. Objects changes it from one goroutine.
type Table interface {
	Get(wire.Name) *Entry
	Set(wire.Name, *Entry)
	Delete(wire.Name)
}

// An Entry is what an object says of one name. It is immutable.
type Entry struct {
	From  *Object // nil if the Corefile says it
	Value string
}

// A Content is what has been read of an object.
type Content struct {
	Packed string // by name: see AppendName
	Count  int    // of records, or of what max_records limits
	Used   int    // the same with duplicates and errors

	first string // the first error; "" if there is none
	wrong int    // the number of errors
}

// Fail records an error in a key of an object, or in another part of it, at a line; 0 is no line.
func (c *Content) Fail(part string, line int, err error) {
	c.Used++
	if c.wrong++; c.wrong > 1 {
		return
	}
	c.first = fmt.Sprintf("%s:%d: %v", part, line, err)
	if line == 0 {
		c.first = fmt.Sprintf("%s: %v", part, err)
	}
	c.first = shorten(c.first)
}

// Fault returns what is wrong with the object, or "".
func (c *Content) Fault() string {
	if c.wrong > 1 {
		return fmt.Sprintf("%s, and %d more errors", c.first, c.wrong-1)
	}
	return c.first
}

// SizeUnit is the size up to which a record counts as one.
const SizeUnit = 256

// An Object is one that has been read.
type Object struct {
	key     string // see objectKey
	created int64  // seconds since 1970
	packed  string // Content.Packed
	count   int32  // Content.Count
	valid   bool   // packed is all of a state that was valid
}

// Usage is how much a namespace has.
type usage struct{ objects, count int }

// A rival has what an object says of a name for the time when no older object has it.
type rival struct{ *Entry }

// objectKey returns a key of an object of any kind.
func objectKey(kind cluster.Kind, key cluster.Key) string {
	return string(rune('0'+kind)) + key.Namespace + "/" + key.Name
}

// Kind returns the kind of the object.
func (o *Object) Kind() cluster.Kind { return cluster.Kind(o.key[0] - '0') }

// Key returns the namespace and the name.
func (o *Object) Key() cluster.Key {
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
func (o *Object) String() string { return o.Kind().ObjectKind() + " " + o.Key().String() }

// before reports whether o has a name that both have. The older one has it, and of two that are
// made in one second the first by its namespace, name and kind.
func (o *Object) before(p *Object) bool {
	switch a, b := o.Key(), p.Key(); {
	case o.created != p.created:
		return o.created < p.created
	case a != b:
		return a.Compare(b) < 0
	}
	return o.Kind() < p.Kind()
}

var _ cluster.Comparer = (*Objects)(nil)

// Origins returns the function that SetOrigins has set, nil before.
func (x *Objects) Origins() cluster.ReadOrigin {
	if read := x.origins.Load(); read != nil {
		return *read
	}
	return nil
}

// SetOrigins implements cluster.Traceable.
func (x *Objects) SetOrigins(read cluster.ReadOrigin) { x.origins.Store(&read) }

// add has a change wait for its turn.
func (x *Objects) add(key, namespace string, o cluster.Object) {
	if !x.turns.add(key, namespace, o, !x.isListed(), max(waitingLimit, x.settings.Most*SizeUnit)) {
		x.faults.full(namespace, x.settings.Most)
	}
}

// Put implements cluster.Sink.
func (x *Objects) Put(kind cluster.Kind, all ...cluster.Object) {
	x.mu.Lock()
	for _, o := range all {
		x.add(objectKey(kind, o.Key()), o.Key().Namespace, o)
	}
	x.mu.Unlock()
	x.changed.Send()
}

// Delete implements cluster.Sink.
func (x *Objects) Delete(kind cluster.Kind, key cluster.Key) {
	x.mu.Lock()
	x.add(objectKey(kind, key), key.Namespace, nil)
	x.mu.Unlock()
	x.changed.Send()
}

// Listed implements cluster.Sink.
func (x *Objects) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	x.mu.Lock()
	for key, o := range x.known {
		if o.Kind() == kind && !has(o.Key()) {
			x.add(key, o.Key().Namespace, nil)
		}
	}
	x.listed[kind] = true
	x.mu.Unlock()
	x.changed.Send()
}

// Missing implements cluster.Comparer.
func (x *Objects) Missing(kind cluster.Kind, has func(cluster.Key) bool) (missing, all int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.known {
		if o.Kind() == kind {
			if all++; !has(o.Key()) {
				missing++
			}
		}
	}
	return missing, all
}

// applyAll applies changes until ctx ends.
func (x *Objects) applyAll(ctx context.Context) {
	for ctx.Err() == nil {
		wait := x.Step()
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

// Idle is how long applyAll waits if no object waits for its turn.
const Idle = time.Hour

// Step applies the change whose turn it is, and returns zero, or how long to wait for the next.
func (x *Objects) Step() (wait time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	c, wait := x.turns.next(now, !x.IsSynced())
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
		x.faults.full(c.namespace, x.settings.Most)
	default:
		// Clients of the source wait for mu, but not while a large object is read.
		x.mu.Unlock()
		read := x.settings.Read(c.object, x.settings.Most)
		x.mu.Lock()
		x.apply(c, read)
	}
	x.turns.took(c.namespace, now, time.Since(now))
	x.sync()
	return 0
}

// IsSynced reports whether all objects have been read once.
func (x *Objects) IsSynced() bool {
	select {
	case <-x.synced:
		return true
	default:
		return false
	}
}

// isListed reports whether all kinds have been listed.
func (x *Objects) isListed() bool { return len(x.listed) == len(x.kinds) }

// sync closes synced once all objects of the lists have been read. Changes after these may wait: a
// namespace whose objects change all the time delays no start.
func (x *Objects) sync() {
	if x.IsSynced() || !x.isListed() || x.turns.awaited > 0 {
		return
	}
	close(x.synced)
	x.log.Info(x.settings.Directive+": Read the objects", "count", len(x.known), x.settings.Noun, x.total(), "invalid", x.faults.count())
}

// apply applies what has been read of an object. If something is wrong with it and it was valid
// before, its former content stays.
func (x *Objects) apply(c *change, read *Content) {
	o, created := x.known[c.key], createdAt(c.object)
	if o != nil && o.created != created { // another object, which has the age of its own
		x.remove(o)
		o = nil
	}
	if o == nil {
		o = &Object{key: c.key, created: created}
		x.known[c.key] = o
		x.bytes += bytesOf(0)
		x.use(c.namespace, 1, 0)
	}

	exceeded := x.limitOf(o, c.namespace, read)
	if exceeded != "" {
		read.Packed, read.Count = "", 0 // no part of it fits
	}
	fault := cmp.Or(read.Fault(), exceeded)
	if fault == "" || !o.valid {
		x.replace(o, read.Packed, read.Count)
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
func (x *Objects) limitOf(o *Object, namespace string, read *Content) string {
	most, noun := x.settings.Most, x.settings.Noun
	if read.Used > most {
		return fmt.Sprintf("it has more than %d %s, which a namespace may have (max_%s)", most, noun, noun)
	}
	if n := x.usage[namespace].count - int(o.count) + read.Count; n > most {
		return fmt.Sprintf("with it namespace %s would have %d %s, and may have %d (max_%s)", namespace, n, noun, most, noun)
	}
	if err := x.claim.Grow(x.bytes + int64(len(read.Packed))*2 + bytesOf(read.Count)); err != nil {
		return err.Error()
	}
	return ""
}

// bytesOf returns about the memory of an object beyond the bytes of its content.
func bytesOf(count int) int64 { return int64(200 * (1 + count)) }

// replace replaces the content of an object.
func (x *Objects) replace(o *Object, packed string, count int) {
	before := *o
	o.packed, o.count = packed, int32(count)
	x.use(o.Key().Namespace, 0, count-int(before.count))
	x.bytes += int64(len(packed)-len(before.packed))*2 + bytesOf(count) - bytesOf(int(before.count))

	affected := map[*Object]bool{}
	now := map[wire.Name]bool{}
	for owner, value := range Owners(packed) {
		now[owner] = true
		x.take(owner, &Entry{o, value}, affected)
	}
	for owner := range Owners(before.packed) {
		if !now[owner] {
			x.leave(owner, o, affected)
		}
	}
	delete(affected, o) // the caller reports it
	for _, other := range slices.SortedFunc(maps.Keys(affected), func(a, b *Object) int { return cmp.Compare(a.key, b.key) }) {
		x.report(other, x.faults.contentOf(other))
	}
}

// take gives a name to the object of e, unless an older one has it.
func (x *Objects) take(owner wire.Name, e *Entry, affected map[*Object]bool) {
	own := x.table.Get(owner)
	switch {
	case own == nil || own.From == e.From:
		x.table.Set(owner, e)
	case e.From.before(own.From):
		x.table.Set(owner, e)
		x.dropRival(owner, e.From)
		x.addRival(owner, own)
		affected[own.From] = true
		x.affect(owner, affected)
	default:
		x.addRival(owner, e)
	}
}

// leave takes a name from an object, and gives it to the oldest of the others that have it.
func (x *Objects) leave(owner wire.Name, o *Object, affected map[*Object]bool) {
	if own := x.table.Get(owner); own == nil || own.From != o {
		x.dropRival(owner, o)
		return
	}
	oldest := -1
	for i, r := range x.rivals[owner] {
		if oldest < 0 || r.From.before(x.rivals[owner][oldest].From) {
			oldest = i
		}
	}
	if oldest < 0 {
		x.table.Delete(owner)
		return
	}
	heir := x.rivals[owner][oldest].Entry
	x.table.Set(owner, heir)
	x.dropRival(owner, heir.From)
	affected[heir.From] = true
	x.affect(owner, affected)
}

// rivalsTold is how many rivals are told that another object than before has their name. The others
// know already that they do not have it, and a namespace may have thousands, and change the first often.
const rivalsTold = 20

// affect adds the objects that have a name which another one has got.
func (x *Objects) affect(owner wire.Name, affected map[*Object]bool) {
	rivals := x.rivals[owner]
	for _, r := range rivals[:min(rivalsTold, len(rivals))] {
		affected[r.From] = true
	}
}

func (x *Objects) addRival(owner wire.Name, e *Entry) {
	x.dropRival(owner, e.From)
	x.rivals[owner] = append(x.rivals[owner], rival{e})
}

func (x *Objects) dropRival(owner wire.Name, o *Object) {
	left := slices.DeleteFunc(x.rivals[owner], func(r rival) bool { return r.From == o })
	if len(left) == 0 {
		delete(x.rivals, owner)
		return
	}
	x.rivals[owner] = left
}

// remove removes an object that no longer exists.
func (x *Objects) remove(o *Object) {
	x.replace(o, "", 0)
	x.bytes -= bytesOf(0)
	x.claim.Set(x.bytes)
	x.use(o.Key().Namespace, -1, 0)
	delete(x.known, o.key)
	x.faults.clear(o)
}

// use adds to the objects and the count of a namespace.
func (x *Objects) use(namespace string, objects, count int) {
	now := usage{x.usage[namespace].objects + objects, x.usage[namespace].count + count}
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
func (x *Objects) isFull(namespace string) bool {
	now := x.usage[namespace]
	return max(now.objects, now.count) >= x.settings.Most
}

// Counts are sums over all objects.
type Counts struct {
	Objects, Faulty, Rivals, Namespaces, Total int
	Bytes                                      int64
}

// Counts returns the present sums.
func (x *Objects) Counts() Counts {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Counts{len(x.known), x.faults.count(), len(x.rivals), len(x.usage), x.total(), x.bytes}
}

// Total returns the number of records.
func (x *Objects) Total() int { return x.Counts().Total }

// total returns the number of records. The caller holds the lock.
func (x *Objects) total() (count int) {
	for _, now := range x.usage {
		count += now.count
	}
	return count
}
