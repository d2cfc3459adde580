package admin

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/traffic"
)

// A chart shows the last hour, a minute a column. Its plots are 360 wide and 100 high.
type chart struct {
	Bars     []bar
	Scale    [3]string // of the bars: top, middle, bottom
	P50, P99 string    // SVG paths
	Minutes  []minute  // with queries, the last one first
}

// A bar is a part of a column.
type bar struct {
	Code         string
	X, Y, Height int // in hundredths of the plot's unit for Y and Height
}

// A minute is what was recorded in one minute.
type minute struct {
	Time     time.Time
	Rate     float64 // queries a second
	Codes    [4]float64
	P50, P99 time.Duration // the largest of its intervals

	ago int
}

const (
	plotMinutes = 60
	plotColumn  = 6     // width of a minute
	plotHeight  = 10000 // in hundredths
)

// chartCodes are the response codes of Codes; the last of them is all others.
var chartCodes = [4]string{"NOERROR", "NXDOMAIN", "SERVFAIL", "other"}

func newChart(points []traffic.Point, now time.Time) (c chart) {
	var minutes [plotMinutes]minute
	most := 0.0
	for _, p := range points {
		ago := int(now.Sub(p.Time) / time.Minute)
		if ago < 0 || ago >= plotMinutes {
			continue
		}

		m := &minutes[ago]
		if m.Rate == 0 {
			m.Time = p.Time
		}
		for code, n := range p.RCodes {
			m.Codes[codeIndex(code)] += n / 60
		}
		m.Rate += p.Queries / 60
		m.P50, m.P99 = max(m.P50, p.P50), max(m.P99, p.P99)
		most = max(most, m.Rate)
	}

	top := niceCeiling(most)
	c.Scale = [3]string{showNumber(top), showNumber(top / 2), "0"}
	for ago := range minutes {
		if m := minutes[ago]; m.Rate > 0 {
			m.ago = ago
			c.Minutes = append(c.Minutes, m)
			c.addBars(&m, top)
		}
	}

	c.P50 = c.path(func(m *minute) time.Duration { return m.P50 })
	c.P99 = c.path(func(m *minute) time.Duration { return m.P99 })
	return c
}

func codeIndex(code string) int {
	if i := slices.Index(chartCodes[:], code); i >= 0 {
		return i
	}
	return len(chartCodes) - 1
}

// addBars adds the bars of one minute, on top of each other.
func (c *chart) addBars(m *minute, top float64) {
	below := 0.0
	height := func(rate float64) int { return int(math.Round(plotHeight * rate / top)) }
	for i, rate := range m.Codes {
		from, to := height(below), height(below+rate)
		if below += rate; to > from {
			c.Bars = append(c.Bars, bar{chartCodes[i], m.x(), plotHeight - to, to - from})
		}
	}
}

// x returns where the minute's column begins.
func (m *minute) x() int { return plotColumn * (plotMinutes - 1 - m.ago) }

// path returns an SVG path with a step for each minute. The scale is logarithmic, from 10
// microseconds to 10 seconds.
func (c *chart) path(value func(*minute) time.Duration) string {
	var path strings.Builder
	last := -2
	for i := len(c.Minutes) - 1; i >= 0; i-- {
		m := &c.Minutes[i]
		decades := math.Log10(max(10, float64(value(m)/time.Microsecond))) - 1
		command := "M"
		if m.ago == last-1 {
			command = "L"
		}
		fmt.Fprintf(&path, "%s%d %.1fh%d", command, m.x(), 100-min(decades, 6)*100/6, plotColumn)
		last = m.ago
	}
	return path.String()
}

// niceCeiling returns the least of 1, 2 and 5 times a power of ten that is not below f.
func niceCeiling(f float64) float64 {
	if f <= 0.1 {
		return 0.1
	}
	power := math.Pow(10, math.Floor(math.Log10(f)))
	for _, n := range []float64{1, 2, 5} {
		if f <= n*power {
			return n * power
		}
	}
	return 10 * power
}
