package etcd

import (
	"cmp"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/order"
	"github.com/seamark/seamark/zone/ordered"
)

// A keyValue is a key and its value. The index copies the values that it keeps.
type keyValue struct {
	key, value []byte
	lease      *lease // nil if none; keys of the same lease share it
}

// An index holds the messages of the keys under a prefix, sorted by path. It has
// one writer at a time; readers take no lock, and see each key before or after a
// change.
type index struct {
	prefix   string // "/skydns/"
	messages ordered.Index[chunk, *chunk]
	complete atomic.Bool
	keys     atomic.Int64
	changed  atomic.Int64 // time of the last change, in Unix seconds
	listing  bool         // beginList has been called, and endList has not
	faults   *faults

	// Buffers of the writer, which are reused.
	packBuf []byte
	changes []change
	entries []change
}

// newIndex returns an index that is not complete yet.
func newIndex(prefix string, log *slog.Logger) *index {
	return &index{prefix: prefix, faults: &faults{log: log, seed: maphash.MakeSeed()}}
}

// newQueryIndex returns an empty index with the same prefix. It holds the keys that
// are read for one query.
func (x *index) newQueryIndex() *index { return &index{prefix: x.prefix, faults: x.faults} }

// synced reports whether all keys have been listed once. It stays true while etcd
// is unreachable.
func (x *index) synced() bool { return x.complete.Load() }

// count returns the number of keys.
func (x *index) count() int { return int(x.keys.Load()) }

// put adds or replaces keys. A key with an invalid value is logged, and exists
// without records.
func (x *index) put(kvs ...keyValue) {
	changes := x.changes[:0]
	for _, kv := range kvs {
		path, ok := pathOf(x.prefix, kv.key)
		if !ok {
			x.faults.report(kv, errNoName)
			continue
		}
		m, err := parse(kv.value)
		if err != nil {
			x.faults.report(kv, err)
			m = message{} // the key exists and has no records
		} else {
			x.faults.forget(kv.key)
		}
		x.packBuf = m.pack(x.packBuf[:0])
		changes = append(changes, change{
			path: path, packed: string(x.packBuf), lease: kv.lease, grouped: m.group != "",
		})
	}
	x.applyUnsorted(changes)
}

// delete deletes keys.
func (x *index) delete(keys ...[]byte) {
	changes := x.changes[:0]
	for _, key := range keys {
		x.faults.forget(key)
		if path, ok := pathOf(x.prefix, key); ok {
			changes = append(changes, change{path: path, deleted: true})
		}
	}
	x.applyUnsorted(changes)
}

// beginList begins a list: all keys are put again. Readers see the old ones until
// they are replaced, or deleted by endList.
func (x *index) beginList() {
	x.listing = true
	for _, c := range x.messages.Leaves() {
		c.seen = [len(c.seen)]uint64{}
	}
}

// endList deletes the keys that have not been put since beginList.
func (x *index) endList() {
	if x.listing {
		var deletions []change
		for _, c := range x.messages.Leaves() {
			for i := range c.starts {
				if !c.isSeen(i) {
					deletions = append(deletions, change{path: c.path(i), deleted: true})
				}
			}
		}
		x.listing = false
		x.applyUnsorted(deletions)
		if deletions != nil {
			x.faults.retain(x)
		}
	}
	x.complete.Store(true)
}

// clear removes all keys; the index is no longer complete.
func (x *index) clear() {
	x.complete.Store(false)
	x.listing = false
	x.messages.Clear()
	x.keys.Store(0)
}

// applyUnsorted applies changes. Of several changes of one key the last one
// counts.
func (x *index) applyUnsorted(changes []change) {
	order.SliceStable(changes, func(a, b change) int { return cmp.Compare(a.path, b.path) })
	n := 0
	for i := range changes {
		if n > 0 && changes[n-1].path == changes[i].path {
			n--
		}
		changes[n] = changes[i]
		n++
	}
	if x.apply(changes[:n]) {
		x.changed.Store(time.Now().Unix())
	}
	if clear(changes); cap(changes) <= 4*ordered.MaxItems {
		x.changes = changes[:0]
	}
}

// faults are the keys with invalid values. A key is logged once, and again if its
// value changes to another invalid one.
type faults struct {
	log   *slog.Logger
	seed  maphash.Seed
	mu    sync.Mutex
	known map[string]uint64 // hashes of values by key
}

// maxFaults is the largest number of keys in faults. Further ones are not logged.
const maxFaults = 10000

// report logs the key of kv, unless it was logged with this value.
func (f *faults) report(kv keyValue, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := maphash.Bytes(f.seed, kv.value)
	logged, known := f.known[string(kv.key)]
	if known && logged == sum || !known && len(f.known) >= maxFaults {
		return
	}
	if f.known == nil {
		f.known = map[string]uint64{}
	}
	f.known[string(kv.key)] = sum
	f.log.Warn("Invalid value in etcd", "key", abbreviate(string(kv.key)), "error", abbreviate(err.Error()))
}

// abbreviate shortens a text for a log attribute: keys and values may have a
// megabyte.
func abbreviate(text string) string {
	const enough = 300
	if len(text) <= enough {
		return text
	}
	return strings.ToValidUTF8(text[:enough], "") + "..."
}

// forget removes a key, which has become valid or is deleted.
func (f *faults) forget(key []byte) {
	f.mu.Lock()
	delete(f.known, string(key))
	f.mu.Unlock()
}

// retain removes the keys that are not in x.
func (f *faults) retain(x *index) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.known {
		if path, ok := pathOf(x.prefix, []byte(key)); ok && !x.has(path) {
			delete(f.known, key)
		}
	}
}
