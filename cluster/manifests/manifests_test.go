package manifests

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A recorder is a Sink that keeps the objects, and counts the calls.
type recorder struct {
	mu      sync.Mutex
	objects [cluster.Kinds]map[cluster.Key]cluster.Object
	listed  [cluster.Kinds]bool
	calls   []string // "put services shop/web"; those before Listed are not among them
}

func (r *recorder) Put(k cluster.Kind, all ...cluster.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range all {
		if r.listed[k] {
			r.calls = append(r.calls, fmt.Sprintf("put %s %s", k, o.Key()))
		}
		if r.objects[k] == nil {
			r.objects[k] = map[cluster.Key]cluster.Object{}
		}
		r.objects[k][o.Key()] = o
	}
}

func (r *recorder) Delete(k cluster.Kind, key cluster.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects[k], key)
	r.calls = append(r.calls, fmt.Sprintf("delete %s %s", k, key))
}

func (r *recorder) Listed(k cluster.Kind, has func(cluster.Key) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.objects[k], func(key cluster.Key, _ cluster.Object) bool { return !has(key) })
	r.listed[k] = true
	r.calls = append(r.calls, fmt.Sprintf("listed %s %d", k, len(r.objects[k])))
}

// state lists the sink's objects, one per line.
func (r *recorder) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for k, objects := range r.objects {
		for _, o := range objects {
			lines = append(lines, fmt.Sprintf("%s %s", cluster.Kind(k), describe(o)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (r *recorder) called() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func describe(o cluster.Object) string {
	var b strings.Builder
	fmt.Fprint(&b, o.Key())
	ports := func(ps []cluster.Port) {
		for _, p := range ps {
			fmt.Fprintf(&b, " %s:%d/%s", p.Name, p.Port, p.Protocol)
		}
	}
	switch o := o.(type) {
	case *cluster.Service:
		if o.Headless {
			b.WriteString(" headless")
		}
		if o.ExternalName != "" {
			b.WriteString(" = " + o.ExternalName)
		}
		for _, ip := range o.ClusterIPs {
			b.WriteString(" " + ip.String())
		}
		ports(o.Ports)
	case *cluster.Slice:
		b.WriteString(" of " + o.Service)
		if o.Cluster != "" {
			b.WriteString("@" + o.Cluster)
		}
		ports(o.Ports)
		for e := range o.Endpoints.All() {
			fmt.Fprintf(&b, " [%s %s%s", e.Addr, e.Hostname, e.Zone)
			if !e.Ready {
				b.WriteString(" not ready")
			}
			b.WriteString("]")
		}
	case *cluster.Pod:
		fmt.Fprint(&b, " ", o.IPs)
	}
	return b.String()
}

// A logbook keeps log lines.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(p)))
	return len(p), nil
}

// with returns the lines that contain all of the words.
func (l *logbook) with(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// A bench is a folder with its sink and log.
type bench struct {
	t    *testing.T
	dir  string
	opts cluster.Options
	sink *recorder
	log  *logbook
	src  *cluster.Monitor
}

// newBench writes a folder of files with these names and contents.
func newBench(t *testing.T, files map[string]string) *bench {
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "manifests"), sink: &recorder{}, log: &logbook{}}
	must(t, os.Mkdir(b.dir, 0o755))
	for name, text := range files {
		b.write(name, text)
	}
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(name, text string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	must(b.t, os.WriteFile(b.path(name), []byte(text), 0o644))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	must(b.t, os.RemoveAll(b.path(name)))
}

func (b *bench) open() *folder {
	b.t.Helper()
	b.opts.Manifests = b.dir
	b.src = cluster.NewMonitor(b.opts.Kinds(), slog.New(slog.NewTextHandler(b.log, nil)), new(metrics.Registry))
	f, err := openFolder(b.opts, b.sink, b.src)
	must(b.t, err)
	return f
}

// read reads the folder once, without watching it.
func (b *bench) read() *folder {
	b.t.Helper()
	f := b.open()
	f.check(b.t.Context())
	return f
}

// serve runs the folder until the test ends, and checks that all goroutines have
// ended.
func (b *bench) serve(change ...func(*folder)) {
	f := b.open()
	for _, c := range change {
		c(f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			b.t.Error("the source did not return when its context was done")
		}
	})
}

// within waits until ok returns true, and fails after a minute.
func (b *bench) within(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("never: %s\nstate:\n%s\ncalls: %q\nlog:\n%s", what, b.sink.state(), b.sink.called(), strings.Join(b.log.with(), "\n"))
		}
	}
}

