package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/signing"
	"github.com/seamark/seamark/zone/zonefile"
)

// A version is the content of a zone file at one time.
type version struct {
	zones  []*loaded       // in the order of the origins; empty if there was an error
	files  []zonefile.File // the zone file and the files that it includes
	readAt time.Time
}

// limits bound the memory of the zones of a file.
type limits struct {
	memory  *memory.Budget
	maxSize int64 // of one zone; 0 is no limit
}

// load reads a zone file once for each origin, in place of an old version, which may be nil. The
// version is not nil if there is an error: it has the files that the error depends on.
func load(path string, origins []wire.Name, within limits, old *version, log *slog.Logger) (*version, error) {
	v := &version{readAt: time.Now()}
	for _, origin := range origins {
		l := loader{origin: origin, origins: origins, within: within, claim: within.memory.Claim(memory.Zones)}
		z, files, err := l.load(path)
		if v.files == nil || err != nil {
			v.files = files
		}
		if err == nil {
			err = l.settle(z, old.memory())
		}
		l.borrowed.Release()
		if err != nil {
			l.claim.Release()
			v.release()
			v.zones = nil
			return v, err
		}
		l.warn(log)
		v.zones = append(v.zones, &loaded{zone: z, claim: l.claim, users: 1})
	}
	return v, nil
}

// A loader adds the records of a zone file to one zone.
type loader struct {
	origin  wire.Name
	origins []wire.Name // all zones that are served from the file
	sign    bool        // the zone will be signed: records of signed zones are ignored
	builder *zone.Builder
	within  limits
	claim   *memory.Claim // of the zone; nil if it is not kept

	// What the part of the zones has no room for is borrowed from that of transfers, which are new
	// versions, too, until the old version is dropped.
	borrowed *memory.Claim
	reserved int64 // of claim when borrowed was made
	refused  error // of claim

	hasSOA    bool
	otherSOA  *zonefile.Record // the first SOA record of another name
	conflicts warning          // records beside a CNAME record
	outside   warning          // records that are in none of the zones
	expired   warning          // signatures
	replaced  warning          // records of signed zones
	notASCII  warning          // names that clients send in another form
	nsec3     warning          // NSEC3 iterations
}

// load reads the zone from a file.
func (l *loader) load(path string) (*zone.Zone, []zonefile.File, error) {
	l.builder = zone.NewBuilder(l.origin)
	files, err := zonefile.Read(path, l.origin, l.add)
	if err != nil {
		return nil, files, err
	}
	z, err := l.zone(path)
	return z, files, err
}

// grow reserves the memory of the records so far. The builder needs an eighth more when it makes
// the zone.
func (l *loader) grow() error {
	size := int64(l.builder.Size())
	if most := l.within.maxSize; most > 0 && size > most {
		return fmt.Errorf("the zone needs more than %d bytes of memory", most)
	}

	size = size / 8 * 9
	if l.borrowed == nil {
		if l.refused = l.claim.Grow(size); l.refused == nil {
			l.reserved = size
			return nil
		}
		l.borrowed = l.within.memory.Claim(memory.Transfers)
	}
	if l.borrowed.Grow(size-l.reserved) != nil {
		return l.refused
	}
	return nil
}

// settle makes the claim that of the zone, which has a place once the old version is dropped.
func (l *loader) settle(z *zone.Zone, old int64) error {
	bytes := z.Memory()
	if l.borrowed != nil {
		l.claim.Release()
		if err := l.within.memory.Reserve(memory.Zones, bytes-old); err != nil {
			return err
		}
		l.within.memory.Release(memory.Zones, bytes-old)
	}
	l.claim.Set(bytes)
	return nil
}

// add adds one record.
func (l *loader) add(r zonefile.Record) error {
	if err := l.grow(); err != nil {
		return err
	}
	if r.Class != wire.ClassIN {
		return fmt.Errorf("%s: class %s, want IN", r.Owner, r.Class)
	}

	if l.sign && signing.Replaces(r.Type) {
		l.replaced.add(&r, fmt.Errorf("%s: %s records are made by the directive sign", r.Owner, r.Type))
		return nil
	}

	if r.Type == wire.TypeSOA && r.Owner != l.origin {
		if l.otherSOA == nil {
			l.otherSOA = &r
		}
		return nil
	}

	if written, form := config.ASCIIFormOfName([]byte(r.Spelled)); form != "" {
		l.notASCII.add(&r, fmt.Errorf("%s is not ASCII: clients ask for %s", written, form))
	}

	l.hasSOA = l.hasSOA || r.Type == wire.TypeSOA
	l.checkExpiration(&r)
	l.checkIterations(&r)

	switch err := l.builder.Add(r.Spelled, r.Type, r.TTL, r.RData); {
	case errors.Is(err, zone.ErrCNAMEConflict):
		l.conflicts.add(&r, err)
		return nil
	case !errors.Is(err, zone.ErrOutOfZone):
		return err
	case !slices.ContainsFunc(l.origins, r.Owner.Within):
		l.outside.add(&r, err)
	}
	return nil
}

