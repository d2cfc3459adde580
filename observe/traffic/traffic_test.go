package traffic

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/wire"
)

func event(rcode string) *Event {
	return &Event{Time: time.Now(), Client: netip.MustParseAddr("10.0.0.1"), RCode: rcode}
}

// add records a query of a name.
func add(r *Recorder, name, rcode string) { r.Record(event(rcode), wireName(name), nil, 0) }

func wireName(text string) []byte {
	n, err := wire.ParseName(text)
	if err != nil {
		panic(err)
	}
	return []byte(n)
}

// send records n queries as a server does, at a rate by the clock of the bubble.
func send(r *Recorder, n, rate int) {
	for i := range n {
		if i%max(1, rate/1000) == 0 {
			time.Sleep(time.Second / time.Duration(min(1000, rate)))
		}
		if r.Selects() {
			add(r, fmt.Sprintf("n%d.example.", i%10), "NOERROR")
		}
	}
}

// Few queries are recorded at any rate, and their weights make up for the others.
func TestSampling(t *testing.T) {
	for _, c := range []struct{ rate, seconds int }{{10, 60}, {900, 20}, {5000, 20}, {100_000, 20}} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRecorder(nil)
				n := c.rate * c.seconds
				send(r, n, c.rate)
				top := r.Top(Names, 100, time.Now())
				total := 0.0
				for _, e := range top.Entries {
					total += e.Count
				}
				if got := total / float64(n); math.Abs(got-1) > 0.05 {
					t.Errorf("%d queries a second: got %.0f queries, %.3f of %d", c.rate, total, got, n)
				}
				if limit := uint64((Budget + 100) * (c.seconds + 10)); r.next > limit {
					t.Errorf("%d queries a second: recorded %d, want at most %d", c.rate, r.next, limit)
				}
				if c.rate < Budget/2 && total != float64(n) {
					t.Errorf("%d queries a second: got %v queries, want each of %d", c.rate, total, n)
				}
			})
		})
	}
}

// When there are few queries again, each is recorded, also if none was recorded since.
func TestSamplingAfterStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		send(r, 1_000_000, 100_000)
		if got := r.Sampled(time.Now()); got > 0.02 {
			t.Fatalf("during the storm: got a share of %v, want at most 0.02", got)
		}
		time.Sleep(10 * time.Second)
		if got := r.Sampled(time.Now()); got != 1 {
			t.Errorf("ten seconds after the storm: got a share of %v, want 1", got)
		}
	})
}

// An estimate is not below the true count, and not above it by more than its excess, which
// is at most the total divided by the number of counters.
func TestTopBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	skewed := rand.NewZipf(random, 1.1, 1, 100_000)
	var s top
	seed := maphash.MakeSeed()
	exact, total := map[string]float64{}, 0.0
	for range 200_000 {
		key, n := fmt.Sprint(skewed.Uint64()), 1+random.Float64()
		s.add(maphash.String(seed, key), []byte(key), nil, nil, n)
		exact[key] += n
		total += n
	}
	for _, c := range s.heap {
		e := entry(Namespaces, c)
		if want := exact[e.Key]; e.Count < want-1e-6 || e.Count-e.Excess > want+1e-6 || e.Excess > total/topSize {
			t.Errorf("%s: got %.1f with an excess of %.1f, want %.1f and an excess of at most %.1f", e.Key, e.Count, e.Excess, want, total/topSize)
		}
	}
	entries, sum := list(Namespaces, &s)
	if math.Abs(sum-total) > 1e-6*total {
		t.Errorf("got a total of %v, want %v", sum, total)
	}
	if entries[0].Key != "0" || entries[1].Key != "1" || len(s.byHash) != topSize {
		t.Errorf("got %s and %s first of %d keys, want 0 and 1 of %d", entries[0].Key, entries[1].Key, len(s.byHash), topSize)
	}
}

// Random names of a storm are no entries with counts that they do not have, but a group of their
// parent; the names that are queried often are entries, with their counts.
func TestStormIsGroup(t *testing.T) {
	for _, c := range []struct {
		name, random, parent string
		clients              int
	}{
		{"one random label", "%06d.shop.svc.cluster.local.", "shop.svc.cluster.local.", 3},
		{"two random labels", "x%[1]d.y%[1]d.example.org.", "example.org.", 1},
		{"an escaped dot", `%06d.a\.b.example.`, `a\.b.example.`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRecorder(nil)
				for i := range 8000 {
					e := event("NXDOMAIN")
					e.Client = netip.AddrFrom4([4]byte{10, 1, 0, byte(i % c.clients)})
					r.Record(e, wireName(fmt.Sprintf(c.random, i)), nil, 0)
					if i%4 == 0 {
						add(r, "www.example.net.", "NXDOMAIN")
					}
					time.Sleep(2 * time.Millisecond)
				}

				top := r.Top(NXDomain, 100, time.Now())
				if len(top.Entries) != 1 || top.Entries[0].Key != "www.example.net." || math.Abs(top.Entries[0].Count-2000) > 50 {
					t.Errorf("got entries %+v, want www.example.net. with 2000", top.Entries)
				}
				if len(top.Groups) != 1 {
					t.Fatalf("got groups %+v, want one", top.Groups)
				}
				g := top.Groups[0]
				// By a hash with a random seed, names are within five standard errors, and two clients may have one place.
				wrong := math.Abs(g.Clients-float64(c.clients)) > float64(min(1, c.clients-1))
				if g.Parent != c.parent || math.Abs(g.Count-8000) > 200 || math.Abs(g.Names-8000) > 2600 || wrong {
					t.Errorf("got %+v, want about 8000 names below %s from %d clients", g, c.parent, c.clients)
				}
				if top.Total != 10_000 || math.Abs(g.Share-0.8) > 0.02 {
					t.Errorf("got a share of %v of %v, want 0.8 of 10000", g.Share, top.Total)
				}
			})
		})
	}
}