// gets waits until the sink has exactly these objects, not counting namespaces.
func (b *bench) gets(want ...string) {
	b.t.Helper()
	b.within("the state is\n"+strings.Join(want, "\n"), func() bool { return b.state() == strings.Join(want, "\n") })
}

// has compares the sink's objects with these, not counting namespaces.
func (b *bench) has(want ...string) {
	b.t.Helper()
	if got := b.state(); got != strings.Join(want, "\n") {
		b.t.Errorf("got\n%s\nwant\n%s\nlog:\n%s", got, strings.Join(want, "\n"), strings.Join(b.log.with(), "\n"))
	}
}

func (b *bench) state() string {
	lines := strings.Split(b.sink.state(), "\n")
	lines = slices.DeleteFunc(lines, func(s string) bool { return strings.HasPrefix(s, "namespaces ") })
	return strings.Join(lines, "\n")
}

func (b *bench) namespaces() []string {
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	var names []string
	for key := range maps.Keys(b.sink.objects[cluster.Namespaces]) {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return names
}

// says checks that n log lines contain all of the words.
func (b *bench) says(n int, words ...string) {
	b.t.Helper()
	if n > 0 { // a change is logged after the sink has got it
		b.within(fmt.Sprintf("there are %d log lines with %q", n, words), func() bool { return len(b.log.with(words...)) >= n })
	}
	if got := b.log.with(words...); len(got) != n {
		b.t.Errorf("%d log lines with %q, want %d:\n%s", len(got), words, n, strings.Join(b.log.with(), "\n"))
	}
}

// service returns a Service of namespace shop with this address.
func service(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {clusterIP: %s}\n", name, ip)
}

func TestManifestsWatched(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("a", "10.0.0.1")})
	b.serve()
	b.gets("services shop/a 10.0.0.1")
	if calls := b.sink.called(); len(calls) != 3 || calls[0] != "listed namespaces 1" {
		t.Errorf("the first read gave %q, want a list of each kind", calls)
	}
	if age, ok := b.src.Age(); !ok || age != 0 {
		t.Errorf("age of the data after the first read: got %v, received %v, want 0: changes are noticed at once", age, ok)
	}

	b.write("sub/deep/b.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"b","namespace":"shop"},"spec":{"clusterIP":"10.0.0.2"}}`)
	b.gets("services shop/a 10.0.0.1", "services shop/b 10.0.0.2")
	b.write("sub/deep/b.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"b","namespace":"shop"},"spec":{"clusterIP":"10.0.0.3"}}`)
	b.gets("services shop/a 10.0.0.1", "services shop/b 10.0.0.3")
	must(t, os.Rename(b.path("sub"), b.path("other"))) // the same objects, elsewhere
	b.write("c.yml", service("c", "10.0.0.4"))
	b.gets("services shop/a 10.0.0.1", "services shop/b 10.0.0.3", "services shop/c 10.0.0.4")
	b.remove("other")
	b.remove("a.yaml")
	b.gets("services shop/c 10.0.0.4")

	want := []string{"put services shop/b", "put services shop/b", "put services shop/c", "delete services shop/a", "delete services shop/b"}
	got := b.sink.called()[3:]
	slices.Sort(got[3:])
	if !slices.Equal(got, want) {
		t.Errorf("the sink was given %q, want only what changed: %q", got, want)
	}
	b.says(1, "level=INFO", "change=added kind=Service namespace=shop name=b", b.path("sub/deep/b.json"))
	b.says(1, "level=INFO", "change=changed kind=Service namespace=shop name=b", b.path("sub/deep/b.json"))
	b.says(1, "level=INFO", "change=deleted kind=Service namespace=shop name=a", b.path("a.yaml"))
	b.says(0, "level=WARN")
}
