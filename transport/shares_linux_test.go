package transport

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/seamark/seamark/test/race"
)

// A simulatedSocket is a UDP socket with a reader that answers capacity queries in a
// second, in steps of a millisecond.
type simulatedSocket struct {
	shares   shares
	capacity func(millisecond int) float64
	random   *rand.Rand
	queue    []int // indexes of clients
	passed   map[netip.Addr]float64
	backlog  backlog
	credit   float64
	now      int // milliseconds
	update   int // the time of the next change of the limits; zero before the overload
	since    int // the time of the last one
	limited  int // the time of the last one that changed them
	interval time.Duration

	observed   observation
	sent, lost []int // by client
	answered   int
	replaced   int // filters
}

const (
	simulatedBuffer   = 2700 // packets
	simulatedShedding = 0.2  // of the work for an answer, to receive a packet
)

func simulatedClient(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

func newSimulatedSocket(capacity func(int) float64) *simulatedSocket {
	return &simulatedSocket{capacity: capacity, random: rand.New(rand.NewPCG(1, 2)), observed: observation{received: newTally()}}
}

// run runs for some milliseconds with clients that send rates queries in a second.
// The limits change as Listener.limitClients changes them. It returns the answers in a
// second.
func (s *simulatedSocket) run(milliseconds int, rates []float64) (goodput float64) {
	s.sent, s.lost, s.answered, s.replaced = make([]int, len(rates)), make([]int, len(rates)), 0, 0
	for range milliseconds {
		s.now++
		var packets []int
		for i, rate := range rates {
			n := int(rate/1000 + s.random.Float64())
			s.sent[i] += n
			packets = append(packets, slices.Repeat([]int{i}, n)...)
		}
		s.random.Shuffle(len(packets), func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
		for _, i := range packets {
			passed, limited := s.passed[simulatedClient(i)]
			if limited && s.random.Float64() >= passed || len(s.queue) == simulatedBuffer {
				s.observed.dropped++
				s.lost[i]++
			} else {
				s.queue = append(s.queue, i)
			}
		}
		s.credit += s.capacity(s.now) / 1000
		for ; s.credit >= 1 && len(s.queue) > 0; s.credit-- {
			i := s.queue[0]
			s.queue = s.queue[1:]
			if s.backlog.sheds(simulatedClient(i), float64(s.now-s.limited)/1000) {
				s.lost[i]++
				s.observed.shed++
				s.observed.dropped++
				s.credit += 1 - simulatedShedding
				continue
			}
			s.answered++
			s.observed.received.add(simulatedClient(i))
		}
		if len(s.queue) == 0 {
			s.credit, s.observed.idle = 0, true
		}
		if s.update == 0 && s.observed.dropped > 0 {
			s.interval = firstInterval
			s.since, s.update = s.now, s.now+int(s.interval.Milliseconds())
			s.observed = observation{received: newTally()}
		}
		if s.now == s.update {
			s.observed.seconds, s.observed.fill = float64(s.now-s.since)/1000, float64(len(s.queue))/simulatedBuffer
			stopped := s.observed.stopped()
			if !stopped {
				s.interval = min(2*s.interval, overloadInterval)
			}
			s.update = s.now + int(s.interval.Milliseconds())
			if stopped {
				continue
			}
			s.since = s.now
			first := len(s.shares.limits) == 0
			if changed, _ := s.shares.update(s.observed); changed {
				s.replaced++
				waiting := s.backlog.left
				if first {
					waiting = len(s.queue)
				}
				s.backlog, s.limited = s.shares.backlog(waiting), s.now
			}
			s.observed = observation{received: newTally()}
			s.passed = map[netip.Addr]float64{}
			for _, l := range s.shares.limits {
				s.passed[l.client] = l.passed
			}
		}
	}
	return float64(s.answered) * 1000 / float64(milliseconds)
}

// lostPart returns the part of the queries of the first n clients that was dropped.
func (s *simulatedSocket) lostPart(n int) float64 {
	sent, lost := 0, 0
	for i := range n {
		sent, lost = sent+s.sent[i], lost+s.lost[i]
	}
	return float64(lost) / float64(sent)
}

func equalRates(n int, sum float64) []float64 { return slices.Repeat([]float64{sum / float64(n)}, n) }

// Clients below their share get their answers while others send too much, and the
// capacity is used.
func TestSharesSimulated(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	steady := func(capacity float64) func(int) float64 { return func(int) float64 { return capacity } }
	noise, chosen := rand.New(rand.NewPCG(3, 4)), 0
	for _, tc := range []struct {
		name       string
		capacity   func(int) float64
		mean       float64
		polite     int     // clients
		politePart float64 // of the capacity, that they send together
		greedy     int     // clients that each send ten times the capacity, divided by their number
		lost       float64 // at most this part of the polite clients' queries
		goodput    float64 // at least this part of the capacity
	}{
		{"slow", steady(25e3), 25e3, 99, 0.8, 1, 0.01, 0.97},
		{"fast", steady(250e3), 250e3, 99, 0.8, 1, 0.01, 0.97},
		{"little left", steady(25e3), 25e3, 99, 0.95, 1, 0.04, 0.97},
		{"a hundred greedy clients", steady(25e3), 25e3, 100, 0.4, 100, 0.02, 0.97},
		{"more greedy clients than limits", steady(25e3), 25e3, 20, 0.02, 200, 1, 0.97},
		{"thousands of clients", steady(100e3), 100e3, 3000, 0.5, 5, 0.01, 0.97},
		{"slow changes of the capacity", func(ms int) float64 { return 25e3 * (1 + 0.3*math.Sin(float64(ms)/300)) }, 25e3, 99, 0.5, 1, 0.1, 0.8},
		{"fast changes of the capacity", func(ms int) float64 { return 25e3 * 2 * noise.Float64() }, 25e3, 99, 0.8, 1, 0.01, 0.95},
		{"CPU quota of 1 ms in 40", func(ms int) float64 { return 25e3 * 40 * float64(1-min(ms%40, 1)) }, 25e3, 99, 0.8, 1, 0.05, 0.9},
		{"CPU quota that another reader takes at random", func(ms int) float64 {
			if ms%10 == 0 {
				chosen = noise.IntN(2)
			}
			return 25e3 * 20 * float64(chosen*(1-min(ms%10, 1)))
		}, 25e3, 50, 0.5, 1, 0.05, 0.95},
		{"CPU quota", func(ms int) float64 { return 25e3 * 10 * float64(1-min(ms%100/10, 1)) }, 25e3, 99, 0.8, 1, 0.05, 0.9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSimulatedSocket(tc.capacity)
			rates := append(equalRates(tc.polite, tc.politePart*tc.mean), equalRates(tc.greedy, 10*tc.mean)...)
			s.run(1000, rates)
			t.Logf("in the first second: polite clients lose %.4f of their queries", s.lostPart(tc.polite))
			goodput := s.run(4000, rates)
			lost := s.lostPart(tc.polite)
			t.Logf("then: polite clients lose %.4f of their queries; %.0f answers, capacity %.0f; %d filters in 4 s", lost, goodput, tc.mean, s.replaced)
			if lost > tc.lost || goodput < tc.goodput*tc.mean {
				t.Errorf("polite clients lose %.4f of their queries, and there are %.0f answers; want %.4f and %.0f", lost, goodput, tc.lost, tc.goodput*tc.mean)
			}
			s.run(1000, equalRates(len(rates), 0.3*tc.mean))
			s.run(1000, equalRates(len(rates), 0.3*tc.mean))
			if lost := s.lostPart(len(rates)); lost > 0 {
				t.Errorf("in the second second after the overload: %.4f of all queries lost, want none", lost)
			}
		})
	}
}

// A client that sends most of the queries gets no more answers than 99 others if these send
// more than their share, too.
func TestSharesAllAboveShare(t *testing.T) {
	noise, chosen := rand.New(rand.NewPCG(3, 4)), 0
	for name, capacity := range map[string]func(int) float64{
		"steady": func(int) float64 { return 15e3 },
		"CPU quota that another reader takes at random": func(ms int) float64 {
			if ms%10 == 0 {
				chosen = noise.IntN(2)
			}
			return 15e3 * 20 * float64(chosen*(1-min(ms%10, 1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulatedSocket(capacity)
			rates := append(equalRates(99, 2*15e3), 8*15e3)
			for _, milliseconds := range []int{1000, 8000, 1000} {
				if s.now == 9000 {
					s.run(500, equalRates(100, 0.3*15e3)) // the limits are removed
				}
				goodput := s.run(milliseconds, rates)
				greedy := float64(s.sent[99] - s.lost[99])
				others := 0.0
				for i := range 99 {
					others += float64(s.sent[i]-s.lost[i]) / 99
				}
				t.Logf("after %d ms: %.0f answers in a second, and the greedy client got %.2f times those of another; %d filters", s.now, goodput, greedy/others, s.replaced)
				most, least := 1.1, 0.95*15e3
				if milliseconds == 1000 { // with the time until the first limits, and their error
					most, least = 8, 0.8*15e3
				}
				if greedy > most*others || goodput < least {
					t.Errorf("after %d ms: %.0f answers in a second, and the greedy client got %.2f times those of another; want %.0f and %.1f", s.now, goodput, greedy/others, least, most)
				}
			}
		})
	}
}
