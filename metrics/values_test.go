package metrics

import "testing"

// Values reads the selected families only: the functions of others, which may be slow, are not called.
func TestValuesReadsSelectedFamilies(t *testing.T) {
	var r Registry
	r.Gauge("a", "", func() float64 { return 1 })
	r.Gauge("b", "", func() float64 { t.Error("a family that is not selected was read"); return 1 })
	if got := r.Values(func(family string) bool { return family == "a" }); len(got) != 1 || got["a"] != 1 {
		t.Errorf("got %v, want a", got)
	}
}
