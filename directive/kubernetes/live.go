package kubernetes

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/zones"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// This file and the live*.go files serve the zones to the directive transfer. The index
// records changes in an undo. A liveZones collects the changes of gatherTime, makes the
// records that differ, and adds them to the journals of its zones, which are the differences
// that IXFR sends. Without transfer there is none of this.

// gatherTime is how long changes are collected for one version of the zones. Servers are
// notified within 50 ms of a change.
const gatherTime = 20 * time.Millisecond

// A liveZones keeps the zones of a Handler for transfers. A reload keeps it if neither the
// index nor the records have changed.
type liveZones struct {
	index     *index.Index
	zones     []*liveZone
	followers zone.Followers
	serials   *zone.Serials
	now       func() time.Time
	task      *follow.Task

	// Guarded by the lock of the index.
	begun   bool // the zones have a version
	served  bool // the zones of the plan that answers
	pending *index.Undo
}

// A liveZone is a zone with a history.
type liveZone struct {
	*liveZones
	records generator // guarded by the lock of the index
	serial  atomic.Uint32
	current atomic.Pointer[liveVersion] // nil until the index is ready
	apex    map[string]struct{}         // the records that depend on no single Service; guarded by the lock of the index
	memory  *memory.Claim               // of the journal
}

// planTransfers finds the zones that the directive transfer of the block sends to other servers.
func (h *Handler) planTransfers(b *config.Block) {
	h.memory = b.Memory
	for _, t := range config.Find[zone.Transferrer](b) {
		for _, z := range h.zones {
			if t.Transfers(z.name) {
				h.transferred = append(h.transferred, z)
			}
		}
	}
}

// startLiveZones keeps the zones that transfer sends to other servers.
func (h *Handler) startLiveZones(s *config.Start) error {
	if len(h.transferred) == 0 {
		return nil
	}

	type key struct {
		index   *index.Index
		records string
	}

	var names []wire.Name
	for _, z := range h.transferred {
		names = append(names, z.name)
	}

	numbers := zones.Serials(s)
	records := fmt.Sprint(h.zoneNames(), names, h.primary, h.ttl, h.podMode, h.zonal, h.kubeDNS, h.verifyPTR,
		h.local, h.server, h.options.multicluster)
	l, err := config.Keep(s, key{h.index, records},
		func() (*liveZones, error) { return newLiveZones(h, time.Now, numbers), nil })
	if err != nil {
		return err
	}

	h.live = l
	for _, z := range h.transferred {
		if z.live == nil { // l is kept: else its task reads the field already
			z.live = l.zone(z.name)
		}
	}
	return nil
}

func newLiveZones(h *Handler, now func() time.Time, numbers *zone.Serials) *liveZones {
	l := &liveZones{index: h.index, serials: numbers, now: now}
	for _, z := range h.transferred {
		at := &liveZone{liveZones: l, records: newGenerator(h, z), memory: h.memory.Claim(memory.Zones)}
		at.serial.Store(numbers.First(z.name, now()))
		z.live = at
		l.zones = append(l.zones, at)
	}
	woken := follow.NewSignal()
	l.index.Lock()
	l.pending = l.index.AddUndo(woken)
	l.newVersions()
	l.index.Unlock()
	l.task = follow.Go(func(ctx context.Context) { l.run(ctx, woken) })
	return l
}

// serve is called when the plan answers. The zones of the plan before may have changed since these
// exist, so they get the next serial numbers.
func (l *liveZones) serve() {
	if l == nil {
		return
	}
	l.index.Lock()
	var changed []*liveZone
	if !l.served {
		l.served = true
		for _, z := range l.zones {
			z.serial.Store(l.serials.First(z.records.zone.name, l.now()))
			if z.current.Load() != nil {
				z.show(&liveVersion{zone: z})
				changed = append(changed, z)
			}
		}
	}
	l.index.Unlock()
	l.notify(changed)
}

// Yield implements config.Yielder.
func (*liveZones) Yield() {}

// Resume implements config.Yielder. The other process may have had versions with records that this process does
// not know yet. The next version is greater than these.
func (l *liveZones) Resume() {
	l.index.Lock()
	var changed []*liveZone
	for _, z := range l.zones {
		if !l.served {
			break
		}
		serial := l.serials.Remaining(z.records.zone.name, l.now())
		if before := z.current.Load(); before != nil {
			z.follow(before, serial, nil, nil)
			changed = append(changed, z)
		} else {
			z.serial.Store(serial) // that of SOA records is answered before there is a version
		}
	}
	l.index.Unlock()
	l.notify(changed)
}

// Stop implements config.Stopper.
func (l *liveZones) Stop() {
	l.task.Stop()
	l.index.Lock()
	defer l.index.Unlock()
	l.index.RemoveUndo(l.pending)
	for _, z := range l.zones {
		z.memory.Release()
	}
}

// run makes versions until ctx ends.
func (l *liveZones) run(ctx context.Context, woken follow.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		}
		if !l.gather(ctx) {
			return
		}
		l.index.Lock()
		changed := l.newVersions()
		l.index.Unlock()
		l.notify(changed)
	}
}

// gather waits for further changes before the next versions are made. It returns false if ctx has ended.
func (l *liveZones) gather(ctx context.Context) bool {
	return clock.Sleep(ctx, gatherTime) && clock.Sleep(ctx, l.serials.Delay(l.now()))
}

// notify reports changed zones to the directive transfer.
func (l *liveZones) notify(changed []*liveZone) {
	for _, z := range changed {
		l.followers.Changed(z.records.zone.name)
	}
}

// newVersions makes new versions of the zones that have changed, and returns these. The caller
// holds the lock of the index.
func (l *liveZones) newVersions() (changed []*liveZone) {
	if !l.begun && !l.index.Ready() {
		l.pending.Reset()
		return nil
	}
	if l.begun && l.pending.Empty() {
		return nil
	}
	for _, z := range l.zones {
		var d differences
		apex := z.records.apexRecords()
		d.addSets(z.apex, apex)
		z.apex = apex
		if l.begun {
			z.records.addDifferences(&d, l.pending)
		}
		if z.commit(&d) {
			changed = append(changed, z)
		}
	}
	l.begun = true
	l.pending.Reset()
	return changed
}

// zone returns the zone with a name, or nil.
func (l *liveZones) zone(origin wire.Name) *liveZone {
	if l != nil {
		for _, z := range l.zones {
			if z.records.zone.name == origin {
				return z
			}
		}
	}
	return nil
}

// Version implements [zone.Transferable].
func (h *Handler) Version(origin wire.Name) zone.Version {
	if z := h.live.zone(origin); z != nil {
		if v := z.current.Load(); v != nil {
			return v
		}
	}
	return nil
}

// Follow implements [zone.Transferable].
func (h *Handler) Follow(changed func(origin wire.Name)) (stop func()) {
	if h.live == nil {
		return func() {}
	}
	stop = h.live.followers.Add(changed)
	for _, z := range h.live.zones {
		if z.current.Load() != nil {
			changed(z.records.zone.name)
		}
	}
	return stop
}
