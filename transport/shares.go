package transport

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
)

const (
	// maxTallied bounds the clients of a tally.
	maxTallied = 1024

	// maxLimited bounds the clients that are limited at one time, the heaviest first.
	maxLimited = 128

	// leastPassed is the smallest fraction of a client's queries that is passed.
	leastPassed = 1e-4

	// capacityWindow is the time in seconds over which the capacity is averaged. It is
	// longer than the periods in which a reader may be stopped.
	capacityWindow = 0.5

	// maxGrowth bounds the growth of the estimated capacity by one observation.
	maxGrowth = 1.5
)

// A tally counts queries by client. Its memory is bounded: if there are too many
// clients, it counts the heaviest, and for each of them at most one in
// maxTallied of all queries too few (Misra and Gries, 1982).
type tally struct {
	total  int
	counts map[netip.Addr]int
}

func newTally() *tally { return &tally{counts: map[netip.Addr]int{}} }

func (t *tally) add(client netip.Addr) {
	t.total++
	if n, ok := t.counts[client]; ok || len(t.counts) < maxTallied {
		t.counts[client] = n + 1
		return
	}
	for c, n := range t.counts {
		if n == 1 {
			delete(t.counts, c)
		} else {
			t.counts[c] = n - 1
		}
	}
}

// A limit is the bound on one client of a socket.
type limit struct {
	client netip.Addr // see ClientKey
	passed float64    // the fraction of its queries that is passed to the socket
	sent   float64    // queries in a second
}

// shares calculates the limits of the clients of a UDP socket that receives more
// queries than its reader can answer. Its aim is max-min fairness: clients that send
// less than their share get all their answers, and the others the same number each.
type shares struct {
	capacity float64 // queries in a second that the reader can answer; zero is unknown
	busy     float64 // seconds over which capacity is averaged, at most capacityWindow
	share    float64 // queries in a second for each client; zero if all can be answered
	limits   []limit // the client that sends most is the first

	received map[netip.Addr]int // since the limits were set
	seconds  float64            // since then
}

// An observation has the counts of a socket over an interval.
type observation struct {
	received *tally
	dropped  int     // queries that were dropped, because of limits or a full buffer
	shed     int     // dropped queries that the reader had received
	seconds  float64 // duration
	fill     float64 // the used part of the socket's buffer at the end
	idle     bool    // the buffer was empty at a time
}

// stopped reports whether the process did not run: packets waited, and none was received. Such
// an observation is continued: a new one would overestimate the capacity.
func (o observation) stopped() bool { return o.received.total == 0 && o.shed == 0 && o.fill > 0 }

// A backlog describes the packets that wait in a full buffer when the first limits of an
// overload are set. The reader sheds the packets that exceed the limits: most of them are
// from the clients that send most, which would otherwise get more than their share until the
// backlog is answered.
type backlog struct {
	left   int                // packets
	share  float64            // queries in a second for each of the limited clients
	passed map[netip.Addr]int // queries that they were answered
}

// backlogBurst is the time in seconds for which a limited client may use its share in advance.
const backlogBurst = 0.05

// backlog returns the backlog of a buffer that holds at most this many packets.
func (s *shares) backlog(packets int) backlog {
	b := backlog{left: packets, share: s.share, passed: make(map[netip.Addr]int, len(s.limits))}
	for _, l := range s.limits {
		b.passed[l.client] = 0
	}
	return b
}

// sheds reports whether a packet that the reader has received must be dropped, once the
// limits have had effect for some time.
func (b *backlog) sheds(client netip.Addr, seconds float64) bool {
	if b.left == 0 {
		return false
	}
	b.left--
	n, limited := b.passed[client]
	if limited && float64(n) >= b.share*(seconds+backlogBurst) {
		return true
	}
	if limited {
		b.passed[client] = n + 1
	}
	return false
}