// checkExpiration notes a signature that has expired. Times are serial numbers of 32 bits
// (RFC 4034 §3.1.5).
func (l *loader) checkExpiration(r *zonefile.Record) {
	const at = 8 // offset of the expiration in the RDATA
	if r.Type != wire.TypeRRSIG || len(r.RData) < at+4 {
		return
	}

	expiration := binary.BigEndian.Uint32([]byte(r.RData[at:]))
	if zone.SerialLess(expiration, uint32(time.Now().Unix())) {
		at := time.Unix(int64(expiration), 0).UTC().Format(time.RFC3339)
		l.expired.add(r, fmt.Errorf("%s: the signature expired at %s: sign the zone again", r.Owner, at))
	}
}

// checkIterations notes NSEC3 iterations, for which validators may treat the zone as one without
// signatures (RFC 9276 §3.2).
func (l *loader) checkIterations(r *zonefile.Record) {
	if r.Type != wire.TypeNSEC3PARAM || len(r.RData) < 4 {
		return
	}
	if n := binary.BigEndian.Uint16([]byte(r.RData[2:])); n > 0 {
		l.nsec3.add(r, fmt.Errorf("%s: %s: %d iterations: sign the zone with 0 iterations", r.Owner, r.Type, n))
	}
}

// zone returns the zone. If its name has no SOA record, it has the first one in the
// file, as in CoreDNS.
func (l *loader) zone(path string) (*zone.Zone, error) {
	if !l.hasSOA {
		if l.otherSOA == nil {
			return nil, fmt.Errorf("%s: no SOA record for %s", path, l.origin)
		}
		err := l.builder.Add(string(l.origin), wire.TypeSOA, l.otherSOA.TTL, l.otherSOA.RData)
		if err != nil && !errors.Is(err, zone.ErrCNAMEConflict) {
			return nil, l.otherSOA.Errorf("%w", err)
		}
	}

	z := l.builder.Zone()
	if _, ok := z.Serial(); !ok {
		return nil, fmt.Errorf("%s: malformed SOA record for %s", path, l.origin)
	}
	return z, nil
}

// warn logs the problems of the file that are not errors.
func (l *loader) warn(log *slog.Logger) {
	l.conflicts.log(log, "file: Found records beside a CNAME record")
	l.outside.log(log, "file: Ignored records outside the zone")
	l.expired.log(log, "file: Found expired signatures")
	l.replaced.log(log, "sign: Ignored records of a signed zone")
	l.nsec3.log(log, "file: Found NSEC3 iterations")
	l.notASCII.log(log, "file: Found names that are not ASCII")

	switch r := l.otherSOA; {
	case r == nil:
	case !l.hasSOA:
		log.Warn("file: Using the SOA record of another name",
			"file", r.File, "line", r.Line, "zone", l.origin, "owner", r.Owner)
	case !slices.Contains(l.origins, r.Owner):
		log.Warn("file: Ignored the SOA record of another name",
			"file", r.File, "line", r.Line, "zone", l.origin, "owner", r.Owner)
	}
}

// A warning is a defect that some records of a file share.
type warning struct {
	first *zonefile.Record
	err   error // of the first record
	count int
}

func (w *warning) add(r *zonefile.Record, err error) {
	if w.count++; w.first == nil {
		w.first, w.err = r, err
	}
}

// log logs message with the first record and the number of records.
func (w *warning) log(log *slog.Logger, message string) {
	if w.count > 0 {
		log.Warn(message, "file", w.first.File, "line", w.first.Line, "error", w.err, "count", w.count)
	}
}

// stale reports whether a file has changed since it was read.
func (v *version) stale() bool {
	for _, f := range v.files {
		now, err := os.Stat(f.Path)
		if err != nil || f.Info == nil {
			if (err != nil) != (f.Info == nil) {
				return true
			}
			continue
		}
		if !os.SameFile(now, f.Info) || now.Mode() != f.Info.Mode() ||
			now.Size() != f.Info.Size() || !now.ModTime().Equal(f.Info.ModTime()) {
			return true
		}
	}
	return false
}

const (
	// maxWrite is the longest time that a program is expected to take to write a
	// zone file.
	maxWrite = 2 * time.Second
	// maxClockLag is more than the time stamps of a file system lag behind the clock.
	maxClockLag = 50 * time.Millisecond
)

// mayComplete reports whether a file of v was written so soon after the previous
// version was read that the previous version may have been incomplete.
func (v *version) mayComplete(previous *version) bool {
	for _, f := range v.files {
		if f.Info == nil {
			continue
		}
		if after := f.Info.ModTime().Sub(previous.readAt); -maxClockLag < after && after < maxWrite {
			return true
		}
	}
	return false
}
