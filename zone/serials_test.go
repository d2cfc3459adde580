package zone

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

// The serial number is the time, and increases when the clock is set back or wraps around.
func TestNextSerial(t *testing.T) {
	at := func(units int64) time.Time { return time.UnixMilli((units*1000 + 63) / 64) }
	for _, c := range []struct {
		last uint32
		now  int64
		want uint32
	}{
		{100, 200, 200},
		{200, 200, 201},
		{300, 200, 301},
		{1<<32 - 1, 1<<32 - 1, 0},
		{1<<32 - 1, 1<<32 + 5, 5},
		{5, 1<<32 - 1, 6},
	} {
		if got := NewSerials().Next("\x00", c.last, at(c.now)); got != c.want {
			t.Errorf("Next(%d, %d): got %d, want %d", c.last, c.now, got, c.want)
		}
	}
}

// A process that cannot read the lane of the one that it replaces, as that is of an older version, has a lane, too.
func TestSerialsUnknownLane(t *testing.T) {
	for _, saved := range []string{"", "{", `{"Order":[0,1],"Ahead":73}`, `{"Order":[0,1,2,3,4,5,6,6],"Ahead":73}`} {
		s := LoadSerials(strings.NewReader(saved))
		now, last := time.Now(), uint32(0)
		for range 20 {
			if last = s.Next("\x00", last, now); last%lanes != lanes-1 {
				t.Errorf("saved %q: got serial number %d of lane %d, want lane %d", saved, last, last%lanes, lanes-1)
			}
			if next := s.share(now); next.Order[lanes-1] == lanes-1 {
				t.Errorf("saved %q: the next process has the same lane", saved)
			}
		}
	}
}

// Processes replace each other while zones change, so fast that up to five of them number versions at one time:
// the one that goes on, those that it has replaced and those that have failed to replace it. No two versions have
// one serial number. The version after a hand-over is greater than all before, and so is the first one of
// a process that starts a second after another one, when all have ended.
func TestSerialsHandover(t *testing.T) {
	seeds := race.Fewer(uint64(100))
	if testing.Short() {
		seeds /= 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &serialsWorld{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), used: map[numbered]int{}, greatest: map[wire.Name]uint32{}}
				w.run()
			})
		})
	}
}

var serialsZones = []wire.Name{"\x01a\x00", "\x01b\x00"}

// numbered is a version of a zone.
type numbered struct {
	origin wire.Name
	serial uint32
}

// A serialsWorld has the processes of a test, oldest first.
type serialsWorld struct {
	*testing.T
	*rand.Rand
	processes int
	others    []*serialsProcess // without the one that goes on

	mu       sync.Mutex
	used     map[numbered]int // the process that has used it
	greatest map[wire.Name]uint32
}

// A serialsProcess makes versions of its zones until stop is closed.
type serialsProcess struct {
	*Serials
	world  *serialsWorld
	number int
	pause  time.Duration // between changes, at most
	stop   chan struct{}
	ended  sync.WaitGroup

	mu   sync.Mutex
	last map[wire.Name]uint32
}

func (w *serialsWorld) process(s *Serials) *serialsProcess {
	w.processes++
	p := &serialsProcess{Serials: s, world: w, number: w.processes, stop: make(chan struct{}), last: map[wire.Name]uint32{}}
	p.pause = []time.Duration{0, 30 * time.Millisecond, time.Second}[w.IntN(3)]
	for range 2 { // when the zones exist, and when the process begins to serve
		p.show(func(origin wire.Name) uint32 { return p.First(origin, time.Now()) }, !s.shared)
	}
	random := rand.New(rand.NewPCG(w.Uint64(), 0))
	p.ended.Go(func() { p.change(random) })
	return p
}

// show makes a version of each zone with a serial number from next. greater is whether it must be greater than that
// of all others.
func (p *serialsProcess) show(next func(origin wire.Name) uint32, greater bool) {
	w := p.world
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, origin := range serialsZones {
		serial := next(origin)
		w.mu.Lock()
		v := numbered{origin, serial}
		if by := w.used[v]; by > 0 {
			w.Errorf("processes %d and %d have versions of %v with the serial number %d", by, p.number, origin, serial)
		}
		greatest, some := w.greatest[origin]
		if some && greater && !SerialLess(greatest, serial) {
			w.Errorf("process %d: got serial number %d of %v, want one greater than %d of process %d", p.number, serial, origin,
				greatest, w.used[numbered{origin, greatest}])
		}
		if !some || SerialLess(greatest, serial) {
			w.greatest[origin] = serial
		}
		w.used[v] = p.number
		w.mu.Unlock()
		p.last[origin] = serial
	}
}

// change makes versions as the directive kubernetes does.
func (p *serialsProcess) change(random *rand.Rand) {
	for {
		time.Sleep(time.Duration(random.Int64N(int64(p.pause) + 1)))
		time.Sleep(20 * time.Millisecond)
		time.Sleep(p.Delay(time.Now()))
		select {
		case <-p.stop:
			return
		default:
		}
		p.show(func(origin wire.Name) uint32 { return p.Next(origin, p.last[origin], time.Now()) }, false)
	}
}

// remain is called after a hand-over.
func (p *serialsProcess) remain() {
	p.Resume()
	p.show(func(origin wire.Name) uint32 { return p.Remaining(origin, time.Now()) }, true)
}

func (p *serialsProcess) end() {
	close(p.stop)
	p.ended.Wait()
}

func (w *serialsWorld) sleep(most time.Duration) { time.Sleep(time.Duration(w.Int64N(int64(most)))) }

func (w *serialsWorld) run() {
	p := w.process(NewSerials())
	for range 20 {
		w.sleep([]time.Duration{time.Millisecond, time.Second, 10 * time.Second}[w.IntN(3)])
		switch w.IntN(10) {
		case 0:
			time.Sleep(time.Second)
			w.endOthers(0)
			p.end()
			p = w.process(NewSerials())
		case 1: // it ends before it has passed anything, and so the lanes of others are not known
			time.Sleep(time.Second)
			w.endOthers(0)
			p.end()
			p = w.process(LoadSerials(nil))
			p.remain()
		case 2: // the other process ends before
			p.remain()
		default:
			p = w.handOver(p)
		}
	}
	w.endOthers(0)
	p.end()
}

// handOver has a process replace p, and returns the one of them that goes on. The other one, and those of hand-overs
// before, make versions for a time.
func (w *serialsWorld) handOver(p *serialsProcess) (goesOn *serialsProcess) {
	w.endOthers(3)
	var data bytes.Buffer
	p.Yield()
	_ = p.SaveState(&data)
	next := w.process(LoadSerials(&data))
	w.sleep([]time.Duration{time.Millisecond, time.Second, time.Minute}[w.IntN(3)])

	goesOn, leaves := next, p
	if w.IntN(3) == 0 {
		goesOn, leaves = p, next
	}
	goesOn.remain()
	w.others = append(w.others, leaves)
	return goesOn
}

// endOthers ends processes that do not go on, until only so many are left.
func (w *serialsWorld) endOthers(most int) {
	n := max(0, len(w.others)-most+w.IntN(most+1))
	for _, p := range w.others[:min(n, len(w.others))] {
		p.end()
	}
	w.others = slices.Delete(w.others, 0, min(n, len(w.others)))
}
