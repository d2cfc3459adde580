package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
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
	w.cause("hand-over, with the death of a process (the old one: %v) after %d messages", x.oldDies, x.passage.after)
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

	process int
	options server.Options
	known   *source // of the old process, whose objects are passed; nil if the new one has others
	cancel  context.CancelFunc
	died    atomic.Bool
	started bool // the new process answers
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
	died := x.died.Load()
	switch {
	case err != nil || died && !x.oldDies:
		x.fail(plan, err)
		return
	case (handedOver == nil) == died:
		w.fail("the old process has handed over with error %v, and one has died: %v", handedOver, died)
	}

	w.ended(x.settings, plan, nil)
	w.mu.Lock()
	w.process, w.options = x.process, x.options
	w.mu.Unlock()
	w.down.Store(false)
	if !died {
		x.leave(old)
	}
}

// leave stops the old process, which answers on the connections that it has for a moment.
func (x *replacement) leave(old *server.Plan) {
	w := x.world
	until := func(end time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.served[len(w.served)-2].end = end
	}
	until(time.Time{})
	w.restarts.Add(1)
	w.within(longestStop, "stop after a hand-over", func() { old.Leave(context.Background()) })
	until(time.Now())
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
	x.process = w.processes
	x.options = w.processOptions(x.process)
	x.options.Memory = w.options.Memory
	if x.settings.source == w.serving.source {
		x.known, x.settings.source = w.serving.source, newSource(w.serving.source.host, w.serving.source.sourceOptions)
		w.addSource(x.process, x.settings.source)
	} else {
		x.settings.source = w.newSource(x.process, x.settings.source.sourceOptions)
	}

	x.settings.source.replacement = x
	x.passage.die, x.passage.written = x.dies, x.passes
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
	if x.oldDies {
		_ = x.passage.ends[0].Close()
		return
	}
	_ = x.passage.ends[1].Close()
	x.cancel()
}

// handOver passes the old process to the new one, and ends it if it dies.
func (x *replacement) handOver(old *server.Plan) error {
	w := x.world
	socket := must(os.Open(os.DevNull)) // stands for that of the directive handover
	defer socket.Close()
	_, err := old.HandOver(handover.NewConn(x.passage.ends[0], 1), socket)
	_ = x.passage.ends[0].Close()
	if x.oldDied() {
		w.down.Store(true)
		w.restarts.Add(1)
		w.within(longestStop, "death of the old process", func() { old.Leave(context.Background()) })
	}
	return err
}

// takeOver makes the new process serve.
func (x *replacement) takeOver(ctx context.Context, plan *server.Plan) error {
	conn := handover.NewConn(x.passage.ends[1], 2)
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
	plan.FinishTakeover()
	return nil
}

// fail is called when the new process has ended: the old one continues to serve. If that has died, too, the
// server starts without what it knew.
func (x *replacement) fail(plan *server.Plan, err error) {
	w := x.world
	w.trace("the hand-over has failed: %v", err)
	if x.started {
		w.restarts.Add(1)
		w.within(longestStop, "death of the new process", func() { plan.Leave(context.Background()) })
		w.secondary.primaryDied()
	}
	w.ended(x.settings, nil, errors.New("the new process has ended"))
	if !x.oldDied() {
		return
	}

	s := *w.serving
	for _, f := range w.files {
		f.repair()
	}
	w.mu.Lock()
	w.plan, w.serving = nil, nil
	w.mu.Unlock()
	w.start(&s)
	w.down.Store(false)
}

// oldDied reports whether the old process has died: then the new one may answer before it is ready.
func (x *replacement) oldDied() bool { return x.oldDies && x.died.Load() }
