package nftset

import (
	"errors"
	"slices"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/nftables"
)

// check looks at the sets again that could not be written, and at all of them after transactions of other
// processes. Now and then it forgets elements that have ended.
func (k *keeper) check() {
	k.mu.Lock()
	all := slices.Clone(k.sets)
	changed := false
	if w := k.writer.Load(); w != nil {
		changes := (*w).Changes()
		changed, k.checked = changes != k.checked, changes
	}
	if now := clock.Now(); now-k.swept > sweepInterval {
		k.swept, k.room = now, maxKnown
		k.forgetAll(func(_ string, x *entry) bool { return x.until < now })
		k.claim.Set(int64(k.known.Len()) * knownBytes)
	}
	k.mu.Unlock()

	for _, s := range all {
		k.noteMu.Lock()
		partial := s.partial
		k.noteMu.Unlock()
		if changed || nftables.Key(s.key.Load()) == nftables.NoKey || partial {
			k.look(s)
		}
	}
}

// noteResult notes the worst result of writing to a set.
func (k *keeper) noteResult(s *set, p nftables.Problem) {
	if p != nftables.None && p != nftables.Full {
		k.look(s) // it may have become another set
	}
	k.noteMu.Lock()
	defer k.noteMu.Unlock()
	if key := nftables.Key(s.key.Load()); key != nftables.NoKey {
		s.note(key, p, clock.Now())
	}
}

// look finds out whether a set can be written.
func (k *keeper) look(s *set) {
	k.noteMu.Lock()
	defer k.noteMu.Unlock()
	key, p := nftables.NoKey, nftables.None
	w, err := k.opened()
	if err == nil {
		key, p = w.Inspect(s.name)
	} else if problem, ok := errors.AsType[nftables.Problem](err); ok {
		p = problem
	} else {
		p = nftables.Gone
	}

	// That elements have found no room, for example, does not show.
	now := clock.Now()
	if p == nftables.None && s.partial && now-s.last < forgotten {
		s.key.Store(uint32(key))
		return
	}
	s.note(key, p, now)
}

// opened returns the writer, and opens it if that has failed before.
func (k *keeper) opened() (Writer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.writer.Load(); w != nil {
		return *w, nil
	}
	w, err := k.open()
	if err != nil {
		return nil, err
	}
	k.writer.Store(&w)
	return w, nil
}
