package dns

import (
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

// A keeper records the last query whose reply may be repeated.
type keeper struct {
	kept   int
	longer time.Duration // the time for which it may
}

func (k *keeper) keep(q *Query) {
	r := q.Repeated()
	k.kept, k.longer = k.kept+1, r.Allowed.For
}

// A repeatable allows to repeat its answers for two seconds.
type repeatable struct{}

func (repeatable) ServeDNS(q *Query) Verdict {
	q.AllowRepeat(Repeat{For: 2 * time.Second})
	return Done
}

func (repeatable) Repetition() Repetition { return Repetition{} }

// The time for which a reply may be repeated begins when the query arrives.
func TestRepeatElapsed(t *testing.T) {
	for _, c := range []struct{ elapsed, want time.Duration }{
		{0, 2 * time.Second}, {time.Second, time.Second}, {2 * time.Second, 0}, {time.Minute, 0},
	} {
		chain := new(Chain)
		chain.Add("repeatable", repeatable{})
		mux := NewMux(nil, nil)
		_ = mux.Route(wire.Root, chain)
		k := new(keeper)
		mux.Repeat(k.keep, func() {})
		var port Port
		port.Swap(mux)
		q := NewQuery(nil)
		start := time.Now()
		q.Reset([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"), UDP, start)
		if got := port.Serve(q, make([]byte, 0, 1<<10)); got != Answered {
			t.Fatalf("outcome: got %d, want %d", got, Answered)
		}
		q.Observe(start.Add(c.elapsed))
		if k.longer != c.want || k.kept > 0 != (c.want > 0) {
			t.Errorf("after %s: got %s, %d times, want %s", c.elapsed, k.longer, k.kept, c.want)
		}
	}
}

// A sampleTaker wants samples at a rate.
type sampleTaker struct {
	repeatable
	rate    SampleRate
	got     []string
	weights []float64
}

func (s *sampleTaker) Repetition() Repetition {
	return Repetition{Samples: func() SampleRate { return s.rate }, Sample: func(q *Query, weight float64) {
		text := q.AnsweredBy() + " " + q.RCode.String() + " " + string(q.Reply())
		s.got, s.weights = append(s.got, text), append(s.weights, weight)
	}}
}

// A sample is a finished query of the chain, for those alone that want it.
func TestSample(t *testing.T) {
	var with, without sampleTaker
	with.rate = FewSamples
	chain := new(Chain)
	chain.Add("with", &with)
	chain.Add("without", &without)
	if got := chain.SampleRate(); got != FewSamples {
		t.Errorf("got the rate %d, want %d", got, FewSamples)
	}
	r := Repeated{Chain: chain, Step: 1, RCode: wire.NXDomain}
	q := NewQuery(nil)
	for _, packet := range []string{"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01", "no query"} {
		q.Reset([]byte(packet), UDP, time.Now())
		r.Sample(q, []byte("reply"), 3)
	}
	if len(with.got) != 1 || with.got[0] != "without NXDOMAIN reply" || with.weights[0] != 3 || len(without.got) > 0 {
		t.Errorf("got %q with the weights %v, and %q without a wish", with.got, with.weights, without.got)
	}
	without.rate = ManySamples
	if got := chain.SampleRate(); got != ManySamples {
		t.Errorf("after a change: got the rate %d, want the higher one, %d", got, ManySamples)
	}
}