// update calculates new limits, unless the old ones are still fair: the kernel needs
// about as much time to replace a filter as to receive a hundred queries. It reports
// whether the limits have changed, and how many of the dropped queries were above the
// old limits; the others did not fit into the socket's buffer.
func (s *shares) update(o observation) (changed bool, overLimit int) {
	s.estimateCapacity(o)
	demands, rest, overLimit := s.demands(o)

	// The part of the capacity that is distributed keeps the buffer filled in part, so
	// that the reader always has work and queries of a burst find room.
	target := s.capacity * (1.15 - 0.6*o.fill)

	sorted, all := slices.Sorted(maps.Values(demands)), rest
	for _, d := range sorted {
		all += d
	}
	share := fairShare(sorted, target-rest)
	if rest > 0 {
		share = max(share, all/maxTallied) // the tally is inexact by that
	}

	unlimited := len(s.limits) == 0
	if unlimited && o.dropped == 0 || float64(o.received.total+o.dropped)/o.seconds <= target {
		s.limits, s.share = nil, 0
		return !unlimited, overLimit
	}

	// Received queries may have waited in the buffer since an earlier limit.
	if s.share > 0 {
		share = math.Sqrt(share * s.share)
	}

	if !unlimited {
		s.seconds += o.seconds
		for client, n := range o.received.counts {
			s.received[client] += n
		}
		overflows := float64(o.dropped-overLimit) > 0.01*float64(o.received.total)
		if s.isFair(share) && !(overflows && share < s.share) {
			return false, overLimit
		}
	}

	s.limits, s.received, s.seconds, s.share = nil, map[netip.Addr]int{}, 0, share
	for client, sent := range demands {
		if sent > share {
			s.limits = append(s.limits, limit{client, max(share/sent, leastPassed), sent})
		}
	}
	slices.SortFunc(s.limits, func(a, b limit) int {
		return cmp.Or(cmp.Compare(b.sent, a.sent), a.client.Compare(b.client))
	})
	s.limits = s.limits[:min(len(s.limits), maxLimited)]
	return true, overLimit
}

// isFair reports whether the limits distribute about share to each client, by the
// queries that were received since they were set. A difference counts if it is more
// than a twentieth and is unlikely to be chance.
func (s *shares) isFair(share float64) bool {
	const tolerance, deviations = 0.05, 3
	if share < (1-tolerance)*s.share || share > (1+tolerance)*s.share || len(s.received) > maxTallied {
		return false
	}

	mean := 0.0
	for _, l := range s.limits {
		mean += float64(s.received[l.client]) / float64(len(s.limits))
	}
	most := min(mean, s.share*s.seconds)
	most = (1+tolerance)*most + deviations*math.Sqrt(most)
	for _, n := range s.received {
		if float64(n) > most {
			return false
		}
	}

	least := (1-tolerance)*mean - deviations*math.Sqrt(mean)
	return !slices.ContainsFunc(s.limits, func(l limit) bool { return float64(s.received[l.client]) < least })
}

// estimateCapacity derives the capacity from the queries that were received. While the
// reader has time left the capacity may be larger, but a known one grows by maxGrowth at
// most: in a short time the reader may receive many queries that have waited.
func (s *shares) estimateCapacity(o observation) {
	rate := float64(o.received.total) / o.seconds
	switch {
	case o.idle && rate < 0.5*s.capacity:
	case o.idle && s.capacity > 0:
		s.capacity *= min(max(rate/s.capacity, 1.05), maxGrowth)
	case o.idle:
		s.capacity = rate
	default:
		s.busy = min(s.busy+o.seconds, capacityWindow)
		s.capacity += (rate - s.capacity) * o.seconds / s.busy
	}
}

// demands estimates how many queries the clients have sent in a second. rest is the sum
// of the clients that were not tallied. Of clients without a limit the queries that were
// received are counted. All others have been sent by the limited clients, or by all
// clients in the same proportion if there is no limit yet. The number of queries that a
// limited client has sent does not follow from its own queries alone: received ones may
// have waited in the buffer since an earlier limit.
func (s *shares) demands(o observation) (demands map[netip.Addr]float64, rest float64, overLimit int) {
	arrived, received := float64(o.received.total+o.dropped), float64(o.received.total)
	scale := 1.0
	if len(s.limits) == 0 && received > 0 {
		scale = arrived / received
	}

	demands = map[netip.Addr]float64{}
	rest = received
	for client, n := range o.received.counts {
		rest -= float64(n)
		demands[client] = float64(n) * scale / o.seconds
	}

	limited, weights := arrived-received, 0.0
	for i, l := range s.limits {
		n := float64(o.received.counts[l.client])
		limited += n
		s.limits[i].sent = math.Sqrt(l.sent * max(n/l.passed/o.seconds, l.sent/16))
		weights += s.limits[i].sent
	}

	above := 0.0
	for _, l := range s.limits {
		sent := limited * l.sent / weights
		demands[l.client] = sent / o.seconds
		above += sent * (1 - l.passed)
	}
	return demands, rest * scale / o.seconds, min(int(above), o.dropped)
}

// fairShare returns the largest demand that is met if as many demands as possible are
// met with this capacity and the others get the same part of it each. It is infinite
// if all demands are met. demands is sorted.
func fairShare(demands []float64, capacity float64) float64 {
	for i, d := range demands {
		if share := capacity / float64(len(demands)-i); d > share {
			return share
		}
		capacity -= d
	}
	return math.Inf(1)
}
