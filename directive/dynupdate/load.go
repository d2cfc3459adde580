package dynupdate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/saved"
	"github.com/seamark/seamark/zone/zonefile"
)

// A version is one state of the zone.
type version struct {
	zone    *zone.Zone
	records int
}

// check returns an error if a version exceeds the limits of the options.
func (o *options) check(v *version) error { return o.checkSize(v.records, v.zone.Bytes()) }

func (o *options) checkSize(records, bytes int) error {
	switch {
	case records > o.maxRecords:
		return fmt.Errorf("the zone has more than %d records (max_records)", o.maxRecords)
	case int64(bytes) > o.maxBytes:
		return fmt.Errorf("the zone has more than %d bytes of records (max_bytes)", o.maxBytes)
	}
	return nil
}

// load returns the zone in the database, or that in the zone file if there is no database yet. The
// claim is for its memory.
func (o *options) load(claim *memory.Claim, log *slog.Logger) (*version, error) {
	if o.database != "" {
		v, err := o.readDatabase(claim)
		if !errors.Is(err, fs.ErrNotExist) {
			return v, err
		}
	}

	l := newLoader(o, claim)
	var outside *zonefile.Record // the first record that is not in the zone
	count := 0
	_, err := zonefile.Read(o.file, o.origin, func(r zonefile.Record) error {
		if !r.Owner.Within(o.origin) {
			if count++; outside == nil {
				outside = &r
			}
			return nil
		}
		return l.add(r.Spelled, r.Type, r.Class, r.TTL, r.RData)
	})
	if err != nil {
		return nil, err
	}
	v, err := l.version()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	if outside != nil {
		log.Warn("dynupdate: Ignored records outside the zone", "file", outside.File, "line", outside.Line,
			"error", fmt.Errorf("%s: %w %s", outside.Owner, zone.ErrOutOfZone, o.origin), "count", count)
	}
	return v, nil
}

// fileHead begins a database; the name of the zone follows: see package saved.
const fileHead = "seamark dynupdate zone, version 1\n"

// readDatabase returns the zone in the database.
func (o *options) readDatabase(claim *memory.Claim) (*version, error) {
	file, err := watch.Open(o.database)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	v, err := parseDatabase(file, newLoader(o, claim))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.database, err)
	}
	return v, nil
}

// parseDatabase returns the zone in a database.
func parseDatabase(file io.Reader, l *loader) (*version, error) {
	r := saved.NewReader(file)
	head, err := r.Head(len(fileHead) + len(l.origin))
	switch {
	case isBolt(head):
		return nil, errors.New("this is a database of CoreDNS, which is not read: " +
			"transfer the zone from CoreDNS into a zone file, and name a new database")
	case err != nil || !bytes.HasPrefix(head, []byte(fileHead)):
		return nil, errors.New("not a database of this server: restore it from a backup, or remove it to begin with the zone file")
	case string(head) != fileHead+string(l.origin):
		return nil, fmt.Errorf("not the database of zone %s but of another one", l.origin)
	}

	err = r.Records(func(record []byte) error {
		var a wire.Answer
		if _, err := a.AppendValid(wire.Answers, record, 0); err != nil {
			return saved.ErrMalformed
		}
		at, _ := wire.ReadRecord(a.Buf, 0)
		class := wire.Class(binary.BigEndian.Uint16(a.Buf[at.Head+2:]))
		return l.add(string(a.Buf[:at.Head]), at.Type, class, at.TTL(a.Buf), string(a.Buf[at.RData:at.Next]))
	})
	switch {
	case errors.Is(err, saved.ErrMalformed) || errors.Is(err, saved.ErrChecksum):
		return nil, fmt.Errorf("%w: the database is corrupt: restore it from a backup, or remove it to begin with the zone file", err)
	case err != nil:
		return nil, err
	}
	return l.version()
}

// isBolt reports whether a file is a database of bbolt, which has a number after the head of its
// first page.
func isBolt(head []byte) bool {
	const offset, magic = 16, 0xED0CDAED
	return len(head) >= offset+4 && binary.NativeEndian.Uint32(head[offset:]) == magic
}

// A loader makes a zone that updates may change.
type loader struct {
	*options
	builder *zone.Builder
	claim   *memory.Claim
	records int
	bytes   int
	hasSOA  bool
}

func newLoader(o *options, claim *memory.Claim) *loader {
	return &loader{options: o, builder: zone.NewBuilder(o.origin), claim: claim}
}

// add adds a record. Records that updates cannot keep consistent are errors.
func (l *loader) add(owner string, t wire.Type, class wire.Class, ttl uint32, rdata string) error {
	l.records++
	l.bytes += len(owner) + 10 + len(rdata)
	if err := l.checkSize(l.records, l.bytes); err != nil {
		return err
	}

	name := wire.Lower(owner)
	switch {
	case class != wire.ClassIN:
		return fmt.Errorf("%s: class %s, want IN", name, class)
	case derived(t):
		return fmt.Errorf("%s: a zone with %s records cannot be updated", name, t)
	case t == wire.TypeSOA && name == l.origin && zone.SOASerial([]byte(rdata)) == 0:
		return fmt.Errorf("%s: the serial number is 0, which RFC 2136 §7.11 excludes", name)
	}
	l.hasSOA = l.hasSOA || t == wire.TypeSOA

	if err := l.builder.Add(owner, t, ttl, rdata); err != nil {
		return err
	}
	return l.claim.Grow(int64(l.builder.Size()) * 9 / 8) // the builder needs an eighth more at the end
}

// version returns the zone of the records.
func (l *loader) version() (*version, error) {
	if !l.hasSOA {
		return nil, fmt.Errorf("no SOA record for %s", l.origin)
	}
	v := &version{zone: l.builder.Zone()}
	for range v.zone.Records { // l counts a record twice that is there twice
		v.records++
	}
	l.claim.Set(v.zone.Memory())
	return v, nil
}
