package etcd

import (
	"cmp"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A keyValue is one key as etcd has it. The index copies what it keeps.
type keyValue struct {
	key, value []byte
	lease      *lease // nil is none; shared by all keys of that lease
}

// An index has what the keys under a prefix say, sorted by their paths. It has one
// writer at a time; readers never wait, and see each key before or after a change.
type index struct {
	prefix  string // "/skydns/"
	list    atomic.Pointer[chunks]
	whole   atomic.Bool
	keys    atomic.Int64
	changed atomic.Int64 // when something last did, in Unix seconds
	listing bool
	faults  *faults
	scratch
}

// newIndex makes an index that has seen nothing yet.
func newIndex(prefix string, log *slog.Logger) *index {
	return &index{prefix: prefix, faults: &faults{log: log, seed: maphash.MakeSeed()}}
}

// beside makes an empty index for the same keys: what etcd says for one question.
func (x *index) beside() *index { return &index{prefix: x.prefix, faults: x.faults} }

// synced says whether all keys have been listed once. It stays so while etcd is
// away.
func (x *index) synced() bool { return x.whole.Load() }

// count is how many keys there are.
func (x *index) count() int { return int(x.keys.Load()) }

// put adds or replaces keys. A value that is no message is reported, and its key
// is there all the same.
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
			m = message{} // the key is there, and answers nothing
		} else {
			x.faults.forget(kv.key)
		}
		x.room = m.pack(x.room[:0])
		changes = append(changes, change{path: path, packed: string(x.room), lease: kv.lease, grouped: m.group != ""})
	}
	x.settle(changes)
}

// delete takes keys out, if they are there.
func (x *index) delete(keys ...[]byte) {
	changes := x.changes[:0]
	for _, key := range keys {
		x.faults.forget(key)
		if path, ok := pathOf(x.prefix, key); ok {
			changes = append(changes, change{path: path, gone: true})
		}
	}
	x.settle(changes)
}

// begin says that all keys are going to be put again. What is there is served
// meanwhile.
func (x *index) begin() {
	x.listing = true
	x.list.Load().each(func(c *chunk) { c.seen = [len(c.seen)]uint64{} })
}

// end says that all have been put: what has not been is gone.
func (x *index) end() {
	if x.listing {
		var gone []change
		x.list.Load().each(func(c *chunk) {
			for i := range c.at {
				if !c.saw(i) {
					gone = append(gone, change{path: c.path(i), gone: true})
				}
			}
		})
		x.listing = false
		x.settle(gone)
		if gone != nil {
			x.faults.retain(x)
		}
	}
	x.whole.Store(true)
}

// clear takes everything out, and nothing is known any more.
func (x *index) clear() {
	x.whole.Store(false)
	x.listing = false
	x.list.Store(nil)
	x.keys.Store(0)
}

// settle applies changes in the order of their paths; of several to one key the
// last one counts.
func (x *index) settle(changes []change) {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.path, b.path) })
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
	if clear(changes); cap(changes) <= 4*listSize {
		x.changes = changes[:0]
	}
}

// faults are the keys whose values are no messages: each is reported once, and
// again if it gets another such value.
type faults struct {
	log   *slog.Logger
	seed  maphash.Seed
	mu    sync.Mutex
	known map[string]uint64 // the hash of the value
}

// faultsKept is how many keys are remembered. What is wrong with more is not told.
const faultsKept = 10000

func (f *faults) report(kv keyValue, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := maphash.Bytes(f.seed, kv.value)
	before, known := f.known[string(kv.key)]
	if known && before == sum || !known && len(f.known) >= faultsKept {
		return
	}
	if f.known == nil {
		f.known = map[string]uint64{}
	}
	f.known[string(kv.key)] = sum
	f.log.Warn("etcd: a key's value is not used", "key", brief(string(kv.key)), "err", brief(err.Error()))
}

// brief is as much of a text as a line of the log needs: keys, and what is in
// values, may be a megabyte long.
func brief(text string) string {
	const enough = 300
	if len(text) <= enough {
		return text
	}
	return strings.ToValidUTF8(text[:enough], "") + "…"
}

func (f *faults) forget(key []byte) {
	f.mu.Lock()
	delete(f.known, string(key))
	f.mu.Unlock()
}

// retain forgets the keys that x does not have.
func (f *faults) retain(x *index) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.known {
		if path, ok := pathOf(x.prefix, []byte(key)); ok && !x.has(path) {
			delete(f.known, key)
		}
	}
}
