package secondary

import (
	"errors"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/zone"
)

// A room is the memory that one zone uses of the server's budget: that of the version it has,
// and of one that is being received. It is not safe for concurrent use.
type room struct {
	budget   *memory.Budget
	kind     memory.Consumer // of the version that the zone has
	version  int64
	received *memory.Claim // of a version that is being received
	journal  *memory.Claim
}

func newRoom(b *memory.Budget, kind memory.Consumer) room {
	return room{budget: b, kind: kind, received: b.Claim(memory.Transfers), journal: b.Claim(kind)}
}

// receive makes the part for a new version at least as large as it. The new version does not
// share memory with the old one, but for that which the caller has subtracted.
func (r *room) receive(bytes int64) error {
	if r == nil {
		return nil
	}
	return r.received.Grow(bytes)
}

// install makes a version that was received the one that the zone has.
func (r *room) install(z *zone.Zone) error {
	if r == nil {
		return nil
	}
	r.release()
	bytes := z.Memory()
	more := max(bytes-r.version, 0)
	err := r.budget.Reserve(r.kind, more)

	// The version can have the memory of its journal, which is made smaller then.
	if journal := r.journal.Bytes(); err != nil && journal > 0 {
		r.journal.Set(0)
		if err = r.budget.Reserve(r.kind, more); err != nil {
			r.journal.Set(journal)
		}
	}
	if err != nil {
		return err
	}
	r.hold(max(bytes, r.version), bytes)
	return nil
}

// takeOver counts a version that is in memory already.
func (r *room) takeOver(z *zone.Zone) { r.hold(0, z.Memory()) }

// hold changes the part of the version from what is reserved.
func (r *room) hold(reserved, bytes int64) {
	r.budget.Force(r.kind, bytes-reserved)
	r.version = bytes
}

// release ends the use of memory for a version that was being received.
func (r *room) release() {
	if r != nil {
		r.received.Set(0)
	}
}

// stop ends the use of all memory.
func (r *room) stop() {
	r.release()
	r.journal.Set(0)
	r.hold(r.version, 0)
}

// isRefused reports whether an error is one of the memory of the server, which another attempt
// soon would meet again.
func isRefused(err error) bool {
	return errors.Is(err, errBudget) || errors.As(err, new(*memory.Error))
}
