package cache

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// A scan of forty thousand names does not evict names that are queried often, and
// the cache holds exactly as many entries as it may.
func TestFrequentNamesSurviveScan(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const limit, hot, scanned = 2000, 400, 8000
	for _, test := range []struct {
		name  string
		churn func(w *harness)
	}{
		{"not asked meanwhile", func(w *harness) {
			for i := range scanned {
				w.ask(newQuery(fmt.Sprintf("once%d.example.org", i), mdns.TypeA))
			}
		}},
		{"asked now and then", func(w *harness) {
			for i := range scanned {
				w.ask(newQuery(fmt.Sprintf("once%d.example.org", i), mdns.TypeA))
				if i%10 == 0 {
					w.ask(newQuery(fmt.Sprintf("hot%d.example.org", i/10%hot), mdns.TypeA))
				}
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newHarness(t, fmt.Sprintf(".:53 {\n cache {\n success %d\n}\n upstream a\n}\n", limit))
			w.upstreams["a"].answer = addressAnswer(3600)
			for range 2 {
				for i := range hot {
					w.ask(newQuery(fmt.Sprintf("hot%d.example.org", i), mdns.TypeA))
				}
			}
			test.churn(w)
			kept := 0
			for i := range hot {
				if _, inline := w.ask(newQuery(fmt.Sprintf("hot%d.example.org", i), mdns.TypeA)); inline {
					kept++
				}
			}
			if kept != hot {
				t.Errorf("got %d of %d frequently queried names in the cache, want all", kept, hot)
			}
			labels := `{server="dns://:53",type="success",zones=".",view=""}`
			if got := w.metric("coredns_cache_entries" + labels); got != fmt.Sprint(limit) {
				t.Errorf("%s entries, want %d", got, limit)
			}
			if got := w.metric("coredns_cache_evictions_total" + labels); got != fmt.Sprint(scanned+hot-limit) {
				t.Errorf("%s evictions, want %d", got, scanned+hot-limit)
			}
		})
	}
}

// An entry that returns soon after it was evicted is kept longer.
func TestEvictedNameReturnsToMainQueue(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache {\n success 100\n}\n upstream a\n}\n")
	ask := func(name string, i int) bool {
		_, inline := w.ask(newQuery(fmt.Sprintf("%s%d.example.org", name, i), mdns.TypeA))
		return inline
	}
	for i := range 120 {
		ask("x", i)
	}
	for i := range 10 {
		ask("x", i) // the evicted ones
	}
	for i := range 1000 {
		ask("once", i)
	}
	kept := 0
	for i := range 10 {
		if ask("x", i) {
			kept++
		}
	}
	if kept < 4 { // Two names may have the same hash in the list of ghosts.
		t.Errorf("got %d of 10 repeated names in the cache, want at least 4", kept)
	}
}

// Positive and negative answers have separate capacities.
func TestCapacityByKind(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache {\n success 20\n denial 10\n}\n upstream a\n}\n")
	for i := range 100 {
		u := w.upstreams["a"]
		u.answer = [...]func(*dns.Query, int) error{addressAnswer(300), answerWith(wire.NXDomain, ";\n"+soa), answerWith(wire.ServFail, "")}[i%3]
		w.ask(newQuery(fmt.Sprintf("x%d.example.org", i), mdns.TypeA))
	}
	for kind, want := range map[string]string{"success": "20", "denial": "10"} {
		if got := w.metric(`coredns_cache_entries{server="dns://:53",type="` + kind + `",zones=".",view=""}`); got != want {
			t.Errorf("%s entries of type %s, want %s", got, kind, want)
		}
	}
	// A smaller capacity applies at once.
	w.load(".:53 {\n cache {\n success 5\n denial 0\n}\n upstream a\n}\n")
	w.ask(newQuery("x0.example.org", mdns.TypeAXFR))
	for kind, want := range map[string]string{"success": "5", "denial": "0"} {
		if got := w.metric(`coredns_cache_entries{server="dns://:53",type="` + kind + `",zones=".",view=""}`); got != want {
			t.Errorf("after the reload %s entries of type %s, want %s", got, kind, want)
		}
	}
}

