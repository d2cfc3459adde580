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

	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/metrics"
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

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in twenty seconds", what)
		}
	}
}

// A watcher is a source that runs until the test ends, and what it has told.
type watcher struct {
	*testing.T
	name    string
	metrics *metrics.Registry
	stop    func()

	mu    sync.Mutex
	lines bytes.Buffer
	told  []string
}

func (w *watcher) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(line)
}

// logger is for the source; debug lines come too.
func (w *watcher) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (w *watcher) apply(c kubednsconfig.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, c.String())
}

// begin runs a source under its name in the metrics.
func begin(t *testing.T, name string, run func(*watcher, context.Context)) *watcher {
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
		case <-time.After(10 * time.Second):
			t.Error("the source does not end")
		}
	}
	t.Cleanup(w.stop)
	return w
}

// follow runs a Directory that is looked at for its events' sake alone, or, if it
// is deaf, often.
func follow(t *testing.T, path string, deaf bool) *watcher {
	t.Helper()
	return begin(t, path, func(w *watcher, ctx context.Context) {
		d := Directory{Path: path, Period: time.Hour, Log: w.logger(), Metrics: w.metrics, deaf: deaf}
		if deaf {
			d.Period = 10 * time.Millisecond
		}
		d.Run(ctx, w.apply)
	})
}

// calls are what has been told so far.
func (w *watcher) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.told...)
}

func (w *watcher) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}

// said gives the lines of the log that have the words.
func (w *watcher) said(words string) (lines []string) {
	for line := range strings.Lines(w.log()) {
		if strings.Contains(line, words) {
			lines = append(lines, line)
		}
	}
	return lines
}

// becomes waits until these have been told, and no others.
func (w *watcher) becomes(want ...string) {
	w.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		got := w.calls()
		if fmt.Sprintf("%q", got) == fmt.Sprintf("%q", want) {
			return
		}
		if len(got) > len(want) || time.Now().After(deadline) {
			w.Fatalf("told %q\nwant %q\nlog:\n%s", got, want, w.log())
		}
	}
}

// shows is whether the metrics have this line.
func (w *watcher) shows(format string, args ...any) bool {
	var text strings.Builder
	if err := w.metrics.WriteText(&text); err != nil {
		w.Fatal(err)
	}
	return strings.Contains(text.String(), fmt.Sprintf(format, args...)+"\n")
}

// counts waits until so many changes have been seen, and checks how the last was.
func (w *watcher) counts(applied, invalid int, valid bool) {
	w.Helper()
	for result, n := range map[string]int{"applied": applied, "invalid": invalid} {
		eventually(w.T, fmt.Sprintf("%s %d", result, n), func() bool {
			return w.shows(`seamark_kubedns_config_updates_total{source=%q,result=%q} %d`, w.name, result, n)
		})
	}
	want := 0
	if valid {
		want = 1
	}
	if !w.shows(`seamark_kubedns_config_valid{source=%q} %d`, w.name, want) {
		w.Errorf("valid is not %d", want)
	}
}

// A mount is a volume with a ConfigMap, changed as the kubelet changes it.
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

// swap writes another folder, puts the link ..data to it in the place of the one
// before, makes links for new keys, and takes away those of old ones and the old
// folder.
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

// stub is data with one stub domain, and told is what it comes to.
func stub(server string) map[string]string {
	return map[string]string{stubDomains: `{"acme.local": ["` + server + `"]}`}
}

func told(server string) string { return "acme.local=[" + server + ":53]" }

// The keys of the ConfigMap.
const (
	federations = "federations"
	stubDomains = "stubDomains"
	upstreams   = "upstreamNameservers"
)
