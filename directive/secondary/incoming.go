package secondary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

const (
	// maxBytes bounds the records of one transfer, and the memory of the zone, so that a
	// primary that sends records without end does not fill the memory.
	maxBytes = 512 << 20
	// maxChanges bounds the records of differences. Larger ones cost more than the zone.
	maxChanges = 64 << 20
	// maxMessages is for messages without records.
	maxMessages = 1 << 22
)

// An incoming is a zone transfer that is being received: a whole zone (RFC 5936) or
// differences (RFC 1995).
type incoming struct {
	origin wire.Name
	old    *zone.Zone // the present version, or nil; a new one must have a newer serial number
	// differences reports that the query was IXFR, so that the reply may be differences from
	// old, or the whole zone.
	differences bool
	limit       int           // of bytes
	wait        time.Duration // how long the primary may wait for a newer version
	received    time.Time     // when the reply began, or the query was sent

	state    state
	serial   uint32 // of the new version
	current  uint32 // of the version that the differences so far lead to
	soa      string // the first record
	builder  *zone.Builder
	changes  map[string]int // differences: 1 for an added record, -1 for a deleted one
	sent     sent           // the same, version by version
	messages int
	bytes    int
	share    *share // nil without a budget
	room     *room  // nil without a budget
	shared   int    // bytes of the builder that old has, too
	outside  int    // ignored records that are not in the zone
	scratch  wire.Answer
}

type state uint8

const (
	wantFirst state = iota
	wantSecond
	inZone
	inDeleted
	inAdded
	finished
)

func newIncoming(origin wire.Name, old *zone.Zone, differences bool) *incoming {
	return &incoming{origin: origin, old: old, differences: differences, limit: maxBytes}
}

// setLimit sets the limit of bytes, unless it is 0.
func (in *incoming) setLimit(bytes int64) {
	if bytes > 0 {
		in.limit = int(bytes)
	}
}

// errUnchanged reports that the primary has no newer version.
var errUnchanged = errors.New("the primary has no newer version")

// An olderSerialError is the error for a serial number that is older than before.
type olderSerialError struct{ has, got uint32 }

func (b olderSerialError) Error() string {
	return fmt.Sprintf("the primary's serial number %d is older than %d", b.got, b.has)
}

func (b olderSerialError) Unwrap() error { return errUnchanged }

// message reads one message of the reply. It reports whether the transfer is complete.
func (in *incoming) message(packet []byte, id uint16, qtype wire.Type) (done bool, err error) {
	if in.messages++; in.messages > maxMessages {
		return false, errors.New("too many messages")
	}
	off, err := in.header(packet, id, qtype)
	if err != nil {
		return false, err
	}

	answers := binary.BigEndian.Uint16(packet[6:])
	if answers == 0 {
		return false, errors.New("message without records")
	}

	for range answers {
		if in.state == finished {
			return false, errors.New("records after the end of the zone")
		}
		if off, err = in.recordAt(packet, off); err != nil {
			return false, err
		}
	}

	if in.state == wantSecond && in.messages == 1 && in.differences {
		return false, errWholeZone // a SOA record alone: RFC 1995 §4
	}
	return in.state == finished, nil
}

// header checks the header and the question of a message, and returns the offset after them.
// Messages after the first may lack the question (RFC 5936 §2.2.1).
func (in *incoming) header(packet []byte, id uint16, qtype wire.Type) (off int, err error) {
	if len(packet) < wire.HeaderLen || binary.BigEndian.Uint16(packet) != id || packet[2]&0x80 == 0 {
		return 0, errors.New("not a reply to the query")
	}
	if code := wire.RCode(packet[3] & 15); code != wire.NoError {
		return 0, rcodeError(code)
	}
	if packet[2]&(wire.FlagTC>>8) != 0 {
		return 0, errors.New("truncated message")
	}

	off = wire.HeaderLen
	for range binary.BigEndian.Uint16(packet[4:]) {
		name, next, ok := wire.ReadName(nil, packet, off)
		if !ok || next+4 > len(packet) || wire.Lower(string(name)) != in.origin ||
			wire.Type(binary.BigEndian.Uint16(packet[next:])) != qtype {
			return 0, errors.New("another question")
		}
		off = next + 4
	}
	return off, nil
}

