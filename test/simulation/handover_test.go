package simulation

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/server/handover"
)

// handOvers are those of the server to new processes, in some worlds. The old process passes what it knows to
// the new one, both answer for a time, and one of them ends: the old one, or the one that dies meanwhile.
type handOvers struct {
	world *world
	*rand.Rand
	inProgress atomic.Bool
}

// longestHandOver bounds a hand-over: the new process waits for 50 s until it is ready, and the old one for
// the queries that wait.
const longestHandOver = 3 * time.Minute

// newHandOvers returns the hand-overs of a world. Their decisions are their own, as those of disks.
func newHandOvers(w *world) *handOvers {
	h := &handOvers{world: w, Rand: w.rand("hand-over")}
	if runtime.GOOS != "linux" || h.IntN(3) > 0 {
		return nil
	}
	return h
}

// running reports whether two processes may answer.
func (h *handOvers) running() bool { return h != nil && h.inProgress.Load() }

// wait waits for the end of a hand-over.
func (h *handOvers) wait() {
	if h != nil {
		h.world.reloading <- struct{}{}
		<-h.world.reloading
	}
}

// step begins a hand-over, or does nothing. A reload may be due at the same moment: it comes before or after.
func (h *handOvers) step() {
	if h == nil || h.IntN(15) > 0 {
		return
	}
	w := h.world
	x := &replacement{world: w, Rand: rand.New(rand.NewPCG(h.Uint64(), 0)), settings: w.randomFrom(h.Rand, w.current())}
	x.settings.broken = ""
	x.passage = newPassage(x.Rand)
	if h.IntN(2) == 0 {
		x.passage.after, x.oldDies = h.IntN(14), h.IntN(2) == 0
	}
	if h.IntN(2) == 0 {
		x.passage.stop(h.IntN(14), []time.Duration{6 * time.Second, 15 * time.Second, 70 * time.Second}[h.IntN(3)])
	}
	w.cause("hand-over, with the death of a process (the old one: %v) after %d messages, and a stop of %v after %d", x.oldDies,
		x.passage.after, x.passage.stopFor, x.passage.stopAfter)
	if h.IntN(3) == 0 {
		go w.load(w.randomFrom(h.Rand, w.current()))
	}
	go x.run()
}

// A replacement is one hand-over.
type replacement struct {
	world *world
	*rand.Rand
	settings *settings // of the new process
	passage  *passage
	oldDies  bool // at the end of the passage

	number  int
	process *process
	options server.Options
	known   *source // of the old process, whose objects are passed; nil if the new one has others
	cancel  context.CancelFunc
	died    atomic.Bool
	started bool // the new process answers

	oldEnded bool // see endOld; used by handOver, then by run
}

// run hands the server over.
func (x *replacement) run() {
	w := x.world
	w.reloading <- struct{}{}
	defer func() { <-w.reloading }()
	x.begin()
	defer x.end()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x.cancel = cancel

	old, passed := w.plan, make(chan error, 1)
	plan, err := w.planned(x.settings, x.options)
	if err != nil { // the zone file has just become invalid: the process does not start
		w.ended(x.settings, nil, err)
		return
	}
	go func() { passed <- x.handOver(old) }()
	w.within(longestHandOver, "hand-over", func() { err = x.takeOver(ctx, plan) })
	handedOver := <-passed
	if x.oldDied() { // also after it has refused
		x.endOld(old)
	}

	// Exactly one process goes on, or none if one has died and the other had already given way.
	died := x.died.Load()
	goesOn, oldGoesOn := err == nil && !(died && !x.oldDies), handedOver != nil && !x.oldDied()
	if goesOn == oldGoesOn && (goesOn || !died) {
		w.fail("after a hand-over with errors %v of the old process and %v of the new one, and a death: %v: both processes go on, "+
			"or none", handedOver, err, died)
	}
	if !goesOn {
		x.fail(plan, err)
		return
	}

	w.ended(x.settings, plan, nil)
	w.mu.Lock()
	w.process, w.running, w.options = x.number, x.process, x.options
	w.mu.Unlock()
	w.down.Store(false)
	if !x.oldDied() {
		x.leaveOld(old)
	}
}

// leaveOld stops the old process, which answers on the connections that it has for a moment.
func (x *replacement) leaveOld(old *server.Plan) {
	w := x.world
	until := func(end time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.served[len(w.served)-2].end = end
	}
	until(time.Time{})
	w.restarts.Add(1)
	w.within(longestStop, "stop after a hand-over", func() { x.leave(old) })
	until(time.Now())
}

// leave stops a process, which must not write files that the other one writes, unless it has died. Without waiting
// queries no time passes meanwhile, and the other one writes nothing.
func (x *replacement) leave(plan *server.Plan) {
	w := x.world
	before, begin := w.snapshots(), time.Now()
	plan.Leave(context.Background())
	if after := w.snapshots(); !x.died.Load() && time.Now().Equal(begin) && !maps.EqualFunc(before, after, os.SameFile) {
		w.fail("a process has written a snapshot when it left")
	}
}