// A few names below one parent are entries, and no group.
func TestFewNamesAreNoGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		for i := range 5000 {
			add(r, fmt.Sprintf("n%d.example.", i%50), "NXDOMAIN")
			time.Sleep(2 * time.Millisecond)
		}
		if top := r.Top(NXDomain, 100, time.Now()); len(top.Entries) != 50 || len(top.Groups) != 0 {
			t.Errorf("got %d entries and groups %+v, want 50 and none", len(top.Entries), top.Groups)
		}
	})
}

func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		add(r, "x.example.", "NOERROR")
		add(r, "x.example.", "NXDOMAIN")
		add(r, "f.example.", "SERVFAIL")
		slow := event("NOERROR")
		slow.Duration = 2 * time.Second
		r.Record(slow, wireName("slow.example."), nil, 0)
		r.Record(event("NXDOMAIN"), wireName("a.b.shop.svc.cluster.local."), []byte("shop"), len("\x01a\x01b"))
		for by, want := range map[int]string{
			Names: "x.example. 2", Clients: "10.0.0.1 5", Namespaces: "shop 1", NXDomain: "a.b.shop.svc.cluster.local. 1", ServFail: "f.example. 1",
			Slow: "slow.example. 2", Waste: "10.0.0.1 1",
		} {
			e := r.Top(by, 1, time.Now()).Entries
			if len(e) != 1 || fmt.Sprint(e[0].Key, " ", e[0].Count) != want {
				t.Errorf("%s: got %+v, want %s", ListNames[by], e, want)
			}
		}
	})
}

// Rates are those since the start until a minute has passed.
func TestLastAfterStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		time.Sleep(2 * time.Second)
		for range 10 {
			add(r, "x.example.", "NOERROR")
		}
		if last, covered := r.Last(time.Minute, time.Now()); last.Queries != 10 || covered != 2*time.Second {
			t.Errorf("got %v queries of %v, want 10 of 2s", last.Queries, covered)
		}
	})
}

// Lists cover the last five to ten minutes.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		count := func() int { return len(r.Top(Names, 10, time.Now()).Entries) }
		add(r, "old.example.", "NOERROR")
		time.Sleep(6 * time.Minute)
		add(r, "new.example.", "NOERROR")
		if got, window := count(), r.Top(Names, 1, time.Now()).Window; got != 2 || window != 6*time.Minute {
			t.Errorf("after 6 minutes: got %d names of %v, want 2 of 6m", got, window)
		}
		time.Sleep(5 * time.Minute)
		if got := count(); got != 1 {
			t.Errorf("after 11 minutes: got %d names, want 1", got)
		}
		time.Sleep(time.Hour)
		if got := count(); got != 0 {
			t.Errorf("after more than an hour: got %d names, want none", got)
		}
	})
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		for i := range 3 {
			e := event([]string{"NOERROR", "NXDOMAIN", "NOERROR"}[i])
			e.Duration, e.Source = time.Duration(i+1)*time.Millisecond, []string{"cache", "", "cache"}[i]
			r.Record(e, wireName("x.example."), nil, 0)
			time.Sleep(interval)
		}
		points := r.History(time.Now())
		if len(points) != 3 || points[1].RCodes["NXDOMAIN"] != 1 || points[1].P50 < 2*time.Millisecond || points[1].P50 > 4*time.Millisecond {
			t.Errorf("got %+v, want three points, the second with an NXDOMAIN of 2 ms", points)
		}
		if last, covered := r.Last(time.Minute, time.Now()); last.Queries != 3 || last.RCodes["NOERROR"] != 2 ||
			last.Sources["cache"] != 2 || last.Sources[""] != 1 || covered != 3*interval {
			t.Errorf("last minute: got %+v of %v, want three queries of %v", last, covered, 3*interval)
		}
		time.Sleep(time.Minute - interval/2)
		if last, covered := r.Last(time.Minute, time.Now()); last.Queries != 0 || covered != time.Minute-interval/2 {
			t.Errorf("a minute later: got %+v of %v, want no query of 55s", last, covered)
		}
		time.Sleep(2 * time.Hour)
		if points := r.History(time.Now()); len(points) != 0 {
			t.Errorf("after two hours: got %+v, want none", points)
		}
	})
}

