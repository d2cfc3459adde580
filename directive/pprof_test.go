package directive

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/slots"
)

// A client has one profile at a time, and others get theirs.
func TestPprofOnePerClient(t *testing.T) {
	p := &Pprof{making: slots.New(2, 1)}
	get := func(from string) int {
		r, w := httptest.NewRequest("GET", "/debug/pprof/cmdline", nil), httptest.NewRecorder()
		r.RemoteAddr = from
		p.ServeHTTP(w, r)
		return w.Code
	}
	first := web.Client(&http.Request{RemoteAddr: "192.0.2.1:1"})
	if !p.making.TryAcquire(first) {
		t.Fatal("the first profile is refused")
	}
	for from, want := range map[string]int{"192.0.2.1:2": http.StatusServiceUnavailable, "192.0.2.2:2": http.StatusOK} {
		if got := get(from); got != want {
			t.Errorf("second profile, for %s: got %d, want %d", from, got, want)
		}
	}
	p.making.Release(first)
	if got := get("192.0.2.1:2"); got != http.StatusOK {
		t.Errorf("after the first profile: got %d, want 200", got)
	}
}

func TestProfileTime(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"": 30 * time.Second, "?seconds=5": 5 * time.Second, "?seconds=0.5": time.Second / 2, "?seconds=-1": 30 * time.Second,
		"?seconds=1e300": time.Hour, "?seconds=nan": 30 * time.Second,
	} {
		if got := profileTime(httptest.NewRequest("GET", "/debug/pprof/trace"+query, nil)); got != want {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
}
