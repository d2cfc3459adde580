package secondary

import (
	"fmt"
	"sync"
	"time"

	"github.com/seamark/seamark/zone"
)

// maxMemberBytes bounds the records of the members of all catalogs of the server.
const maxMemberBytes = 512 << 20

// fullRetry is the time after which a member that the budget refuses is transferred again,
// unless others use less before, or a NOTIFY message arrives.
const fullRetry = 10 * time.Minute

// errBudget reports that the members would have too many records in common.
var errBudget = fmt.Errorf("the members of all catalogs would have more than %d MB of records: "+
	"refused until others have fewer", maxMemberBytes>>20)

// A budget bounds the bytes of the records of zones in common.
type budget struct {
	limit int

	mu      sync.Mutex
	used    int
	waiting map[*share]waiter
}

// A waiter is a share that the budget has refused.
type waiter struct {
	bytes int    // that it needs at least in addition
	wake  func() // must not block
}

// add adds bytes, which may be negative. It reports whether there was room; with force there
// always is.
func (b *budget) add(bytes int, force bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes > 0 && !force && b.used+bytes > b.limit {
		return false
	}

	b.used += bytes
	for s, w := range b.waiting {
		if b.used+w.bytes <= b.limit {
			delete(b.waiting, s)
			w.wake()
		}
	}
	return true
}

// A share is the part of a budget that one zone uses: the larger of the version that it has
// and the one that is being transferred. A nil share has no bound. It is not safe for
// concurrent use.
type share struct {
	of       *budget
	held     int // of the version that the zone has
	reserved int // in the budget
	refused  int // additional bytes for which there was no room last
}

// reserve makes the share at least as large as a version. If there is no room it returns
// errBudget.
func (s *share) reserve(bytes int) error {
	if s == nil || bytes <= s.reserved {
		return nil
	}
	if !s.of.add(bytes-s.reserved, false) {
		s.refused = bytes - s.held
		return errBudget
	}
	s.reserved = bytes
	return nil
}

// accept reserves a new version, which replaces the one that the zone has.
func (s *share) accept(z *zone.Zone) error {
	bytes := z.Bytes()
	err := s.reserve(bytes)
	if err == nil {
		s.held = bytes
	}
	return err
}

// stop releases the share for good.
func (s *share) stop() {
	if s == nil {
		return
	}
	s.hold(0)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.waiting, s)
}

// hold sets the size of the version that the zone has.
func (s *share) hold(bytes int) {
	if s != nil {
		s.held = bytes
		s.release()
	}
}

// release releases what exceeds the version that the zone has.
func (s *share) release() {
	if s != nil && s.reserved != s.held {
		bytes := s.held - s.reserved
		s.reserved = s.held
		s.of.add(bytes, true)
	}
}

// await calls wake once there may be room for what was refused last.
func (s *share) await(wake func()) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.used+s.refused <= s.of.limit {
		wake()
		return
	}
	s.of.waiting[s] = waiter{s.refused, wake}
}