// errWholeZone requests AXFR in place of IXFR.
var errWholeZone = errors.New("the primary does not send differences")

// errMisfit rejects differences that delete a record that the zone does not have, or add one
// that it has.
var errMisfit = errors.New("the differences do not fit the zone")

// admit checks the form of a record with names written out, and whether there is room for it.
func (in *incoming) admit(r []byte) (isSOA bool, err error) {
	limit := in.limit
	if in.changes != nil {
		limit = min(limit, maxChanges)
	}
	if in.bytes += len(r); in.bytes > limit {
		return false, fmt.Errorf("more than %d bytes of records", limit)
	}
	if err := in.share.reserve(in.bytes); err != nil {
		return false, err
	}
	if in.changes != nil {
		if err := in.reserve(); err != nil {
			return false, err
		}
	}

	at, _ := wire.ReadRecord(r, 0)
	if at.Type.IsMeta() {
		return false, fmt.Errorf("%s: %s is not a record type", wire.Lower(string(r[:at.Head])), at.Type)
	}
	if class := wire.Class(binary.BigEndian.Uint16(r[at.Head+2:])); class != wire.ClassIN {
		return false, fmt.Errorf("record of class %s", class)
	}
	isSOA = at.Type == wire.TypeSOA
	if isSOA && wire.Lower(string(r[:at.Head])) != in.origin {
		return true, errors.New("SOA record of another zone")
	}
	return isSOA, nil
}

// recordAt adds the record at msg[off:], and returns the offset of its end. A malformed one is an error,
// as for BIND, Knot and NSD: without it the zone would be another one than the primary's.
func (in *incoming) recordAt(msg []byte, off int) (next int, err error) {
	in.scratch.Reset(in.scratch.Buf, nil)
	if next, err = in.scratch.AppendValid(wire.Answers, msg, off); err != nil {
		return 0, wire.MalformedRecord(msg, off)
	}
	return next, in.record(in.scratch.Records())
}

// record adds a record with names written out (RFC 5936 §2.2, RFC 1995 §4).
func (in *incoming) record(r []byte) error {
	isSOA, err := in.admit(r)
	if err != nil {
		return err
	}

	switch in.state {
	case wantFirst:
		if !isSOA {
			return errors.New("the first record is not the SOA record")
		}
		in.serial, in.soa, in.state = zone.SOASerial(r), string(r), wantSecond
		return in.checkNewer()
	case wantSecond:
		if in.differences && isSOA && in.beginDifferences(r) {
			return nil
		}
		in.state, in.builder = inZone, zone.NewBuilder(in.origin)
		if err := in.add([]byte(in.soa)); err != nil {
			return err
		}
		fallthrough
	case inZone:
		if isSOA {
			return in.end(r)
		}
		return in.add(r)

	// A change is the old SOA record, deleted records, the new SOA record, and added records.
	case inDeleted:
		if !isSOA {
			in.count(r, -1)
			return nil
		}
		in.current, in.state = zone.SOASerial(r), inAdded
		in.count(r, 1)
	case inAdded:
		switch {
		case !isSOA:
			in.count(r, 1)
		case in.current == in.serial:
			in.sent.end(r)
			return in.end(r)
		case zone.SOASerial(r) != in.current:
			return errors.New("differences that do not follow each other")
		default:
			in.sent.end(r)
			in.state = inDeleted
			in.count(r, -1)
		}
	}
	return nil
}

