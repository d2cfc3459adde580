package secondary

import (
	"slices"
	"time"

	"github.com/seamark/seamark/sys/memory"
)

// takeOver continues with the data of another copy of the zone. If that has other primaries, the data serves
// until one of these has sent the zone, which may have a lower serial number.
func (s *schedule) takeOver(from *schedule) {
	if s.zone, s.checked = from.zone, from.checked; s.zone != nil {
		s.unsaved = true
		s.copy.share.hold(s.zone.Bytes())
		s.copy.room.takeOver(s.zone)
		if s.copy.current.Load() != nil {
			s.install(s.zone)
		}
	}
	s.foreign = from.foreign || s.copy.from != from.copy.from
}

// sharesFile reports whether another copy is of the same zone and has the same file.
func (c *zoneCopy) sharesFile(o *zoneCopy) bool {
	return c.file != "" && c.file == o.file && c.origin == o.origin
}

// borrow serves the version of the copy that the plan before had with other primaries, or another file,
// until the zone is transferred. Of several such copies it serves none: they may have been different zones
// for different clients.
func (c *zoneCopy) borrow(before []*zoneCopy, budget *memory.Budget) {
	before = slices.DeleteFunc(before, func(o *zoneCopy) bool { return o.origin != c.origin })
	for _, o := range before {
		if c.sharesFile(o) {
			o.yields.Store(true) // its last version would replace a newer one
		}
	}
	if len(before) != 1 {
		return
	}
	from := before[0]
	from.mu.Lock()
	z, history, checked, until := from.current.Load(), from.history.Load(), from.checked, from.until
	from.mu.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	if z == nil || c.current.Load() != nil {
		return
	}
	c.lent = budget.Claim(memory.Zones)
	c.lent.Set(z.Memory())
	c.history.Store(history)
	c.current.Store(z)
	c.since, c.checked, c.until = time.Now(), checked, until
	c.expiry = time.AfterFunc(time.Until(until), c.expire)
}
