package zone

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/wire"
)

const (
	// serialUnits is the number of units of a serial number in a second: the versions of a zone that a process
	// may make in a second if it is alone.
	serialUnits = 64

	// restartAhead is how far the first serial number of a zone is ahead of the clock, in units: so far that it
	// is greater than that of the last change before a restart, even if that takes less than a unit.
	// strangerAhead is that of a process that replaces one which has passed nothing to it, and which has probably
	// ended. It is less, since the steps in a lane come in addition before that process may restart.
	restartAhead  = strangerAhead + 4*lanes
	strangerAhead = 2 * serialUnits

	// lanes is the number of processes that may number versions at one time. It divides 1<<32.
	lanes = 8

	// mostAhead is how far the serial numbers in a lane run ahead of the clock, in units: see Delay. It has a
	// step, and a unit for the rounding of the clock.
	mostAhead = serialUnits + lanes + 1

	// undelayed is more than the serial numbers of one process increase without Delay while the other one numbers
	// versions, too: for the first version in each of two server blocks, and for that when it begins to serve.
	undelayed = 5 * lanes
)

// serialAt returns the time in units of serial numbers.
func serialAt(now time.Time) uint32 { return uint32(now.UnixMilli() * serialUnits / 1000) }

// Serials numbers the versions of zones that change while they are served. A serial number is the time, unless
// the one before is ahead of it. Reloads keep Serials: the zones of another plan are other versions, even if it
// is loaded in the same unit of time.
//
// While one process replaces another, both number the versions of the same zones, which may differ. From then on
// each process has a lane: it uses only the serial numbers that have one remainder, divided by lanes. A process
// passes another lane to each process that wants to replace it, and how far serial numbers may be ahead of the
// clock. Both keep to this until one of them has ended: see Delay. So the one that remains knows a serial number
// that is greater than all of the other one: see Remaining.
type Serials struct {
	mu    sync.Mutex
	last  map[wire.Name]uint32 // the greatest of each zone
	first uint32               // units of the first one of a zone ahead of the clock
	ahead uint32               // units of the greatest of all ahead of the clock when they were shared, at most

	shared bool     // with other processes: only the serial numbers of lane are used
	lane   uint32   // of this process
	order  []uint32 // all lanes, the one whose last use was the longest ago first

	replaces bool // another process, until Resume
	yields   bool // to another process, until that has a lane
}

// NewSerials returns the serial numbers of a process that does not replace another one.
func NewSerials() *Serials {
	return &Serials{last: map[wire.Name]uint32{}, order: []uint32{1, 2, 3, 4, 5, 6, 7, 0}, first: restartAhead, ahead: mostAhead}
}

// LoadSerials returns the serial numbers of a process that replaces another one, from what SaveState of that has
// written. r is nil if it has written nothing.
func LoadSerials(r io.Reader) *Serials {
	s := NewSerials()
	s.replaces, s.shared, s.first = true, true, strangerAhead
	slices.Sort(s.order) // so that its lane is the last one that a process passes whose lane it does not know

	var saved savedSerials
	if r != nil && json.NewDecoder(r).Decode(&saved) == nil && slices.Equal(slices.Sorted(slices.Values(saved.Order)), s.order) {
		s.order, s.first, s.ahead = saved.Order, saved.Ahead, saved.Ahead
	}
	s.lane = s.order[lanes-1]
	return s
}

// savedSerials is what a process needs to number versions beside another one.
type savedSerials struct {
	Order []uint32 // of the lanes; the last one is that of the process that loads it
	Ahead uint32   // see Serials
}

// StateName implements config.State.
func (*Serials) StateName() string { return "serials" }

// SaveState implements config.State. From now on this process keeps to its lane: the other one begins.
func (s *Serials) SaveState(w io.Writer) error { return json.NewEncoder(w).Encode(s.share(time.Now())) }

