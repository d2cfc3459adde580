package objects

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// Objects has the names of the objects of a cluster. It is the Sink that receives them: each waits for
// the turn of its namespace (turns.go), is read, and takes the names that no older object has. One
// goroutine applies changes to the Table, from which queries read.
type Objects struct {
	cluster.Traced
	settings   Settings
	table      Table
	kinds      []cluster.Kind
	log        *slog.Logger
	board      *health.Board
	claim      *memory.Claim
	task       *follow.Task
	changed    follow.Signal // something waits for its turn
	reader     atomic.Pointer[cluster.ReadObject]
	reread     follow.Signal // something is wanted
	synced     follow.Event  // closed when all objects have been read once
	unregister []func()

	mu       sync.Mutex
	turns    turns
	listed   map[cluster.Kind]bool
	listedAt time.Time              // when all kinds had been listed
	rivals   map[wire.Name][]*Entry // of names that an older object has
	spaces   map[string]*space      // by namespace; none is empty
	wanted   map[*Object]want       // that have to be read again
	reading  *change                // that Step reads without the lock; nil if none
	faults   faults
	corefile corefiles
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

// EachLine calls read with the words of each line of a ConfigMap's data, without comments. Keys have to be, or to
// end in, kind. It ends once the object has used more than most.
func (c *Content) EachLine(m *cluster.ConfigMap, kind string, most int, read func(key string, number int, words []string)) {
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		if key[strings.LastIndexByte(key, '.')+1:] != kind {
			c.Fail(key, 0, fmt.Errorf("want a key that is or ends in %[1]s, such as %[1]s or shop.%[1]s", kind))
			continue
		}

		number := 0
		for line := range strings.Lines(m.Data[key]) {
			if number++; c.Used > most {
				break
			}
			line, _, _ = strings.Cut(line, "#")
			if words := strings.Fields(line); len(words) > 0 {
				read(key, number, words)
			}
		}
	}
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

// An Object is one of a namespace that may have names. There are many, most of which have one name.
type Object struct {
	text     string // its objectKey, and Content.Packed if the object is admitted
	created  int64  // seconds since 1970
	count    int32  // Content.Count
	keySize  uint16 // the API allows 253 bytes for a name, and 63 for a namespace
	valid    bool   // count is that of a state that was valid
	admitted bool   // the namespace has room for it
}

func newObject(key string, created int64) *Object {
	return &Object{text: key, created: created, keySize: uint16(len(key))}
}

func (o *Object) key() string    { return o.text[:o.keySize] }
func (o *Object) packed() string { return o.text[o.keySize:] }

// objectKey returns a key of an object of any kind.
func objectKey(kind cluster.Kind, key cluster.Key) string {
	return string(rune('0'+kind)) + key.Namespace + "/" + key.Name
}

// Kind returns the kind of the object.
func (o *Object) Kind() cluster.Kind { return cluster.Kind(o.text[0] - '0') }

// Key returns the namespace and the name.
func (o *Object) Key() cluster.Key {
	namespace, name, _ := strings.Cut(o.key()[1:], "/")
	return cluster.Key{Namespace: namespace, Name: name}
}

// String returns the kind and the key, as in "ConfigMap shop/names".
func (o *Object) String() string { return o.Kind().ObjectKind() + " " + o.Key().String() }

// compareAge orders objects that claim the same name. The first one gets it: the oldest, and of several that were
// created in the same second the first by namespace, name and kind.
func (o *Object) compareAge(p *Object) int {
	if o.created != p.created {
		return cmp.Compare(o.created, p.created)
	}
	return cmp.Or(o.Key().Compare(p.Key()), cmp.Compare(o.Kind(), p.Kind()))
}

func (o *Object) compareKey(p *Object) int { return cmp.Compare(o.key(), p.key()) }

var _ cluster.Comparer = (*Objects)(nil)

// add has a change wait for its turn. An object for which there is no memory is read again later.
func (x *Objects) add(key, namespace string, o cluster.Object) {
	known := x.find(key, namespace)
	awaited := !x.isListed() || x.wanted[known].awaited
	if x.turns.add(key, namespace, o, awaited, max(waitingLimit, x.settings.Most*SizeUnit)) {
		delete(x.wanted, known)
		return
	}
	if x.reading != nil && x.reading.key == key {
		x.reading.outdated = true
	}
	if known = x.identify(key, namespace, createdAt(o)); known != nil {
		x.wanted[known] = want{time.Now().Add(rereadWait), awaited}
		x.reread.Send()
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
	for o := range x.known() {
		if o.Kind() == kind && !has(o.Key()) {
			x.add(o.key(), o.Key().Namespace, nil)
		}
	}
	for _, c := range x.unapplied() {
		if c.object != nil && c.kind() == kind && !has(c.object.Key()) {
			x.add(c.key, c.namespace, nil)
		}
	}
	if x.listed[kind] = true; x.isListed() && x.listedAt.IsZero() {
		x.listedAt = time.Now()
	}
	x.mu.Unlock()
	x.changed.Send()
}

// unapplied returns the changes that wait, and the one that is being read.
func (x *Objects) unapplied() []*change {
	all := slices.Collect(x.turns.all())
	if x.reading != nil {
		all = append(all, x.reading)
	}
	return all
}

// Missing implements cluster.Comparer.
func (x *Objects) Missing(kind cluster.Kind, has func(cluster.Key) bool) (missing, all int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for o := range x.known() {
		if o.Kind() == kind {
			if all++; !has(o.Key()) {
				missing++
			}
		}
	}
	return missing, all
}

// ApplyAll applies changes until ctx ends.
func (x *Objects) ApplyAll(ctx context.Context) {
	for ctx.Err() == nil {
		if wait := x.Step(); wait > 0 {
			await(ctx, x.changed, wait)
		}
	}
}

// Idle is how long ApplyAll waits if no object waits for its turn.
const Idle = time.Hour

// Step applies the change whose turn it is, and returns zero, or how long to wait for the next.
func (x *Objects) Step() (wait time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// A namespace pays for the processor time of its turn, and not for waits on a busy machine.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := clock.ThreadTime()
	now, hurry := time.Now(), !x.IsSynced()
	c, wait := x.turns.next(now, hurry)
	if c == nil {
		return min(wait, x.sync())
	}

	o := x.find(c.key, c.namespace)
	switch {
	case c.object == nil && o != nil:
		x.remove(o)
	case c.object == nil:
	case o == nil && x.ignores(c):
		x.faults.full(c.namespace)
	default:
		// Clients of the source wait for mu, but not while a large object is read.
		x.reading = c
		x.mu.Unlock()
		read := x.settings.Read(c.object, x.settings.Most)
		x.mu.Lock()
		x.reading = nil
		if !c.outdated {
			x.apply(c, read)
		}
	}
	if !hurry { // the first list is no one's doing, and the first change after it does not wait for that
		x.turns.took(c.namespace, now, clock.ThreadTime()-began)
	}
	x.sync()
	return 0
}

// IsSynced reports whether all objects have been read once.
func (x *Objects) IsSynced() bool { return x.synced.Happened() }

// isListed reports whether all kinds have been listed.
func (x *Objects) isListed() bool { return len(x.listed) == len(x.kinds) }

// rereadLimit is how long objects that had no room in the turns delay the start: less than a reload or a hand-over
// waits.
const rereadLimit = 3 * time.Second

// sync closes synced once all objects of the lists have been read, or returns when to call it again at the latest.
// Changes after the lists may wait, and what had no room for long: a namespace whose objects change all the time, or
// are many and large, delays no start.
func (x *Objects) sync() (again time.Duration) {
	if x.IsSynced() || !x.isListed() || x.turns.awaited > 0 {
		return Idle
	}
	left := rereadLimit - time.Since(x.listedAt)
	for _, w := range x.wanted {
		if w.awaited && left > 0 {
			return left
		}
	}
	close(x.synced)
	x.log.Info(x.settings.Directive+": Read the objects", "count", x.admitted(), x.settings.Noun, x.total(), "invalid", x.faults.count())
	return Idle
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
	return Counts{x.admitted(), x.faults.count(), len(x.rivals), len(x.spaces), x.total(), x.bytes}
}

// Total returns the number of records.
func (x *Objects) Total() int { return x.Counts().Total }

// admitted returns the number of objects that have room. The caller holds the lock.
func (x *Objects) admitted() (count int) {
	for _, s := range x.spaces {
		count += s.admitted
	}
	return count
}

// total returns the number of records. The caller holds the lock.
func (x *Objects) total() (count int) {
	for _, s := range x.spaces {
		count += s.count
	}
	return count
}
