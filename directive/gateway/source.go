package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
)

// A source has the objects of a cluster and what they publish. It is the Sink that receives them. One
// goroutine publishes changes.
type source struct {
	*settings
	cluster.Traced
	table  table
	zones  *liveZones // with the option external; nil without it
	report *objects.Report
	board  *health.Board
	claim  *memory.Claim

	task       *follow.Task
	changed    follow.Signal
	synced     follow.Event // closed when the objects have been read and published once
	unregister []func()

	mu     sync.Mutex
	state  state
	listed map[cluster.Kind]bool
	dirty  bool // state has changed since it was published
	hosts  int
	told   map[objects.ID]string // what is wrong with objects
}

var (
	_ cluster.Comparer  = (*source)(nil)
	_ cluster.Traceable = (*source)(nil)
)

func (s *settings) newSource(b *config.Block) *source {
	x := &source{
		settings: s, report: objects.NewReport("gateway", "hosts", b), board: b.Health(),
		claim: b.Memory.Claim(memory.Files), changed: follow.NewSignal(), synced: follow.NewEvent(),
		state: state{}, listed: map[cluster.Kind]bool{},
	}
	if s.external {
		x.zones = s.newZones(b)
	}
	gauge := func(name, help string, count func() int) {
		x.unregister = append(x.unregister, b.Metrics.SharedGauge("seamark_gateway_"+name, help, metrics.Sum,
			func() float64 { return float64(count()) }))
	}
	gauge("hosts", "Hosts that objects publish.", x.count)
	gauge("objects_faulty", "Objects with an error in a host, or with hosts that older objects have.", x.report.Count)
	return x
}

// start starts the watch. A reload waits for the objects, and fails without them; the first start does not
// wait.
func (x *source) start(start *config.Start, b *config.Block) error {
	x.report.SetRecorder(objects.NewRecorder(start, x.api, b))
	x.run(b)
	return objects.Await(start, x, x.synced, x.use, "objects")
}

func (x *source) run(b *config.Block) {
	x.task = follow.Go(func(ctx context.Context) {
		sources.Run(ctx, x.api, x, b.Log, b.Metrics, x.board, b.Dial)
	})
	x.task.Go(x.publishAll)
}

// Stop ends the watch.
func (x *source) Stop() {
	x.task.Stop()
	x.report.Close()
	x.claim.Release()
	if x.zones != nil {
		for _, z := range x.zones.all {
			z.memory.Release()
		}
	}
	for _, unregister := range x.unregister {
		unregister()
	}
}

// Put implements cluster.Sink.
func (x *source) Put(kind cluster.Kind, all ...cluster.Object) {
	x.change(func() {
		for _, o := range all {
			x.state.put(kind, o)
		}
	})
}

// Delete implements cluster.Sink.
func (x *source) Delete(kind cluster.Kind, key cluster.Key) {
	x.change(func() { delete(x.state[kind], key) })
}

// Listed implements cluster.Sink.
func (x *source) Listed(kind cluster.Kind, has func(cluster.Key) bool) {
	x.change(func() {
		maps.DeleteFunc(x.state[kind], func(key cluster.Key, _ cluster.Object) bool { return !has(key) })
		x.listed[kind] = true
		x.limitWait()
	})
}

// setsWait is how long Routes wait for ListenerSets whose own hosts are not published, after all other objects
// have been read: a Role may not allow the server to read them.
const setsWait = 2 * time.Second

// limitWait starts this time once only such ListenerSets are missing.
func (x *source) limitWait() {
	optional := x.api.Published.Has(cluster.ListenerSets) && !x.names.Has(cluster.ListenerSets)
	if optional && !x.listed[cluster.ListenerSets] && len(x.listed) == len(x.api.Kinds())-1 {
		time.AfterFunc(setsWait, func() {
			x.change(func() { x.listed[cluster.ListenerSets] = true })
		})
	}
}

func (x *source) change(apply func()) {
	x.mu.Lock()
	apply()
	x.dirty = true
	x.mu.Unlock()
	x.changed.Send()
}

// Missing implements cluster.Comparer.
func (x *source) Missing(kind cluster.Kind, has func(cluster.Key) bool) (missing, all int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key := range x.state[kind] {
		if !has(key) {
			missing++
		}
	}
	return missing, len(x.state[kind])
}

// share is how many times as long as it has worked the publisher rests, so that writers of objects that
// change all the time use a tenth of a processor at most. At least it waits for changes that come together.
const (
	share    = 10
	leastGap = 5 * time.Millisecond
)

// publishAll publishes changes until ctx ends.
func (x *source) publishAll(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		if x.publishNow() {
			gap := max(leastGap, share*time.Since(began))
			if x.zones != nil {
				gap = max(gap, x.zones.serials.Delay(x.zones.now()))
			}
			clock.Sleep(ctx, gap)
			continue
		}
		select {
		case <-ctx.Done():
		case <-x.changed:
		}
	}
}

// publishNow publishes the state, and reports whether it has changed since the last time. It waits until
// all kinds have been listed.
func (x *source) publishNow() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.dirty || len(x.listed) < len(x.api.Kinds()) {
		return false
	}
	x.dirty = false
	now := x.publish(x.state, nil)
	x.hosts = len(now.hosts)
	if x.zones != nil {
		x.zones.update(now, x.state)
	} else {
		x.table.update(now, x.ttl)
	}
	x.claim.Set(int64(hostBytes * len(now.hosts)))
	x.report.Set(now.faults)
	x.told = now.faults
	if !x.synced.Happened() {
		close(x.synced)
		x.log.Info("gateway: Read the objects", "count", x.hosts, "invalid", len(now.faults))
	}
	return true
}

// hostBytes is about the memory of a host.
const hostBytes = 400

func (x *source) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.hosts
}

// explain calls f with each object that names a host but does not publish it, and why.
func (x *source) explain(f func(id objects.ID, h host, why string)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.publish(x.state, f)
}

// faults returns what is wrong with each object.
func (x *source) faults() (texts []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, text := range x.told {
		texts = append(texts, id.String()+": "+text)
	}
	slices.Sort(texts)
	return texts
}
