package metrics

import (
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestWriteText(t *testing.T) {
	var r Registry
	r.Counter("c_total", "Counts.\nTwo lines.", "a", `x"\`).Add(3)
	r.Gauge("g", "Reads.", func() float64 { return 0.5 })
	r.CounterFunc("f_total", "Grows.", func() float64 { return 7 })
	h := r.Histogram("h", "Spreads.", 1, []float64{1, 10}, "zone", ".")
	for _, v := range []uint64{0, 1, 2, 11} {
		h.Add(v, 1)
	}
	if r.Histogram("h", "Spreads.", 1, []float64{1, 10}, "zone", ".") != h {
		t.Error("Histogram: got another histogram for the same name and labels")
	}
	r.Histogram("plain", "Has no labels.", 1e-9, nil).Add(7e6, 1)
	r.HistogramFunc("read", "Is kept elsewhere.", func() Distribution { return Distribution{[]float64{1}, []uint64{2, 1}, 9} })
	r.SummaryFunc("sum", "Is kept elsewhere.", func() Quantiles { return Quantiles{[]float64{0, 0.5}, []float64{1, 2}, 9, 3} }, "of", "it")
	r.Gauge("without", "Has no end.", func() float64 { return math.Inf(1) })
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `# HELP c_total Counts.\nTwo lines.
# TYPE c_total counter
c_total{a="x\"\\"} 3
# HELP f_total Grows.
# TYPE f_total counter
f_total 7
# HELP g Reads.
# TYPE g gauge
g 0.5
# HELP h Spreads.
# TYPE h histogram
h_bucket{zone=".",le="1"} 2
h_bucket{zone=".",le="10"} 3
h_bucket{zone=".",le="+Inf"} 4
h_sum{zone="."} 14
h_count{zone="."} 4
# HELP plain Has no labels.
# TYPE plain histogram
plain_bucket{le="+Inf"} 1
plain_sum 0.007
plain_count 1
# HELP read Is kept elsewhere.
# TYPE read histogram
read_bucket{le="1"} 2
read_bucket{le="+Inf"} 3
read_sum 9
read_count 3
# HELP sum Is kept elsewhere.
# TYPE sum summary
sum{of="it",quantile="0"} 1
sum{of="it",quantile="0.5"} 2
sum_sum{of="it"} 9
sum_count{of="it"} 3
# HELP without Has no end.
# TYPE without gauge
without +Inf
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// A reload starts the new gauge before it ends the old one, or ends the new one
// if it fails.
// The value of a gauge that several parts of a server have is that of all of them.
func TestSharedGauge(t *testing.T) {
	var r Registry
	begin := func(value float64) (end func()) {
		return r.SharedGauge("age", "", math.Max, func() float64 { return value })
	}
	reads := func(want string) {
		t.Helper()
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(b.String(), "\nage "+want+"\n") {
			t.Errorf("got\n%s\nwant %s", b.String(), want)
		}
	}

	begin(1)
	endOld := begin(3)
	begin(2)
	reads("3")
	endOld()
	reads("2")
}

func TestTemporaryGauge(t *testing.T) {
	var r Registry
	begin := func(value float64) (end func()) {
		return r.TemporaryGauge("age", "", func() float64 { return value }, "of", "it")
	}
	reads := func(want string) {
		t.Helper()
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = "# HELP age \n# TYPE age gauge\nage{of=\"it\"} " + want + "\n"
		}
		if b.String() != want {
			t.Errorf("got\n%s\nwant\n%s", b.String(), want)
		}
	}
	endOld := begin(1)
	reads("1")
	begin(2)()
	reads("1")
	endNew := begin(3)
	reads("3")
	endOld()
	reads("3")
	endNew()
	endNew()
	reads("")
}

// A series is the sum of the values counted in all shards, removed shards, and
// without a shard.
func TestShardsAndUnsharded(t *testing.T) {
	var r, other Registry
	one, two, gone, foreign := r.NewShard(), r.NewShard(), r.NewShard(), other.NewShard()
	c := r.Counter("c", "")
	m := r.ShardedHistogram("m", "", 1e-3, []float64{0.005, 0.01}) // in thousandths
	if r.ShardedHistogram("m", "", 1e-3, nil) != m {
		t.Error("ShardedHistogram: got another histogram for the same name")
	}
	for i, s := range []*Shard{one, two, gone, foreign, nil} {
		if s != nil {
			s.Lock()
		}
		c.AddTo(s, 1)
		m.Observe(s, uint64(5*i)) // 0, 5, 10, 15, 20
		if s != nil {
			s.Unlock()
		}
	}
	new(Counter).AddTo(one, 1) // a Counter of no Registry
	r.RemoveShard(gone)
	if c.Value() != 5 {
		t.Errorf("Value: got %d, want 5", c.Value())
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `# HELP c 
# TYPE c counter
c 5
# HELP m 
# TYPE m histogram
m_bucket{le="0.005"} 2
m_bucket{le="0.01"} 3
m_bucket{le="+Inf"} 5
m_sum 0.05
m_count 5
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Scrapes, counting in a locked shard and requests for new counters may run at
// the same time.
func TestShardsWhileScraped(t *testing.T) {
	var r Registry
	var all sync.WaitGroup
	const shards, rounds = 3, 500
	for i := range shards {
		s := r.NewShard()
		all.Go(func() {
			for n := range rounds {
				s.Lock()
				r.Counter("c", "", "of", strconv.Itoa(n*shards+i)).AddTo(s, 1)
				r.Counter("all", "").AddTo(s, 1)
				s.Unlock()
			}
			r.RemoveShard(s)
		})
	}
	last := uint64(0)
	for range 200 {
		if err := r.WriteText(io.Discard); err != nil {
			t.Fatal(err)
		}
		now := r.Counter("all", "").Value()
		if now < last {
			t.Errorf("a counter decreased from %d to %d", last, now)
		}
		last = now
	}
	all.Wait()
	if n := r.Counter("all", "").Value(); n != shards*rounds {
		t.Errorf("Value: got %d, want %d", n, shards*rounds)
	}
}

// Counting allocates nothing.
func TestAllocations(t *testing.T) {
	var r Registry
	c := r.Counter("c", "")
	h := r.Histogram("h", "", 1, []float64{1, 2, 3})
	m := r.ShardedHistogram("m", "", 1, []float64{1, 2, 3})
	s := r.NewShard()
	if n := testing.AllocsPerRun(100, func() {
		c.Add(1)
		h.Add(2, 1)
		h.Observe(s, 2)
		c.AddTo(s, 1)
		m.Observe(s, 2)
		m.Observe(nil, 2)
	}); n != 0 {
		t.Errorf("counting allocates %v times, want 0", n)
	}
}
