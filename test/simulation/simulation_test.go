package simulation

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/seamark/seamark/test/race"
)

var (
	seeds   = flag.Uint64("seeds", race.Fewer(uint64(200)), "number of worlds")
	first   = flag.Uint64("first", 0, "seed of the first world")
	verbose = flag.Bool("events", false, "print the trace of each world")
)

// longestWorld bounds the real time of a world. Only goroutines that wait for a mutex, or
// never wait, need so long: they keep the virtual clock from moving.
const longestWorld = 5 * time.Minute

// maxFailures is the number of failures after which no more worlds are simulated.
const maxFailures = 3

// TestSimulation runs a world for each seed.
func TestSimulation(t *testing.T) {
	worlds := *seeds
	if testing.Short() {
		worlds = min(worlds, 40)
	}

	c := newCertificate(t)
	var failed atomic.Int32
	for seed := *first; seed < *first+worlds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if failed.Load() >= maxFailures {
				t.Skip("enough worlds have failed")
			}
			var current atomic.Pointer[world]
			stuck := time.AfterFunc(longestWorld, func() { panic(current.Load().stuck()) })
			defer stuck.Stop()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(seed, t.TempDir(), c)
				current.Store(w)
				defer w.printPanic()
				w.run()
				if *verbose {
					t.Log(w.report())
				}
				if len(w.failures) > 0 {
					failed.Add(1)
					t.Error(w.report())
				}
			})
		})
	}
}

// TestReplay runs worlds twice. The events that the seed determines are the same.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	c := newCertificate(t)
	for seed := range uint64(5) {
		var causes [2][]string
		for i := range causes {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(seed, t.TempDir(), c)
				w.run()
				causes[i] = w.causes[:len(w.causes)-1] // the end comes when the copies have converged
			})
		}
		for i, first := range causes[0] {
			if i >= len(causes[1]) || causes[1][i] != first {
				t.Fatalf("seed %d, event %d: got %q the first time and %q the second time, want the same", seed, i, first, causes[1][i:min(i+1, len(causes[1]))])
			}
		}
	}
}

const (
	// convergence is how long answers may be outdated after the end of the faults.
	convergence = 5 * time.Second
	// silence is how long a connection may be half-open before the server notices. Until
	// the API server has sent a bookmark the time doubles with each watch that was silent
	// for so long, because its connection was half-open or the API server stalled.
	silence        = 90 * time.Second
	longestSilence = 10 * time.Minute
)

// run simulates the world from its beginning to its end.
func (w *world) run() {
	for _, name := range namespaceNames {
		w.api.cluster.put(namespaces, object{key: key{"", name}})
	}
	for range 25 {
		w.cause("%s", w.api.cluster.change(w.Rand))
	}
	faults := map[fault]int{}
	if w.IntN(4) == 0 {
		f := w.fault()
		w.api.misbehave(f)
		faults[f]++
	}
	w.load(w.random(nil))
	if w.secondary != nil {
		w.secondary.start()
	}
	for range 60 {
		w.sleep()
		w.storage.step()
		w.shortage.step()
		w.handOvers.step()
		faults[w.step()]++
		if w.secondary != nil {
			w.secondary.step()
		}
		if w.pages != nil {
			w.pages.step()
		}
	}
	w.handOvers.wait()
	if w.IntN(5) == 0 {
		w.flood()
	}
	w.api.misbehave(healthy)
	w.runOut(false)
	w.storage.move(false)
	w.shortage.end()
	for _, f := range w.files {
		f.repair()
	}
	healed := time.Now()
	if w.secondary != nil {
		w.secondary.link.misbehave(intact)
		w.reloading <- struct{}{} // a Corefile that is loaded meanwhile would have a part of the file, and its serial number
		w.files[1].change(w.Rand)
		w.files[1].repair()
		<-w.reloading
		w.cause("%s", w.api.cluster.change(w.Rand))
	}
	for _, set := range w.upstreams {
		for _, u := range set {
			u.behave(answers)
		}
	}
	if faults[silent] > 0 {
		limit := min(silence<<(faults[silent]+faults[stalled]-1), longestSilence)
		if w.api.mute {
			limit = longestSilence
		}
		time.Sleep(limit)
	}
	time.Sleep(convergence)
	w.converged()
	if w.secondary != nil {
		w.secondary.converged(healed)
		w.secondary.stop()
	}
	w.reloading <- struct{}{}
	if names := w.unanswered(); len(names) > 0 {
		w.fail("queries without a reply: %s", strings.Join(names, "; "))
	}
	if w.pages != nil {
		w.pages.check()
	}
	if w.streams != nil {
		w.streams.converged()
	}
	last, complete := w.current().source, w.current().source.complete(time.Now())
	w.end()
	w.storage.checkSaved(last, complete)
	w.shortage.check()
	if w.skipped > w.asked/20 {
		w.fail("%d of %d replies were not checked, since too many answers are possible", w.skipped, w.asked)
	}
}