// The store is limited in bytes, whatever the capacities are: the queue that uses
// most loses entries.
func TestStoreBytesLimit(t *testing.T) {
	st := NewStore(100000, nil)
	big, small := st.scope("big", [2]int{1000, 1000}), st.scope("small", [2]int{1000, 1000})
	put := func(s *scope, i, size int) bool {
		e := newTestEntry(st, s, fmt.Sprintf("x%d", i), 0, make([]byte, size)...)
		e.expires = time.Hour
		_, ok := st.put(e, 0, 0)
		return ok
	}
	for i := range 10 {
		put(small, i, 100)
	}
	for i := range 1000 {
		put(big, i, 1000)
		if st.bytes > st.limit {
			t.Fatalf("%d bytes, want at most %d", st.bytes, st.limit)
		}
	}
	if n := st.entries(small, 0); n != 10 {
		t.Errorf("%d entries of the small scope are left, want 10", n)
	}
	if n := st.entries(big, 0); n < 50 {
		t.Errorf("got %d entries of the big scope, want at least 50", n)
	}
	if put(big, 5000, 20000) {
		t.Error("put of an entry of 20,000 bytes: got true, want false")
	}
	st.check(t)
}

func newTestEntry(st *Store, s *scope, name string, kind answerKind, records ...byte) *entry {
	k := key{name: []byte(name), t: wire.TypeA, step: 1}
	k.setHash(st, s)
	return makeEntry(s, &k, kind, records, nil)
}

// check checks that the table, the queues and the sums agree.
func (st *Store) check(t *testing.T) {
	t.Helper()
	inTable, inQueues, bytes := 0, 0, 0
	for i := range st.table {
		for e := st.table[i].Load(); e != nil; e = e.next.Load() {
			inTable++
			bytes += e.size()
		}
	}
	for _, s := range st.scopes {
		for i := range s.queues {
			q, sum := &s.queues[i], 0
			for _, l := range []*list{&q.small, &q.main} {
				n := 0
				for e := l.newest; e != nil; e = e.older {
					n++
					sum += e.size()
					if q.list(e) != l || e.older == nil && l.oldest != e {
						t.Errorf("entry %q: got list %p and oldest %v, want list %p and oldest %v", e.name(), q.list(e), l.oldest == e, l, e.older == nil)
					}
				}
				if n != l.n {
					t.Errorf("list: got n %d, want %d", l.n, n)
				}
				inQueues += n
			}
			if sum != q.bytes || q.small.n+q.main.n > q.limit {
				t.Errorf("queue: got %d bytes and %d entries, want %d bytes and at most %d entries", q.bytes, q.small.n+q.main.n, sum, q.limit)
			}
		}
	}
	if inTable != inQueues || bytes != st.bytes {
		t.Errorf("got %d entries in the table and %d in queues, want as many; got %d bytes in the store, want %d", inTable, inQueues, st.bytes, bytes)
	}
}

// Random operations have the results of a plain map, except that a store may
// evict.
func TestStoreAgainstModel(t *testing.T) {
	type query struct {
		scope int
		name  int
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		st := NewStore(20000+int(seed)*5000, nil)
		scopes := []*scope{st.scope("a", [2]int{20, 10}), st.scope("b", [2]int{5, 40})}
		model := map[query][numKinds]*entry{}
		now := time.Duration(0)
		for range 5000 {
			k := query{random.IntN(2), random.IntN(100)}
			s := scopes[k.scope]
			now += time.Duration(random.IntN(100)) * time.Millisecond
			if random.IntN(2) == 0 {
				e := newTestEntry(st, s, fmt.Sprint(k.name), answerKind(random.IntN(int(numKinds))), make([]byte, random.IntN(500))...)
				e.setTimes(now, time.Duration(random.IntN(20))*time.Second, 0)
				var keep kindSet
				if e.kind() == failure {
					keep = 1<<success | 1<<denial
				}
				have := st.find(s, e.key())
				if _, ok := st.put(e, keep, now); !ok {
					if e.kind() != failure || !have.byKind[success].fresh(now) && !have.byKind[denial].fresh(now) {
						t.Fatalf("put of entry %q, kind %d: got false, want true", e.name(), e.kind())
					}
					continue
				}
				of := model[k]
				if e.kind() != failure {
					of = [numKinds]*entry{}
				}
				of[e.kind()] = e
				model[k] = of
				continue
			}
			e := newTestEntry(st, s, fmt.Sprint(k.name), 0)
			have := st.find(s, e.key())
			for kind, got := range have.byKind {
				if got == nil {
					continue
				}
				if got != model[k][kind] {
					t.Fatalf("seed %d: find(%q): got an older entry, want the newest", seed, e.name())
				}
				got.markUsed()
			}
		}
		st.check(t)
	}
}