// longestYield bounds Yield, which is shorter unless the clock is set back.
const longestYield = 2 * time.Second

// Yield implements config.Yielder. A process that is replaced waits if serial numbers are far ahead of the clock,
// after a start or another hand-over a moment ago: else they would be further ahead after each hand-over, and at
// last further than after a restart.
func (s *Serials) Yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replaces {
		return
	}

	s.yields = true
	for end := time.Now().Add(longestYield); ; {
		wait := min(s.excess(time.Now(), mostAhead), time.Until(end))
		if wait <= 0 {
			return
		}
		s.mu.Unlock()
		time.Sleep(wait)
		s.mu.Lock()
	}
}

// Resume implements config.Yielder.
func (s *Serials) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaces, s.yields = false, false
}

// share passes the lane to another process whose last use was the longest ago: one that this process has replaced
// may still number versions, and also one that has failed to replace it.
func (s *Serials) share(now time.Time) savedSerials {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yields, s.shared, s.ahead = false, true, max(mostAhead, s.aheadAt(now))

	own := slices.Index(s.order, s.lane)
	s.order = append(slices.Delete(s.order, own, own+1), s.lane)
	s.order = append(s.order[1:], s.order[0])
	return savedSerials{Order: slices.Clone(s.order), Ahead: s.ahead}
}

// aheadAt returns how far the greatest serial number is ahead of the clock, in units. The caller holds s.mu.
func (s *Serials) aheadAt(now time.Time) (ahead uint32) {
	at := serialAt(now)
	for _, last := range s.last {
		if SerialLess(at, last) {
			ahead = max(ahead, last-at)
		}
	}
	return ahead
}

// Stop implements config.Stopper.
func (*Serials) Stop() {}

// First returns the serial number of a zone's first version in a plan. It is greater than those of earlier plans.
func (s *Serials) First(origin wire.Name, now time.Time) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := serialAt(now)
	if _, ok := s.last[origin]; !ok {
		least += s.first + 1
	}
	return s.begin(origin, least)
}

// Remaining returns the serial number of the version after a hand-over, in the process that remains. It is
// greater than that of any version that the other process can have served.
func (s *Serials) Remaining(origin wire.Name, now time.Time) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begin(origin, serialAt(now)+s.ahead+undelayed)
}

// begin returns the first serial number from least that is greater than the last one of a zone. The caller holds
// s.mu.
func (s *Serials) begin(origin wire.Name, least uint32) uint32 {
	if last, ok := s.last[origin]; ok && !SerialLess(last, least) {
		least = last + 1
	}
	return s.number(origin, least)
}

// Next returns the serial number of the version after one with the serial number last. It increases also if the
// clock is set back (RFC 1982).
func (s *Serials) Next(origin wire.Name, last uint32, now time.Time) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := serialAt(now)
	if !SerialLess(last, least) {
		least = last + 1
	}
	return s.number(origin, least)
}

// number returns the first serial number of this process from least. The caller holds s.mu.
func (s *Serials) number(origin wire.Name, least uint32) uint32 {
	if s.shared {
		least += (s.lane - least) % lanes
	}
	if last, ok := s.last[origin]; !ok || SerialLess(last, least) {
		s.last[origin] = least
	}
	return least
}

// Delay returns how long to wait before the next versions of the zones, one of each, so that serial numbers that
// are a second ahead of the clock do not run further ahead.
func (s *Serials) Delay(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch excess := s.excess(now, serialUnits); {
	case s.yields:
		return excess
	case s.shared:
		return min(excess, 2*lanes*time.Second/serialUnits)
	default:
		return min(excess, time.Second/serialUnits)
	}
}

// excess returns how long it takes until the greatest serial number is so many units ahead of the clock. The caller
// holds s.mu.
func (s *Serials) excess(now time.Time, units uint32) time.Duration {
	return time.Duration(max(s.aheadAt(now), units)-units) * time.Second / serialUnits
}
