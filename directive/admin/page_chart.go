package admin

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/traffic"
)

// A chart shows the recent past in columns of equal time. Its plots are 360 wide and 100 high.
type chart struct {
	span
	Bars     []bar
	Scale    [3]string // of the bars: top, middle, bottom
	P50, P99 string    // SVG paths
	Columns  []column  // with queries, the last one first
	Small    []multiple
}

// A span is a time that a chart can show.
type span struct {
	Text, Ago, Half string // the time, its begin and its middle
	Step            string // the time of a column
	columns         int
	step            time.Duration
}

// spans are shown one after the other, so that the charts of a new server are not empty.
var spans = [...]span{
	{"The last five minutes", "5 minutes ago", "2:30", "10 seconds", 30, 10 * time.Second},
	{"The last quarter of an hour", "15 minutes ago", "7:30", "30 seconds", 30, 30 * time.Second},
	{"The last hour", "60 minutes ago", "30", "minute", 60, time.Minute},
}

func (s span) covers() time.Duration { return time.Duration(s.columns) * s.step }

// Width returns the width of a bar.
func (s span) Width() int { return s.width() - 1 }
func (s span) width() int { return plotWidth / s.columns }

// A multiple is one of several small charts of equal form.
type multiple struct {
	Title, Value string // the value is that of the last minute
	Class, Path  string // a filled SVG path, 360 wide and 40 high
	Link         string
}

// A bar is a part of a column.
type bar struct {
	Code         string
	X, Y, Height int // in hundredths of the plot's unit for Y and Height
}

// A column is what was recorded in one step.
type column struct {
	Time     time.Time
	Rate     float64 // queries a second
	Codes    [4]float64
	Waste    float64       // queries a second
	P50, P99 time.Duration // the largest of its intervals

	ago int
}

const (
	plotWidth   = 360
	plotHeight  = 10000 // in hundredths
	smallHeight = 40
)

// chartCodes are the response codes of Codes; the last of them is all others.
var chartCodes = [4]string{"NOERROR", "NXDOMAIN", "SERVFAIL", "other"}

func newChart(points []traffic.Point, now time.Time) (c chart) {
	for _, c.span = range spans {
		if len(points) == 0 || now.Sub(points[0].Time) <= c.covers() {
			break
		}
	}

	columns := make([]column, c.columns)
	seconds := c.step.Seconds()
	var latest time.Time // the beginning of the last column, which has not ended
	for _, p := range points {
		ago := int(now.Sub(p.Time) / c.step)
		if ago < 0 || ago >= c.columns {
			continue
		}

		m := &columns[ago]
		if ago == 0 && latest.IsZero() {
			latest = p.Time
		}
		if m.Rate == 0 {
			m.Time = p.Time
		}
		for code, n := range p.RCodes {
			m.Codes[codeIndex(code)] += n / seconds
		}
		m.Rate += p.Queries / seconds
		m.Waste += p.Waste / seconds
		m.P50, m.P99 = max(m.P50, p.P50), max(m.P99, p.P99)
	}
	columns[0].stretch(seconds / min(seconds, max(seconds/5, now.Sub(latest).Seconds())))

	most := 0.0
	for _, m := range columns {
		most = max(most, m.Rate)
	}
	top := niceCeiling(most)
	c.Scale = [3]string{showNumber(top), showNumber(top / 2), "0"}
	for ago := range columns {
		if m := columns[ago]; m.Rate > 0 {
			m.ago = ago
			c.Columns = append(c.Columns, m)
			c.addBars(&m, top)
		}
	}

	c.P50 = c.path(func(m *column) time.Duration { return m.P50 })
	c.P99 = c.path(func(m *column) time.Duration { return m.P99 })
	return c
}

// stretch multiplies the rates, whose time was shorter.
func (m *column) stretch(f float64) {
	m.Rate, m.Waste = f*m.Rate, f*m.Waste
	for i := range m.Codes {
		m.Codes[i] *= f
	}
}

// addMultiples adds the small charts, with the values of the last minute.
func (c *chart) addMultiples(st *Status) {
	latency := func(d time.Duration) string {
		if st.Queries == 0 {
			return "-"
		}
		return showDuration(d)
	}
	share := func(n func(*column) float64) func(*column) float64 {
		return func(m *column) float64 { return n(m) / m.Rate }
	}
	code := func(i int) func(*column) float64 { return share(func(m *column) float64 { return m.Codes[i] }) }
	top := 0.0
	for i := range c.Columns {
		top = max(top, c.Columns[i].Rate)
	}

	for _, m := range []struct {
		multiple
		value func(*column) float64
		top   float64
	}{
		{multiple{"Queries a second", showNumber(st.Queries), "noerror", "", "top?by=names"},
			func(m *column) float64 { return m.Rate }, niceCeiling(top)},
		{multiple{"NXDOMAIN", showPercent(st.RCodes["NXDOMAIN"]), "nxdomain", "", "top?by=nxdomain"}, code(1), 1},
		{multiple{"SERVFAIL", showPercent(st.RCodes["SERVFAIL"]), "servfail", "", "top?by=servfail"}, code(2), 1},
		{multiple{"Wasted searches", showPercent(st.Waste), "other", "", "top?by=waste"},
			share(func(m *column) float64 { return m.Waste }), 1},
		{multiple{"Median latency", latency(st.P50), "noerror", "", "top?by=slow"},
			func(m *column) float64 { return decades(m.P50) }, 6},
		{multiple{"99th percentile", latency(st.P99), "nxdomain", "", "top?by=slow"},
			func(m *column) float64 { return decades(m.P99) }, 6},
	} {
		m.Path = c.area(m.value, m.top)
		c.Small = append(c.Small, m.multiple)
	}
}

// area returns the path of a small chart: a step for each column, down to the ground.
func (c *chart) area(value func(*column) float64, top float64) string {
	var path strings.Builder
	for i := range c.Columns {
		m := &c.Columns[i]
		height := smallHeight * min(max(0, value(m)/top), 1)
		fmt.Fprintf(&path, "M%d %dv-%.1fh%dv%.1fz", c.x(m), smallHeight, height, c.width(), height)
	}
	return path.String()
}

func codeIndex(code string) int {
	if i := slices.Index(chartCodes[:], code); i >= 0 {
		return i
	}
	return len(chartCodes) - 1
}

// addBars adds the bars of one column, on top of each other.
func (c *chart) addBars(m *column, top float64) {
	below := 0.0
	height := func(rate float64) int { return int(math.Round(plotHeight * rate / top)) }
	for i, rate := range m.Codes {
		from, to := height(below), height(below+rate)
		if below += rate; to > from {
			c.Bars = append(c.Bars, bar{chartCodes[i], c.x(m), plotHeight - to, to - from})
		}
	}
}

// x returns where a column begins.
func (c *chart) x(m *column) int { return c.width() * (c.columns - 1 - m.ago) }

// decades returns a latency on the charts' logarithmic scale, from 10 microseconds to 10 seconds: 0 to 6.
func decades(d time.Duration) float64 {
	return min(math.Log10(max(10, float64(d/time.Microsecond)))-1, 6)
}

// path returns an SVG path with a step for each column.
func (c *chart) path(value func(*column) time.Duration) string {
	var path strings.Builder
	last := -2
	for i := len(c.Columns) - 1; i >= 0; i-- {
		m := &c.Columns[i]
		command := "M"
		if m.ago == last-1 {
			command = "L"
		}
		fmt.Fprintf(&path, "%s%d %.1fh%d", command, c.x(m), 100-decades(value(m))*100/6, c.width())
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
