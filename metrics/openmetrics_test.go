package metrics

import (
	"math"
	"strings"
	"testing"
)

func TestWriteOpenMetrics(t *testing.T) {
	var r Registry
	r.Counter("c_total", "Says \"a\\b\".\nTwo lines.", "a", `x"\`).Add(3)
	r.Counter("errors", "Has a name of old.").Add(1)
	r.Gauge("g_total", "Reads.", func() float64 { return math.Inf(-1) })
	r.Histogram("h", "Spreads.", 0.5, []float64{0.5, 1, 1e6}, "zone", ".").Add(4, 1)
	r.ShardedHistogram("i_bytes", "Sizes.", 1, []float64{100}).Observe(nil, 7)
	r.SummaryFunc("s", "Is kept elsewhere.", func() Quantiles { return Quantiles{[]float64{0, 0.5}, []float64{1, 2}, 9, 3} })
	var b strings.Builder
	if err := r.WriteOpenMetrics(&b); err != nil {
		t.Fatal(err)
	}
	want := `# HELP c Says \"a\\b\".\nTwo lines.
# TYPE c counter
c_total{a="x\"\\"} 3
# HELP errors Has a name of old.
# TYPE errors unknown
errors 1
# HELP g_total Reads.
# TYPE g_total gauge
g_total -Inf
# HELP h Spreads.
# TYPE h histogram
h_bucket{zone=".",le="0.5"} 0
h_bucket{zone=".",le="1.0"} 0
h_bucket{zone=".",le="1e+06"} 1
h_bucket{zone=".",le="+Inf"} 1
h_sum{zone="."} 2
h_count{zone="."} 1
# HELP i_bytes Sizes.
# TYPE i_bytes histogram
i_bytes_bucket{le="100.0"} 1
i_bytes_bucket{le="+Inf"} 1
i_bytes_sum 7
i_bytes_count 1
# HELP s Is kept elsewhere.
# TYPE s summary
s{quantile="0.0"} 1
s{quantile="0.5"} 2
s_sum 9
s_count 3
# EOF
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
