package secondary

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// copies are all copies of a server. Its process passes their zones to the one that replaces it, which
// answers from them at once: a primary may be away, and a zone need not have a file.
type copies struct {
	log *slog.Logger

	mu     sync.Mutex
	all    map[*zoneCopy]struct{}
	passed map[passedKey]passedZone // until this process serves
}

// A passedKey identifies the copy of a zone in both processes.
type passedKey struct {
	origin wire.Name
	from   string // the primaries
}

// A passedZone is a zone of the process before this one.
type passedZone struct {
	zone    *zone.Zone
	journal zone.Journal
	checked time.Time // the last time that a primary answered
	room    *room     // its memory until a copy takes it
}

// receive reads what SaveState has written. Zones for which there is no memory are transferred again.
func (c *copies) receive(from io.Reader, budget *memory.Budget) {
	start, in := time.Now(), bufio.NewReader(from)
	for {
		key, at, err := readPassed(in, budget)
		switch {
		case err == io.EOF:
			c.log.Info("secondary: Received zones of another process",
				"count", len(c.passed), "duration", time.Since(start).Round(time.Millisecond))
			return
		case isRefused(err):
			c.log.Warn("secondary: Zone of another process is transferred again", "zone", key.origin, "error", err)
		case err != nil:
			c.log.Warn("secondary: Zones of another process are incomplete, and transferred again", "error", err)
			return
		default:
			c.keep(key, at)
		}
	}
}

// keep keeps a zone for the copies in this process. Server blocks may have a copy each: the newest one is kept.
func (c *copies) keep(key passedKey, at passedZone) {
	if has, ok := c.passed[key]; ok {
		before, _ := has.zone.Serial()
		if serial, _ := at.zone.Serial(); int32(serial-before) < 0 {
			has, at = at, has
		}
		has.room.release()
	}
	c.passed[key] = at
}

// readPassed reads the next zone. The error is io.EOF at the end, and one for which isRefused is true if
// the next zone can be read all the same.
func readPassed(in *bufio.Reader, budget *memory.Budget) (key passedKey, at passedZone, err error) {
	origin, err := readText(in)
	if err != nil {
		return key, at, err
	}
	from, err := readText(in)
	if err != nil {
		return key, at, io.ErrUnexpectedEOF
	}

	key = passedKey{wire.Name(origin), from}
	r := newRoom(budget, memory.Zones)
	at.room = &r
	reading := newIncoming(key.origin, nil, false)
	reading.room = at.room
	if at.zone, at.checked, err = parseFile(reading, in); err == nil || isRefused(err) {
		err = cmp.Or(at.readJournal(in), err)
	}
	if err != nil {
		at.room.release()
		err = fmt.Errorf("zone %s: %w", key.origin, err)
	}
	return key, at, err
}

// readJournal reads the journal after a zone. Without memory for it servers that copy the zone from here transfer
// the whole zone.
func (at *passedZone) readJournal(in *bufio.Reader) error {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	if n > zone.MaxJournal {
		return errors.New("a journal that is too large")
	}
	if at.zone == nil || at.room.receive(at.room.received.Bytes()+n) != nil {
		_, err := io.CopyN(io.Discard, in, n)
		return err
	}

	data := make([]byte, n)
	if _, err := io.ReadFull(in, data); err != nil {
		return io.ErrUnexpectedEOF
	}
	serial, _ := at.zone.Serial()
	at.journal, _ = zone.ParseJournal(data, serial)
	return nil
}

// readText reads a text with its length in two bytes before it.
func readText(in *bufio.Reader) (string, error) {
	var size [2]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return "", err
	}
	text := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(in, text); err != nil {
		return "", io.ErrUnexpectedEOF
	}
	return string(text), nil
}

// take returns the zone of the process before for a copy, which counts its memory from then on. Other server
// blocks may have a copy of the same zone, so that it stays until drop.
func (c *copies) take(o options) (at passedZone, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok = c.passed[passedKey{o.origin, o.from}]; ok {
		at.room.release()
	}
	return at, ok
}

// drop forgets the zones of the process before.
func (c *copies) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, at := range c.passed {
		at.room.release()
		delete(c.passed, key)
	}
}

// add adds a copy, which is removed by calling remove.
func (c *copies) add(of *zoneCopy) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[of] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, of)
	}
}

// StateName implements config.State.
func (*copies) StateName() string { return "secondary" }

// SaveState implements config.State. It writes each zone that is served: its name and primaries, the content of
// its file, and its journal.
func (c *copies) SaveState(w io.Writer) error {
	c.mu.Lock()
	var all []*zoneCopy
	for of := range c.all {
		all = append(all, of)
	}
	c.mu.Unlock()

	for _, of := range all {
		of.mu.Lock()
		z, checked, history := of.current.Load(), of.checked, of.history.Load()
		of.mu.Unlock()
		if z == nil {
			continue
		}

		var head []byte
		for _, text := range []string{string(of.origin), of.from} {
			head = append(binary.BigEndian.AppendUint16(head, uint16(len(text))), text...)
		}
		if _, err := w.Write(head); err != nil {
			return err
		}
		if err := writeFile(w, of.origin, z, checked); err != nil {
			return err
		}
		var journal zone.Journal
		if history != nil {
			journal = history.journal
		}
		if err := journal.Save(w); err != nil {
			return err
		}
	}
	return nil
}
