package directive

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/seamark/seamark/wire"
)

func TestErrors(t *testing.T) {
	h := &fixedVerdict{dns.Done, wire.ServFail, errors.New("read udp 10.0.0.9: i/o timeout"), false}
	r := run(t, ".:53 {\nerrors\n}", h)
	r.exchange(packet(t, "Example.org", wire.TypeA), dns.UDP, client)
	h.code, h.err = wire.NXDomain, nil
	r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	want := "[ERROR] plugin/errors: 2 example.org. A: read udp 10.0.0.9: i/o timeout\n"
	if got := r.stop(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorsStacktrace(t *testing.T) {
	for _, option := range []string{"", "{\nstacktrace\n}"} {
		r := run(t, ".:53 {\nerrors "+option+"\n}", &fixedVerdict{panics: true})
		r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
		got := r.stop()
		if line := "[ERROR] plugin/errors: 2 example.org. A: panic: test panic\n"; !strings.HasPrefix(got, line) {
			t.Errorf("got %q, want %q", got, line)
		}
		if has := strings.Contains(got, "fixedVerdict).ServeDNS"); has != (option != "") {
			t.Errorf("errors %s: got a stack trace: %v, want %v\n%s", option, has, option != "", got)
		}
	}
}

func TestErrorsConsolidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fixedVerdict{dns.Done, wire.ServFail, nil, false}
		r := run(t, `.:53 {
			errors {
				consolidate 30s "timeout$" warning
				consolidate 1m ^refused show_first
				consolidate 1m quiet debug
			}
		}`, h)
		fail := func(text string) {
			h.err = errors.New(text)
			r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
		}
		wantLog := func(want string) {
			t.Helper()
			synctest.Wait()
			r.out.mu.Lock()
			defer r.out.mu.Unlock()
			if got := r.out.b.String(); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			r.out.b.Reset()
		}
		fail("timeout")
		fail("timeout")
		fail("refused once")
		fail("refused twice")
		fail("quiet")
		wantLog("[ERROR] plugin/errors: 2 example.org. A: refused once\n")
		time.Sleep(30 * time.Second)
		wantLog("[WARNING] plugin/errors: 2 errors like 'timeout$' occurred in last 30s\n")
		time.Sleep(30 * time.Second)
		wantLog("[ERROR] plugin/errors: 2 errors like '^refused' occurred in last 1m0s\n")
		fail("refused") // a single error has no summary
		time.Sleep(time.Hour)
		wantLog("[ERROR] plugin/errors: 2 example.org. A: refused\n")
		fail("timeout")
		want := "[WARNING] plugin/errors: 1 errors like 'timeout$' occurred in last 30s\n"
		if got := r.stop(); got != want {
			t.Errorf("log at the end: got %q, want %q", got, want)
		}
	})
}

// Lines of level debug are written if the server logs at level debug.
func TestErrorsDebug(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelInfo: "", slog.LevelDebug: "[DEBUG] plugin/errors: 1 errors like '.' occurred in last 1m0s\n"} {
		r := run(t, ".:53 {\nerrors stdout {\nconsolidate 1m . debug\n}\n}", &fixedVerdict{dns.Done, wire.ServFail, errors.New("no"), false})
		config.Find[*Errors](r.block)[0].log = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level}))
		r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
		if got := r.stop(); got != want {
			t.Errorf("%v: got %q, want %q", level, got, want)
		}
	}
}

func TestErrorsErrors(t *testing.T) {
	wantErrors(t, `.:53 {
errors x
errors {
	stacktrace
}
}`, `Corefile:2: errors: want stdout or nothing, got "x"
Corefile:3: errors: already given at Corefile:2, and can be given once in a server block`)
	wantErrors(t, `.:53 {
errors {
	consolidate 1s
	consolidate x .
	consolidate 1s (
	consolidate 1s . fatal
	consolidate 1s . warning 2
	consolidat
}
}`, `Corefile:3: errors: consolidate: got 1 argument, usage: consolidate DURATION REGEXP [LEVEL] [show_first]
Corefile:4: errors: consolidate: want a duration of 1ms..24h, got "x"
Corefile:5: errors: consolidate: error parsing regexp: missing closing ): `+"`(`"+`
Corefile:6: errors: consolidate: want warning, error, info, debug or show_first, got "fatal"
Corefile:7: errors: consolidate: want warning, error, info, debug or show_first, got "2"
Corefile:8: errors: unknown option "consolidat"; did you mean "consolidate"?`)
}

// If stdout blocks, lines are dropped and counted, and write does not block.
func TestLineWriterBlockedOutput(t *testing.T) {
	stuck := make(chan struct{})
	registry := &metrics.Registry{}
	l := newLineWriter(writer(func([]byte) { <-stuck }), registry)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 2*linewriter.MaxPending/len(line) + 10 {
		_, _ = l.Write(line)
	}
	if n := registry.Counter("seamark_log_dropped_lines_total", "").Value(); n < 1 || n > 1100 {
		t.Errorf("got %d dropped lines, want 1..1100", n)
	}
	close(stuck)
	l.Stop()
	var _ config.Stopper = l
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