// All operations of a store run concurrently.
func TestStoreConcurrentUse(t *testing.T) {
	st := NewStore(200000, nil)
	s := st.scope("a", [2]int{50, 50})
	var all sync.WaitGroup
	for g := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(g, 2))
			for i := range 5000 {
				name := fmt.Sprint(random.IntN(100))
				now := time.Duration(i) * time.Millisecond
				e := newTestEntry(st, s, name, answerKind(random.IntN(int(numKinds))), []byte(name)...)
				switch random.IntN(4) {
				case 0:
					e.expires = now + time.Second
					st.put(e, 0, now)
				case 1:
					if p, leads := st.startPending(s, e.key(), 0); leads {
						st.finishPending(p, nil, false)
					} else {
						ended := make(chan struct{})
						if p.await(func() { close(ended) }) {
							<-ended
						}
					}
				case 2:
					st.commit(&scopePlan{limits: map[*scope][2]int{s: {50 - i%10, 50}}})
				default:
					for _, e := range st.find(s, e.key()).byKind {
						if e == nil {
							continue
						}
						if string(e.records()) != name {
							t.Errorf("entry of %q: got the records of %q, want its own", name, e.records())
						}
						e.markUsed()
					}
				}
			}
		})
	}
	all.Wait()
	st.commit(&scopePlan{limits: map[*scope][2]int{s: {50, 50}}})
	st.check(t)
}

// The cache has its part of the server's memory. What the option memory sets is the bound of a
// server block, and of all together if that is more.
func TestStoreMemory(t *testing.T) {
	b := memory.New(40<<20, memory.FromGroup)
	st, p := NewStore(MaxBytes, b), newScopePlan()
	small, large := st.scope("small", [2]int{1e6, 1e6}), st.scope("large", [2]int{1e6, 1e6})
	p.add(small, [2]int{1e6, 1e6}, 1<<20)
	p.add(large, [2]int{1e6, 1e6}, 7<<20)
	st.commit(p)

	for i := range 2000 {
		for _, s := range []*scope{small, large} {
			e := newTestEntry(st, s, fmt.Sprintf("x%d", i), 0, make([]byte, 10_000)...)
			e.expires = time.Hour
			if _, ok := st.put(e, 0, 0); !ok {
				t.Fatalf("entry %d is not stored", i)
			}
			if used := b.Part(memory.Cache).Used; used != int64(st.bytes) || small.bytes() > 1<<20 || large.bytes() > 7<<20 {
				t.Fatalf("%d bytes reserved for %d of the store, %d and %d of the blocks", used, st.bytes, small.bytes(), large.bytes())
			}
		}
	}
	if small.bytes() < 1<<20-20_000 || large.bytes() < 7<<20-20_000 {
		t.Errorf("got %d and %d bytes, want the limits", small.bytes(), large.bytes())
	}

	// Another part of the server takes what all share: the cache keeps what it has, and replaces it.
	for b.Reserve(memory.Zones, 64<<10) == nil {
	}
	most := st.bytes
	for i := range 1000 {
		e := newTestEntry(st, large, fmt.Sprintf("y%d", i), 0, make([]byte, 10_000)...)
		e.expires = time.Hour
		if _, ok := st.put(e, 0, 0); !ok || st.bytes > most {
			t.Fatalf("entry %d: stored %v, %d bytes, want at most %d", i, ok, st.bytes, most)
		}
	}

	st.commit(newScopePlan())
	if used := b.Part(memory.Cache).Used; used != 0 {
		t.Errorf("without server blocks: %d bytes reserved, want 0", used)
	}
}

// An entry has a size of Go's allocator: with one byte more it would take 16 more.
func TestEntrySize(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); strconv.IntSize == 64 && size != 112 {
		t.Errorf("got %d bytes, want 112", size)
	}
}
