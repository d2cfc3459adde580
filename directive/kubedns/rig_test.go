package kubedns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// A watcher runs a source until the end of the test and records its calls.
type watcher struct {
	*testing.T
	name    string
	metrics *metrics.Registry
	stop    func()

	mu      sync.Mutex
	lines   bytes.Buffer
	configs []string
}

func (w *watcher) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(line)
}

// logger returns the logger of the source, at debug level.
func (w *watcher) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (w *watcher) apply(c kubednsconfig.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.configs = append(w.configs, c.String())
}

// startSource runs a source; name is its label in the metrics.
func startSource(t *testing.T, name string, run func(*watcher, context.Context)) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{T: t, name: name, metrics: new(metrics.Registry)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(w, ctx)
	}()
	w.stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("Run did not return within a minute of the end of its context")
		}
	}
	t.Cleanup(w.stop)
	return w
}

// startDirectory runs a Source that relies on events, or, with noEvents, on frequent
// polls.
func startDirectory(t *testing.T, path string, noEvents bool) *watcher {
	t.Helper()
	return startSource(t, path, func(w *watcher, ctx context.Context) {
		s := Source{Dir: path, Period: time.Hour, noEvents: noEvents}
		if noEvents {
			s.Period = 10 * time.Millisecond
		}
		s.Run(ctx, w.logger(), w.metrics, nil, w.apply)
	})
}

// calls returns the Configs applied so far.
func (w *watcher) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.configs...)
}

func (w *watcher) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}

// said returns the lines of the log that contain words.
func (w *watcher) said(words string) (lines []string) {
	for line := range strings.Lines(w.log()) {
		if strings.Contains(line, words) {
			lines = append(lines, line)
		}
	}
	return lines
}

// becomes waits until exactly these Configs have been applied.
func (w *watcher) becomes(want ...string) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		got := w.calls()
		if fmt.Sprintf("%q", got) == fmt.Sprintf("%q", want) {
			return
		}
		if len(got) > len(want) || time.Now().After(deadline) {
			w.Fatalf("applied %q\nwant %q\nlog:\n%s", got, want, w.log())
		}
	}
}

// shows reports whether the metrics have this line.
func (w *watcher) shows(format string, args ...any) bool {
	var text strings.Builder
	if err := w.metrics.WriteText(&text); err != nil {
		w.Fatal(err)
	}
	return strings.Contains(text.String(), fmt.Sprintf(format, args...)+"\n")
}

// counts waits for these values of the counters and checks the gauge.
func (w *watcher) counts(applied, invalid int, valid bool) {
	w.Helper()
	for result, n := range map[string]int{"applied": applied, "invalid": invalid} {
		chaintest.Eventually(w.T, fmt.Sprintf("%s %d", result, n), func() bool {
			return w.shows(`seamark_kubedns_config_updates_total{source=%q,result=%q} %d`, w.name, result, n)
		})
	}
	want := 0
	if valid {
		want = 1
	}
	if !w.shows(`seamark_kubedns_config_valid{source=%q} %d`, w.name, want) {
		w.Errorf("seamark_kubedns_config_valid is not %d", want)
	}
}

// A mount is a volume with a ConfigMap that changes as the kubelet changes it.
type mount struct {
	*testing.T
	dir     string
	version int
	data    map[string]string
}

func newMount(t *testing.T, data map[string]string) *mount {
	t.Helper()
	m := &mount{T: t, dir: t.TempDir()}
	m.swap(data)
	return m
}

// swap writes a new directory, replaces the link ..data, adds links for new keys, and
// removes the links of old keys and the old directory.
func (m *mount) swap(data map[string]string) {
	m.Helper()
	m.version++
	folder := fmt.Sprintf("..2026_11_21_17_04_%02d.%09d", m.version%60, m.version)
	must(m.T, os.Mkdir(filepath.Join(m.dir, folder), 0o755))
	for key, value := range data {
		write(m.T, filepath.Join(m.dir, folder, key), value)
	}
	link := filepath.Join(m.dir, "..data")
	old, _ := os.Readlink(link)
	must(m.T, os.Symlink(folder, link+"_tmp"))
	must(m.T, os.Rename(link+"_tmp", link))
	for key := range data {
		if _, there := m.data[key]; !there {
			must(m.T, os.Symlink(filepath.Join("..data", key), filepath.Join(m.dir, key)))
		}
	}
	for key := range m.data {
		if _, there := data[key]; !there {
			must(m.T, os.Remove(filepath.Join(m.dir, key)))
		}
	}
	if old != "" {
		must(m.T, os.RemoveAll(filepath.Join(m.dir, old)))
	}
	m.data = data
}

// stub returns data with one stub domain, and configText the text of its Config.
func stub(server string) map[string]string {
	return map[string]string{stubDomains: `{"acme.local": ["` + server + `"]}`}
}

func configText(server string) string { return "acme.local=[" + server + ":53]" }

// The keys of the ConfigMap.
const (
	federations = "federations"
	stubDomains = "stubDomains"
	upstreams   = "upstreamNameservers"
)
