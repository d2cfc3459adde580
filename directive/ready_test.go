package directive

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
)

// A gets is a handler that gets ready.
type gets struct {
	ready atomic.Bool
	asked atomic.Int64
}

func (g *gets) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }
func (g *gets) Ready() bool                     { g.asked.Add(1); return g.ready.Load() }

func TestReady(t *testing.T) {
	for _, test := range []struct{ option, after string }{
		{"", "OK"},
		{"{\nmonitor until-ready\n}", "OK"},
		{"{\nmonitor continuously\n}", "test"},
	} {
		h := &gets{}
		r := run(t, ".:53 {\nready 127.0.0.1:0 "+test.option+"\n}", h, &gets{})
		if code, body := r.page("/ready"); code != 503 || body != "test" {
			t.Errorf("%s: before: got %d %q, want 503 and the name", test.option, code, body)
		}
		h.ready.Store(true)
		if code, _ := r.page("/ready"); code != 503 {
			t.Errorf("%s: one of two is ready: got %d, want 503", test.option, code)
		}
		for _, other := range config.Find[*gets](r.block) {
			other.ready.Store(true)
		}
		if code, body := r.page("/ready"); code != 200 || body != "OK" {
			t.Errorf("%s: ready: got %d %q, want 200 OK", test.option, code, body)
		}
		h.ready.Store(false)
		if _, body := r.page("/ready"); body != test.after {
			t.Errorf("%s: after: got %q, want %q", test.option, body, test.after)
		}
	}
	wrong(t, ".:53 {\nready {\nmonitor never\n}\n}", `Corefile:3: ready: monitor: want until-ready or continuously, got "never"`)
}

// A reload asks its own handlers, from the moment it serves; the address stays.
func TestReadyReload(t *testing.T) {
	r := run(t, ".:53 {\nready 127.0.0.1:0\n}")
	if code, _ := r.page("/ready"); code != 200 {
		t.Errorf("nobody has to get ready: got %d, want 200", code)
	}
	b, err := plan(t, ".:53 {\nready 127.0.0.1:0\n}", &gets{})
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

// At an address that health shows early, handlers are not asked before they
// have been started.
func TestReadyBesideHealthIsNotEarly(t *testing.T) {
	h := &gets{}
	b, err := plan(t, ".:53 {\nhealth 127.0.0.1:0\nready 127.0.0.1:0\n}", h)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, start: config.NewStart(context.Background(), nil)}
	defer func() { r.start.Stop() }()
	if err := b.Started(r.start); err != nil {
		t.Fatal(err)
	}
	if code, _ := r.page("/health"); code != 200 {
		t.Errorf("health: got %d, want 200", code)
	}
	if code, _ := r.page("/ready"); code == 200 || h.asked.Load() > 0 {
		t.Errorf("before the swap: got %d, asked %d times", code, h.asked.Load())
	}
	b.Swapped()
	if code, _ := r.page("/ready"); code != 503 {
		t.Errorf("after the swap: got %d, want 503", code)
	}
}