// snapshots returns the snapshots of all processes.
func (w *world) snapshots() map[string]os.FileInfo {
	files := map[string]os.FileInfo{}
	entries, _ := os.ReadDir(w.disk()) // the disk may be away
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(w.disk(), e.Name())); err == nil && strings.HasPrefix(e.Name(), "k") {
			files[e.Name()] = info
		}
	}
	return files
}

// begin prepares the new process and its death.
func (x *replacement) begin() {
	w := x.world
	w.pages.begin()
	w.handOvers.inProgress.Store(true)
	w.server.pass(true)
	for _, f := range w.files {
		if f.zone == fileZone {
			f.repair() // a process does not start without its zone files
		}
	}

	w.processes++
	x.number, x.process = w.processes, w.server.newProcess()
	x.options = w.processOptions(x.number, x.process)
	x.options.Memory = w.options.Memory
	if x.settings.source == w.serving.source {
		x.known, x.settings.source = w.serving.source, newSource(w.serving.source.host, w.serving.source.sourceOptions)
		w.addSource(x.number, x.settings.source)
	} else {
		x.settings.source = w.newSource(x.number, x.settings.source.sourceOptions)
	}

	x.settings.source.replacement = x
	x.passage.die, x.passage.written = x.dies, x.passes
	x.passage.stopped = [2]func(bool){w.running.stop, x.process.stop}
}

// end is called when one process answers.
func (x *replacement) end() {
	w := x.world
	w.server.pass(false)
	w.pages.begin()
	w.handOvers.inProgress.Store(false)
}

// passes is called before the old process sends a message.
func (x *replacement) passes(m handover.Message) {
	x.world.trace("hand-over: %s %s", m.Kind, m.Name)
	if m.Kind == handover.State && strings.HasPrefix(m.Name, "kubernetes ") && x.known != nil {
		version, _ := x.world.api.cluster.now()
		x.settings.source.inherit(x.known, version)
	}
}

// dies ends one of the processes.
func (x *replacement) dies() {
	x.world.trace("hand-over: a process dies, the old one: %v", x.oldDies)
	x.died.Store(true)
	x.world.restarts.Add(1)
	if x.oldDies {
		x.world.down.Store(true)
		x.world.running.die()
		_ = x.passage.ends[0].Close()
		return
	}
	x.process.die()
	_ = x.passage.ends[1].Close()
	x.cancel()
}

// noProcess is greater than every process ID (PID_MAX_LIMIT is 4 million): the kernel is asked for the end of a process
// that hands over, and waits in real time for one that there is.
const noProcess = 1 << 30

// handOver passes the old process to the new one, and ends it if it dies.
func (x *replacement) handOver(old *server.Plan) error {
	socket := must(os.Open(os.DevNull)) // stands for that of the directive handover
	defer socket.Close()
	c := handover.NewConn(x.passage.ends[0], noProcess+1)
	defer c.Close()
	_, err := old.HandOver(c, socket)
	if err != nil {
		c.Refuse(err)
	}
	if x.oldDied() {
		x.endOld(old)
	}
	return err
}

// endOld ends what a process has left that has died.
func (x *replacement) endOld(old *server.Plan) {
	if !x.oldEnded {
		x.oldEnded = true
		x.world.within(longestStop, "death of the old process", func() { old.Leave(context.Background()) })
	}
}

// takeOver makes the new process serve.
func (x *replacement) takeOver(ctx context.Context, plan *server.Plan) error {
	conn := handover.NewConn(x.passage.ends[1], noProcess+2)
	defer conn.Close()
	if err := plan.TakeOver(conn); err != nil {
		return err
	}
	if x.known != nil {
		x.settings.source.inheritFile(x.known, x.world)
	}
	if err := plan.Start(ctx, nil); err != nil {
		return err
	}
	x.started = true
	_, err := plan.FinishTakeover()
	return err
}

// fail is called when the new process has ended: the old one continues to serve. If that has died, too, the
// server starts without what it knew.
func (x *replacement) fail(plan *server.Plan, err error) {
	w := x.world
	w.trace("the hand-over has failed: %v", err)
	if x.started {
		w.restarts.Add(1)
		w.within(longestStop, "end of the new process", func() { x.leave(plan) })
	}
	w.ended(x.settings, nil, errors.New("the new process has ended"))
	w.mu.Lock()
	w.loaded = time.Now() // the old one may write its snapshot again
	w.mu.Unlock()
	if !x.oldDied() {
		return
	}

	s := *w.serving
	for _, f := range w.files {
		f.repair()
	}
	w.mu.Lock()
	w.plan, w.serving = nil, nil
	w.running = w.server.newProcess()
	w.options.Open, w.options.ListenTCP = w.running.open(w.replied), w.running.listen
	w.mu.Unlock()
	w.start(&s)
	w.down.Store(false)
}

// oldDied reports whether the old process has died: then the new one may answer before it is ready.
func (x *replacement) oldDied() bool { return x.oldDies && x.died.Load() }
