package directive

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
)

// A readyHandler is a handler that is ready when its field is set.
type readyHandler struct {
	ready atomic.Bool
	calls atomic.Int64
}

func (g *readyHandler) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }
func (g *readyHandler) Ready() bool                     { g.calls.Add(1); return g.ready.Load() }

func TestReady(t *testing.T) {
	for _, test := range []struct{ option, after string }{
		{"", "OK"},
		{"{\nmonitor until-ready\n}", "OK"},
		{"{\nmonitor continuously\n}", "test"},
	} {
		h := &readyHandler{}
		r := run(t, ".:53 {\nready 127.0.0.1:0 "+test.option+"\n}", h, &readyHandler{})
		if code, body := r.page("/ready"); code != 503 || body != "test" {
			t.Errorf("%s: no handler ready: got %d %q, want 503 \"test\"", test.option, code, body)
		}
		h.ready.Store(true)
		if code, _ := r.page("/ready"); code != 503 {
			t.Errorf("%s: one of two handlers ready: got %d, want 503", test.option, code)
		}
		for _, other := range config.Find[*readyHandler](r.block) {
			other.ready.Store(true)
		}
		if code, body := r.page("/ready"); code != 200 || body != "OK" {
			t.Errorf("%s: both handlers ready: got %d %q, want 200 OK", test.option, code, body)
		}
		h.ready.Store(false)
		if _, body := r.page("/ready"); body != test.after {
			t.Errorf("%s: ready once and not ready now: got %q, want %q", test.option, body, test.after)
		}
	}
	wantErrors(t, ".:53 {\nready {\nmonitor never\n}\n}", `Corefile:3: ready: monitor: want until-ready or continuously, got "never"`)
}

// After a reload, the handlers of the new plan count. The address stays open.
func TestReadyReload(t *testing.T) {
	r := run(t, ".:53 {\nready 127.0.0.1:0\n}")
	if code, _ := r.page("/ready"); code != 200 {
		t.Errorf("no handler with readiness: got %d, want 200", code)
	}
	b, err := plan(t, ".:53 {\nready 127.0.0.1:0\n}", &readyHandler{})
	if err != nil {
		t.Fatal(err)
	}
	next := config.NewStart(context.Background(), r.start)
	if err := b.Started(next); err != nil {
		t.Fatal(err)
	}
	if code, _ := r.page("/ready"); code != 200 {
		t.Errorf("before the swap: got %d, want 200", code)
	}
	b.Swapped()
	next.Commit()
	defer next.Stop()
	r.start = next
	if code, _ := r.page("/ready"); code != 503 {
		t.Errorf("after the swap: got %d, want 503", code)
	}
}

// If health opens the address early, ready does not call handlers before they have
// been started.
func TestReadyAtAddressOfHealth(t *testing.T) {
	h := &readyHandler{}
	b, err := plan(t, ".:53 {\nhealth 127.0.0.1:0\nready 127.0.0.1:0\n}", h)
	if err != nil {
		t.Fatal(err)
	}
	r := &testBlock{t: t, start: config.NewStart(context.Background(), nil)}
	defer func() { r.start.Stop() }()
	if err := b.Started(r.start); err != nil {
		t.Fatal(err)
	}
	if code, _ := r.page("/health"); code != 200 {
		t.Errorf("health: got %d, want 200", code)
	}
	if code, _ := r.page("/ready"); code == 200 || h.calls.Load() > 0 {
		t.Errorf("before the swap: got %d, Ready called %d times; want not 200, no calls", code, h.calls.Load())
	}
	b.Swapped()
	if code, _ := r.page("/ready"); code != 503 {
		t.Errorf("after the swap: got %d, want 503", code)
	}
}
