package cache

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seamark/seamark/wire"
)

// A savedEntry is an entry in the data for the process that replaces this one. Its
// times are of the wall clock: the clocks of two stores begin at different times.
type savedEntry struct {
	Scope           string `json:",omitempty"` // a long text; "" is that of the entry before
	Name, Options   []byte
	Type            wire.Type
	Class           wire.Class
	Flags           queryFlags
	Step            uint32
	Records         []byte
	Count           [3]uint16
	RCode           wire.RCode
	Kind            answerKind
	AA, RA, AD      bool
	Extended        []byte
	Stored, Expires time.Time
	StaleFor        time.Duration
	Main            bool // in the main list of its queue
	Uses            uint32
}

// StateName implements config.State.
func (*Store) StateName() string { return "cache" }

// SaveState implements config.State.
func (st *Store) SaveState(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for name, entries := range st.all() {
		scope := name
		for _, e := range entries {
			if err := encoder.Encode(st.saved(scope, e)); err != nil {
				return fmt.Errorf("saving the cache: %w", err)
			}
			scope = ""
		}
	}
	return nil
}

// all returns the entries by the names of their scopes, the oldest of each list first.
func (st *Store) all() map[string][]*entry {
	st.mu.Lock()
	defer st.mu.Unlock()

	entries := map[string][]*entry{}
	for name, s := range st.scopes {
		for i := range s.queues {
			for _, l := range []*list{&s.queues[i].main, &s.queues[i].small} {
				for e := l.oldest; e != nil; e = e.newer {
					entries[name] = append(entries[name], e)
				}
			}
		}
	}
	return entries
}

func (st *Store) saved(scope string, e *entry) savedEntry {
	now := time.Now()
	wall := func(t time.Duration) time.Time { return now.Add(t - st.clock(now)) }

	st.mu.Lock()
	defer st.mu.Unlock()
	return savedEntry{
		Scope: scope, Name: e.name(), Options: e.options(), Type: e.t, Class: e.class,
		Flags: e.queryFlags(), Step: uint32(e.step),
		Records: e.records(), Count: e.count, RCode: e.rcode, Kind: e.kind(),
		AA: e.flags&flagAA != 0, RA: e.flags&flagRA != 0, AD: e.flags&flagAD != 0,
		Extended: e.extended(), Stored: wall(e.stored()), Expires: wall(e.expires), StaleFor: e.staleFor(),
		Main: e.main, Uses: e.uses.Load(),
	}
}

// LoadState implements config.State. It ignores entries of server blocks that the plan
// does not have, and malformed ones, which an earlier version may have stored.
func (st *Store) LoadState(r io.Reader) error {
	decoder := json.NewDecoder(r)
	var message wire.Answer
	var malformed error // the first one
	scope := ""
	for {
		var e savedEntry
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return malformed
		case err != nil:
			return fmt.Errorf("loading the cache: %w", err)
		}
		scope = cmp.Or(e.Scope, scope)
		e.Scope = scope

		if err := e.check(&message); err != nil {
			malformed = cmp.Or(malformed, fmt.Errorf("loading the cache: %q %s: %w", e.Name, e.Type, err))
			continue
		}
		st.load(&e)
	}
}

// check returns an error unless the entry is one of a cache, and has as many records as it counts, each in the
// form of its type. Names may be pointers to the question. room is memory.
func (e *savedEntry) check(room *wire.Answer) error {
	if int(e.Kind) >= numKinds || e.Flags > keyFlags || len(e.Name) > wire.MaxName || len(e.Options) > maxKeyOptions {
		return errors.New("invalid entry")
	}
	for rest := e.Extended; len(rest) > 0; {
		if len(rest) < 4 || len(rest) < 4+int(binary.BigEndian.Uint16(rest[2:])) {
			return errors.New("invalid extended errors")
		}
		rest = rest[4+int(binary.BigEndian.Uint16(rest[2:])):]
	}

	question := binary.BigEndian.AppendUint16(slices.Clone(e.Name), uint16(e.Type))
	room.Reset(room.Buf, binary.BigEndian.AppendUint16(question, uint16(e.Class)))
	message := append(slices.Clone(room.Buf), e.Records...)

	off := len(room.Buf)
	for s := range wire.Section(3) {
		for range e.Count[s] {
			next, err := room.AppendValid(s, message, off)
			if err != nil {
				return wire.MalformedRecord(message, off)
			}
			off = next
		}
	}
	if off != len(message) {
		return errors.New("more records than it counts")
	}
	return nil
}

func (st *Store) load(saved *savedEntry) {
	st.mu.Lock()
	s := st.scopes[saved.Scope]
	st.mu.Unlock()
	if s == nil {
		return
	}

	k := key{
		name: saved.Name, options: saved.Options, t: saved.Type, class: saved.Class,
		flags: saved.Flags, step: saved.Step,
	}
	k.setHash(st, s)

	now := time.Now()
	clock := func(t time.Time) time.Duration { return st.clock(now) + t.Sub(now.Round(0)) }
	e := makeEntry(s, &k, saved.Kind, saved.Records, saved.Extended)
	e.setAnswer(saved.Count, saved.RCode, saved.AA, saved.RA, saved.AD)
	e.setTimes(clock(saved.Stored), saved.Expires.Sub(saved.Stored), saved.StaleFor)
	e.uses.Store(min(saved.Uses, maxUses))
	e.main = saved.Main
	st.put(e, ^kindSet(0), st.clock(now))
}
