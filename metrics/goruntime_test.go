package metrics

import (
	"bytes"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
)

// Each series of the Go runtime has a value, and this version of Go has each
// runtime metric that it is computed from.
func TestGoSeries(t *testing.T) {
	var r Registry
	r.RegisterGo()
	runtime.GC()
	var body bytes.Buffer
	if err := r.WriteText(&body); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for line := range strings.Lines(body.String()) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && !strings.HasPrefix(line, "#") {
			values[name] = value
		}
	}
	for _, g := range append(goGauges[:], goCounters[:]...) {
		if v, ok := values[g.name]; !ok || v == 0 && !strings.Contains(g.name, "released") {
			t.Errorf("%s: got %v (found %v), want a value", g.name, v, ok)
		}
		for name := range strings.FieldsSeq(g.runtime) {
			if read(name).Kind() == metrics.KindBad {
				t.Errorf("%s: this version of Go has no metric %s", g.name, name)
			}
		}
	}
}