// end stops the clients and the server, and waits until their connections have ended: nothing moves
// the virtual clock after it.
func (w *world) end() {
	if w.pages != nil {
		w.pages.close()
	}
	if w.streams != nil {
		w.streams.close()
	}
	w.within(longestStop, "stop", func() { w.plan.Stop(context.Background()) })

	w.api.misbehave(ended)
	time.Sleep(longestPage) // of pages that nobody reads any more
}

// sleep waits until the next step: usually some milliseconds, sometimes much longer.
func (w *world) sleep() {
	scale := []int{1_000, 50_000, 500_000, 2_000_000, 20_000_000}[min(w.IntN(8), w.IntN(5))]
	w.due = w.due.Add(time.Duration(w.IntN(scale)) * time.Microsecond)
	time.Sleep(time.Until(w.due))
}

func (w *world) fault() fault {
	return []fault{down, unreachable, failing, stalled, truncated, garbage, slow, silent, expired, ended, emptied}[w.IntN(11)]
}

// step does one thing.
func (w *world) step() (f fault) {
	switch n := w.IntN(100); {
	case n < 25:
		w.cause("%s", w.api.cluster.change(w.Rand))
	case n < 30:
		if current, _, _, _ := w.api.state(); current != healthy {
			w.api.misbehave(healthy)
			break
		}
		f = w.fault()
		w.api.misbehave(f)
	case n < 34:
		some := [][]behaviour{{answers}, resolves, misbehaves}[w.IntN(3)]
		w.upstreams[w.IntN(2)][w.IntN(2)].behave(some[w.IntN(len(some))])
	case n < 40:
		w.upstreams[w.IntN(2)][0].zone.change(w.IntN(externalNames), []int{mdns.RcodeSuccess, mdns.RcodeSuccess, mdns.RcodeNameError}[w.IntN(3)])
	case n < 43:
		s := w.random(w.current())
		go w.load(s)
	case n < 46:
		w.files[w.IntN(len(w.files))].change(w.Rand)
	case n < 47:
		if w.IntN(2) == 0 {
			f = down
			w.api.misbehave(f)
		}
		w.restart(w.IntN(2) == 0)
		w.due = w.due.Add(flight) // a stop waits for queries, a random time
	case n < 49:
		now := time.Now()
		short := !w.short(now, now)
		w.cause("short of descriptors: %v", short)
		w.runOut(short)
	default:
		name, qtype := w.randomQuestion()
		same := w.IntN(3) == 0
		for range 1 + w.IntN(4) {
			w.cause("query %s %s", name, mdns.TypeToString[qtype])
			go w.ask(name, qtype)
			if !same {
				name, qtype = w.randomQuestion()
			}
		}
	}
	return f
}

// flood sends more queries for names of upstreams that do not answer than may wait.
func (w *world) flood() {
	w.reloading <- struct{}{} // during a reload two plans have a parking lot each
	defer func() { <-w.reloading }()
	for _, u := range w.upstreams[w.current().upstreams] {
		u.behave(ignores)
	}
	before := w.unreplied() // perhaps of an older plan
	for range 250 {
		w.askOver(nil, externalName(w.IntN(externalNames)), mdns.TypeA)
	}
	if waiting := w.unreplied(); waiting > 8*maxParked*2/3+before {
		w.fail("%d queries wait for the upstreams, want at most two thirds of %d, and %d of an older plan", waiting, 8*maxParked, before)
	}
}

// converged compares every name with the newest state.
func (w *world) converged() {
	now, _ := w.api.cluster.now()
	source := w.current().source
	for r := range resources {
		for _, f := range source.feeds(r) {
			changes := w.api.cluster.changes(r, 0, now, func(o *object) bool { return f.includes(o) && source.selects(o) })
			if len(changes) == 0 || source.isDoubtful(f) {
				continue
			}
			newest := changes[len(changes)-1].version
			if version, _ := source.known(f, time.Now()); version < newest {
				w.fail("%s: the server knows version %d, want %d", r, version, newest)
			}
		}
	}
	for _, namespace := range namespaceNames {
		for i := range 3 {
			w.ask(podName(namespace, i), mdns.TypeA)
		}
		for _, service := range serviceNames {
			own := service + "." + namespace + ".svc." + clusterZone
			w.ask(own, mdns.TypeA)
			w.ask(own, mdns.TypeSRV)
			w.ask("_http._tcp."+own, mdns.TypeSRV)
			w.ask("host-0."+own, mdns.TypeA)
			w.ask("host-2."+own, mdns.TypeSRV)
			w.ask(strings.ReplaceAll(endpointIP(namespace, service, 1), ".", "-")+"."+own, mdns.TypeA)
			for i := range 4 {
				w.ask(reverse(endpointIP(namespace, service, i)), mdns.TypePTR)
			}
			w.ask(reverse(clusterIP(namespace, service, 0)), mdns.TypePTR)
			w.ask(reverse(clusterIP(namespace, service, 1)), mdns.TypePTR)
		}
	}
	for _, f := range w.files {
		for i := range fileNames {
			w.ask(f.name(i), mdns.TypeA)
		}
		w.ask(f.alias(), mdns.TypeA)
	}
	time.Sleep(memory)
	for i := range externalNames {
		w.ask(externalName(i), mdns.TypeA)
	}
	time.Sleep(memory)
}
