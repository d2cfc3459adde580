package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/observe/traffic"
)

// The charts show the shortest span that has everything that was recorded.
func TestChartSpans(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		age  time.Duration
		want string
	}{
		{time.Second, "five minutes"}, {4 * time.Minute, "five minutes"}, {6 * time.Minute, "quarter"},
		{16 * time.Minute, "hour"}, {59 * time.Minute, "hour"},
	} {
		var points []traffic.Point
		for age := c.age; age >= 0; age -= 10 * time.Second {
			n := 10 * min(10, max(2, age.Seconds())) // the last point has not ended
			points = append(points, traffic.Point{
				Time: now.Add(-age), Queries: n, RCodes: map[string]float64{"NXDOMAIN": n / 4, "NOERROR": 3 * n / 4}, Waste: n / 10,
				P50: time.Millisecond, P99: time.Second,
			})
		}
		got := newChart(points, now)
		if !strings.Contains(got.Text, c.want) {
			t.Errorf("after %v: got %q, want %s", c.age, got.Text, c.want)
		}

		// Each point has ten queries a second, in the time that a column has points for, also if that has begun
		// just now.
		first := got.Columns[len(got.Columns)-1]
		if first.Rate > 10.01 || c.age < time.Minute && first.Rate < 9.99 || got.x(&first) < 0 || got.x(&got.Columns[0]) != plotWidth-got.width() {
			t.Errorf("after %v: got the columns %v, want ten queries a second, the last at the right", c.age, got.Columns)
		}
	}
	if got := newChart(nil, now); got.Bars != nil || got.Columns != nil || got.covers() != 5*time.Minute {
		t.Errorf("without queries: got %v, want an empty chart of five minutes", got)
	}
}
