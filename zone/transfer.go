package zone

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/seamark/seamark/wire"
)

// A Transferable is a handler with zones that other servers may copy, such as file, secondary and
// kubernetes. The directive transfer finds the Transferables of its server block.
type Transferable interface {
	// Version returns the current version of a zone, or nil if the handler does not
	// have the zone, or has no data of it yet. It is safe for concurrent use.
	Version(origin wire.Name) Version
	// Follow calls changed with each zone that has a Version, and from then on with
	// each zone whose version has changed, until stop is called. Calls come from any
	// goroutine, also after stop; changed must not block.
	Follow(changed func(origin wire.Name)) (stop func())
}

// A Finder is a Transferable that may have zones which the configuration does not name, as in
// the files of a directory or in a catalog.
type Finder interface {
	FindsZones() bool
}

// A Transferrer is a handler that lets other servers copy zones: transfer.
type Transferrer interface {
	// Transfers reports whether servers may copy the zone.
	Transfers(origin wire.Name) bool
}

// A Version is an immutable state of a zone. A Version may also be a Differ.
type Version interface {
	// Serial returns the serial number of the SOA record.
	Serial() (serial uint32, ok bool)
	// SOA returns the SOA record in wire form, with names written out.
	SOA() []byte
	// Records yields each record once, the SOA record first. A record is in wire
	// form, with names written out, and is valid until yield returns. The records may
	// belong to a newer version if the zone changes often.
	Records(yield func(record []byte) bool)
}

// A Differ is a Version with a history.
type Differ interface {
	// Since yields the differences from an earlier version as in RFC 1995 §4: for each
	// change the old SOA record, the deleted records, the new SOA record and the added
	// records. ok is false if the earlier version is not known.
	Since(serial uint32) (records iter.Seq[[]byte], ok bool)
}

// SerialLess reports whether serial a is before b (RFC 1982).
func SerialLess(a, b uint32) bool { return int32(a-b) < 0 && a-b != 1<<31 }

// SOASerial returns the serial number of a SOA record in wire form.
func SOASerial(record []byte) uint32 { return binary.BigEndian.Uint32(record[len(record)-20:]) }

// Records implements [Version].
func (z *Zone) Records(yield func(record []byte) bool) {
	w := recordWriter{z: z, yield: yield}
	var soa set
	if soa.get(z.names.get(nil), wire.TypeSOA) {
		if r, _ := nextRecord(soa.records); !w.record(&soa, soa.t, soa.ttl, r) {
			return
		}
	}

	for _, names := range [...]*names{z.names, z.nsec3Names} {
		for n := range names.all {
			if !w.node(n) {
				return
			}
		}
	}
}

// SOA implements [Version].
func (z *Zone) SOA() (soa []byte) {
	for soa = range z.Records {
		return slices.Clone(soa)
	}
	return nil
}

// recordsOf yields the records of a node, which may be nil, but the SOA record.
func (z *Zone) recordsOf(n *node) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if n != nil {
			(&recordWriter{z: z, yield: yield}).node(n)
		}
	}
}

// A recordWriter yields records with the names of their nodes.
type recordWriter struct {
	z     *Zone
	yield func([]byte) bool
	buf   []byte
}

// node writes the records of a node but the SOA record. It returns false if yield did.
func (w *recordWriter) node(n *node) (more bool) {
	for rest := n.sets(); rest != ""; {
		var s set
		rest = s.read(n, rest)
		for records := s.records; records != "" && s.t != wire.TypeSOA; {
			var r stored
			if r, records = nextRecord(records); !w.record(&s, s.t, s.ttl, r) {
				return false
			}
		}
		for sigs := s.sigs; sigs != ""; {
			var r stored
			var ttl uint32
			if r, ttl, sigs = nextSig(sigs); !w.record(&s, wire.TypeRRSIG, ttl, r) {
				return false
			}
		}
	}
	return true
}

func (w *recordWriter) record(s *set, t wire.Type, ttl uint32, r stored) (more bool) {
	w.buf = w.z.appendName(w.buf[:0], s.n)
	w.buf = wire.AppendRecordHeader(w.buf, "", t, ttl, r.len())
	w.buf = w.z.appendRData(w.buf, s.n, r)
	return w.yield(w.buf)
}