func TestSince(t *testing.T) {
	r := NewRecorder(nil)
	_, next := r.Since(math.MaxUint64, 0)
	for range ringSize + 10 {
		add(r, "x.example.", "NOERROR")
	}
	events, after := r.Since(next, 5)
	if len(events) != 5 || events[0].Sequence != 10 || after != 15 {
		t.Errorf("got %d events, the first %d, next %d: want 5 from 10 on, next 15", len(events), events[0].Sequence, after)
	}
	if events, after = r.Since(ringSize+10, 5); len(events) != 0 || after != ringSize+10 {
		t.Errorf("at the end: got %d events, next %d: want none, next %d", len(events), after, ringSize+10)
	}
}

// A query that is recorded while a request reads is counted, and does not wait.
func TestRecordDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		r.mu.Lock()
		const n = 3 * queueSize
		for range n {
			add(r, "x.example.", "NOERROR")
		}
		r.mu.Unlock()
		add(r, "x.example.", "NOERROR")
		if got := r.Top(Names, 1, time.Now()).Entries[0].Count; got != n+1 {
			t.Errorf("got %v queries, want %d", got, n+1)
		}
		r.mu.Lock()
		add(r, "y.example.", "NOERROR")
		r.mu.Unlock()
		if events, _ := r.Since(0, math.MaxInt); events[len(events)-1].Name != "y.example." {
			t.Errorf("got %+v last, want the event that was recorded while the recorder was locked", events[len(events)-1])
		}
	})
}

// Goroutines that record at once lose no query.
func TestRecordConcurrently(t *testing.T) {
	r := NewRecorder(nil)
	const goroutines, n = 8, 5000
	var all, reading sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range n {
				r.Count(netip.MustParseAddr("10.0.0.1"), []byte("x"))
				add(r, "x.example.", "NOERROR")
			}
		})
	}
	stop := make(chan struct{})
	reading.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.Top(Names, 10, time.Now())
				r.Since(0, 100)
			}
		}
	})
	all.Wait()
	close(stop)
	reading.Wait()
	add(r, "x.example.", "NOERROR")
	if points := r.History(time.Now()); len(points) == 0 {
		t.Fatal("got no history, want some")
	}
	// A query that is recorded after the threshold has changed stands for more than one.
	if got := r.Top(Names, 1, time.Now()).Entries[0].Count; got < goroutines*n+1 {
		t.Errorf("got %v queries, want at least %d", got, goroutines*n+1)
	}
}

func TestSelectsAllocatesNothing(t *testing.T) {
	r := NewRecorder(nil)
	r.threshold.Store(1)
	if n := testing.AllocsPerRun(1000, func() { r.Selects() }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

func TestCountAllocatesNothing(t *testing.T) {
	r, client, name := NewRecorder(nil), netip.MustParseAddr("10.0.0.1"), []byte("\x03www\x07example\x00")
	if n := testing.AllocsPerRun(1000, func() { r.Count(client, name) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// Recording allocates nothing for names and clients that were not seen before, once the lists
// are full, in any window.
func TestRecordAllocatesNothing(t *testing.T) {
	r := NewRecorder(nil)
	now, n := time.Now(), 0
	name := []byte("\x06000000\x04shop\x03svc\x07cluster\x05local\x00")
	record := func() {
		n++
		now = now.Add(10 * time.Millisecond)
		for i, k := 6, n; i > 0; i-- {
			name[i], k = '0'+byte(k%10), k/10
		}
		e := Event{Time: now, Client: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), RCode: "NXDOMAIN", Duration: SlowFrom, Source: "forward"}
		r.Record(&e, name, []byte("shop"), 7)
	}
	for range 70_000 { // more than two windows
		record()
	}
	if n := testing.AllocsPerRun(20_000, record); n != 0 { // the average, rounded down
		t.Errorf("got %v allocations, want none", n)
	}
	if e := r.Top(Waste, 1, now).Entries; len(e) != 1 || e[0].Namespace != "shop" {
		t.Errorf("got %+v, want a client of shop", e)
	}
	events, _ := r.Since(uint64(n-1), 1)
	if want := fmt.Sprintf("%06d.", n); len(events) != 1 || events[0].Search != want || events[0].Name != want+"shop.svc.cluster.local." {
		t.Errorf("got %+v last, want a search for %s", events, want)
	}
}

// BenchmarkNotRecorded is what a query costs that is not recorded.
func BenchmarkNotRecorded(b *testing.B) {
	r, client, name := NewRecorder(nil), netip.MustParseAddr("10.0.0.1"), []byte("\x03www\x07example\x00")
	r.threshold.Store(1)
	for b.Loop() {
		r.Count(client, name)
		r.Selects()
	}
}

func BenchmarkRecord(b *testing.B) {
	r, e, name := NewRecorder(nil), event("NOERROR"), wireName("www.example.")
	b.ReportAllocs()
	for b.Loop() {
		r.Record(e, name, nil, 0)
	}
}
