package secondary

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/saved"
)

// The head of a zone's file is the line fileHead, the zone's name and the Unix time at which a
// primary last confirmed the zone: see package saved.
const fileHead = "seamark secondary zone, version 1\n"

// files tells the zones of a server whether their files are written by another process, which replaces
// this one.
type files struct {
	mu      sync.RWMutex
	yielded bool
}

// Yield implements config.Yielder. It waits for files that are being written.
func (f *files) Yield() { f.yield(true) }

// Resume implements config.Yielder.
func (f *files) Resume() { f.yield(false) }

func (f *files) yield(yielded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.yielded = yielded
}

// begin reports whether a file may be written until done is called.
func (f *files) begin() (done func(), ok bool) {
	f.mu.RLock()
	if f.yielded {
		f.mu.RUnlock()
		return nil, false
	}
	return f.mu.RUnlock, true
}

// save writes the zone to its file, if there is one and the zone has changed.
func (s *schedule) save() {
	c := s.copy
	if c.file == "" || s.zone == nil || !s.unsaved {
		return
	}
	s.saved = time.Now()
	done, ok := c.server.files.begin()
	if !ok {
		return
	}
	defer done()

	s.unsaved = false
	if err := c.writeFile(s.zone, s.checked); err != nil {
		s.unsaved = true
		c.log.Warn("secondary: Failed to write zone", "zone", c.origin, "file", c.file, "error", err)
		c.report(health.Warning, "file", "cannot be written to %s, and a restart has an old version: %v", c.file, err)
		return
	}
	s.stamped = s.checked
	c.health.Clear(c, "file")
}

func (c *zoneCopy) writeFile(z *zone.Zone, checked time.Time) error {
	return watch.Replace(c.file, 0o600, func(f *os.File) error { return writeFile(f, c.origin, z, checked) })
}

func writeFile(f io.Writer, origin wire.Name, z *zone.Zone, checked time.Time) error {
	return saved.Write(f, binary.BigEndian.AppendUint64([]byte(fileHead+origin), uint64(checked.Unix())), z)
}

// load serves the zone of the process that this one replaces, or else that in the file.
func (s *schedule) load() {
	c := s.copy
	if at, ok := c.server.copies.take(c.options); ok {
		s.journal = at.journal
		err := s.use(at.zone, at.checked)
		if err == nil {
			s.unsaved = true
			return
		}
		s.journal = zone.Journal{}
		c.log.Warn("secondary: Ignored zone of another process", "zone", c.origin, "error", err)
	}

	if c.file == "" {
		return
	}
	z, checked, err := c.readFile()
	defer c.room.release()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = s.use(z, checked)
	}
	if err != nil {
		c.log.Warn("secondary: Ignored file", "zone", c.origin, "file", c.file, "error", err)
		return
	}

	serial, _ := z.Serial()
	c.log.Info("secondary: Loaded zone",
		"zone", c.origin, "file", c.file, "serial", serial, "data_age", time.Since(checked).Round(time.Second))
}

// use serves a zone that a primary confirmed at a time, unless it has expired.
func (s *schedule) use(z *zone.Zone, checked time.Time) error {
	c := s.copy
	if limit := c.limit(); limit > 0 && int64(z.Bytes()) > limit {
		return fmt.Errorf("more than %d bytes of records", limit)
	}
	if age := time.Since(checked); age > c.expiresAfter(z) || age < -time.Hour {
		return fmt.Errorf("the zone has expired: a primary confirmed it %s ago", age.Round(time.Second))
	}
	if err := c.admit(z); err != nil {
		return err
	}

	s.checked, s.stamped, s.saved = checked, checked, time.Now()
	s.journal = s.journal.Within(c.room.journal)
	s.install(z)
	return nil
}

// readFile returns the zone in the file. Its memory is reserved like that of a transfer.
func (c *zoneCopy) readFile() (*zone.Zone, time.Time, error) {
	f, err := watch.Open(c.file)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()

	in := newIncoming(c.origin, nil, false)
	in.room = c.room
	in.setLimit(c.limit())
	return parseFile(in, f)
}

// limit returns the bytes that the zone may have; 0 is maxBytes.
func (c *zoneCopy) limit() int64 {
	if len(c.clients) == 0 {
		return 0
	}
	return c.clients[0].limit.Load()
}

// parseFile returns the zone in a file, which it reads through a transfer.
func parseFile(in *incoming, file io.Reader) (*zone.Zone, time.Time, error) {
	r := saved.NewReader(file)
	head, err := r.Head(len(fileHead) + len(in.origin) + 8)
	if err != nil || !bytes.HasPrefix(head, []byte(fileHead+string(in.origin))) {
		return nil, time.Time{}, fmt.Errorf("not a file of zone %s", in.origin)
	}
	checked := time.Unix(int64(binary.BigEndian.Uint64(head[len(head)-8:])), 0)

	var soa []byte
	err = r.Records(func(record []byte) error {
		if soa == nil {
			soa = bytes.Clone(record)
		}
		_, err := in.recordAt(record, 0)
		return err
	})
	if err != nil {
		return nil, checked, err
	}
	if soa == nil {
		return nil, checked, errors.New("no records")
	}

	// A transfer ends with the SOA record, too.
	if _, err := in.recordAt(soa, 0); err != nil {
		return nil, checked, err
	}
	z, err := in.zone()
	return z, checked, err
}