// beginDifferences begins differences if r, the second record, is the SOA record of the old version.
func (in *incoming) beginDifferences(r []byte) bool {
	old, _ := in.old.Serial()
	if zone.SOASerial(r) != old || old == in.serial {
		return false
	}
	in.current, in.state, in.changes, in.sent.soa = old, inDeleted, map[string]int{}, slices.Clone(r)
	in.count(r, -1)
	return true
}

// checkNewer checks the serial number of the new version.
func (in *incoming) checkNewer() error {
	if in.old == nil {
		return nil
	}
	switch old, _ := in.old.Serial(); {
	case zone.SerialLess(old, in.serial):
		return nil
	case zone.SerialLess(in.serial, old):
		return olderSerialError{old, in.serial}
	}
	return errUnchanged
}

// end checks the closing SOA record.
func (in *incoming) end(r []byte) error {
	if zone.SOASerial(r) != in.serial {
		return errors.New("the zone changed during the transfer")
	}
	in.state = finished
	return nil
}

// changeSize is the memory of a record of differences beside its bytes.
const changeSize = 200

// reserve reserves the memory that has been used so far. The builder needs an eighth more when it
// makes the zone.
func (in *incoming) reserve() error {
	bytes := len(in.changes) * changeSize
	if in.changes != nil {
		bytes += in.bytes
		if in.sent.keep {
			bytes += in.bytes
		}
	}
	if in.builder != nil {
		bytes += (in.builder.Size() - in.shared) * 9 / 8
	}
	return in.room.receive(int64(bytes))
}

// key returns a record with its owner in lower case.
func key(r []byte) string {
	at, _ := wire.ReadRecord(r, 0)
	return string(append(wire.AppendLower(nil, r[:at.Head]), r[at.Head:]...))
}

// count notes a difference. A deletion and an addition of the same record cancel out.
func (in *incoming) count(r []byte, n int) {
	in.sent.record(r, n)
	k := key(r)
	if in.changes[k] += n; in.changes[k] == 0 {
		delete(in.changes, k)
	}
}

// add adds a record to the new zone.
func (in *incoming) add(r []byte) error {
	at, _ := wire.ReadRecord(r, 0)
	switch err := in.builder.Add(string(r[:at.Head]), at.Type, at.TTL(r), string(r[at.RData:at.Next])); {
	case errors.Is(err, zone.ErrOutOfZone):
		in.outside++
	case err != nil && !errors.Is(err, zone.ErrCNAMEConflict):
		return err
	}
	if in.builder.Size() > in.limit {
		return fmt.Errorf("the zone needs more than %d bytes of memory", in.limit)
	}
	return in.reserve()
}

// zone returns the new zone of a complete transfer.
func (in *incoming) zone() (*zone.Zone, error) {
	if in.changes == nil {
		return in.builder.Zone(), nil
	}

	in.builder = in.old.Edit()
	in.shared = in.builder.Size()
	changes := slices.Sorted(maps.Keys(in.changes)) // by owner

	for _, deleted := range [...]bool{true, false} {
		for _, k := range changes {
			if deleted != (in.changes[k] < 0) {
				continue
			}
			if err := in.apply([]byte(k), deleted); err != nil {
				return nil, err
			}
		}
	}

	z := in.builder.Zone()
	if serial, ok := z.Serial(); !ok || serial != in.serial {
		return nil, errMisfit
	}
	return z, nil
}

// apply deletes a record of the new zone, or adds one. The old zone must have the record that
// is deleted, and must not have the one that is added.
func (in *incoming) apply(r []byte, deleted bool) error {
	at, _ := wire.ReadRecord(r, 0)
	owner, rdata := string(r[:at.Head]), string(r[at.RData:at.Next])
	exists := in.builder.Has
	if deleted {
		exists = in.builder.Remove
	}

	switch had, err := exists(owner, at.Type, rdata); {
	case errors.Is(err, zone.ErrOutOfZone):
		in.outside++
		return nil
	case err != nil:
		return err
	case had != deleted:
		return errMisfit
	case deleted:
		return in.reserve()
	}
	return in.add(r)
}
