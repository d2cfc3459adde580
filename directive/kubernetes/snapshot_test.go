package kubernetes

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/snapshot"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/clustertest"
)

// newSnapshotFile returns a file of a synced index with one Service, and its log.
func newSnapshotFile(t *testing.T) (*snapshotFile, *chaintest.Log) {
	t.Helper()
	ix := syncedIndex()
	ix.Put(cluster.Namespaces, namespaceObject("shop"))
	ix.Put(cluster.Services, clusterIP("shop", "web", "", "10.96.0.1"))
	log := new(chaintest.Log)
	return &snapshotFile{
		path: filepath.Join(t.TempDir(), "snapshot"), log: log.Logger(),
		source: &watchedCluster{Index: ix, snapshotOf: "options"}, task: follow.Go(func(context.Context) {}),
	}, log
}

func TestSnapshotFileRejected(t *testing.T) {
	f, _ := newSnapshotFile(t)
	if err := f.write(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("file: got mode %v and error %v, want -rw-------", info.Mode(), err)
	}
	var malformed bytes.Buffer
	err = snapshot.Write(&malformed, snapshot.Header{Written: time.Now(), Options: "options"}, func(yield func(cluster.Kind, cluster.Object) bool) {
		yield(cluster.Slices, &cluster.Slice{Namespace: "shop", Name: "web-1", Service: "web", Endpoints: "\xff"})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, options, log string
		content            []byte
		services           int64
	}{
		{"valid", "options", "Answering from a snapshot until all objects are received", good, 1},
		{"other options", "others", `written with other options: got \"options\", want \"others\"`, good, 0},
		{"truncated", "options", "error=incomplete", good[:len(good)-3], 0},
		{"changed", "options", `error="wrong checksum"`, bytes.Replace(good, []byte("shop"), []byte("shoq"), 1), 0},
		{"other version", "options", "error=\"version \\\"2\\\", want \\\"1\\\"\"", bytes.Replace(good, []byte("snapshot 1"), []byte("snapshot 2"), 1), 0},
		{"empty", "options", `error="not a snapshot"`, nil, 0},
		{"malformed", "options", "invalid endpoints", malformed.Bytes(), 0},
		{"too large", "options", "no memory for more snapshots", append(bytes.Clone(good), make([]byte, 1<<20)...), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			w := watchedCluster{Index: defaultOptions().newIndex(), snapshotOf: c.options}
			b := &config.Block{Log: slog.New(slog.NewTextHandler(&log, nil)), Memory: memory.New(8<<20, memory.FromGroup)}
			w.loadFile(path, b, defaultOptions().newIndex)
			if got := w.Count(cluster.Services); got != c.services || w.Ready() != (c.services > 0) {
				t.Errorf("got %d Services, ready %v, want %d", got, w.Ready(), c.services)
			}
			if !strings.Contains(log.String(), c.log) || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("log: got\n%s\nwant one line with %s", &log, c.log)
			}
		})
	}
	var log bytes.Buffer
	w := watchedCluster{Index: defaultOptions().newIndex()}
	w.loadFile(filepath.Join(t.TempDir(), "missing"), &config.Block{Log: slog.New(slog.NewTextHandler(&log, nil))}, defaultOptions().newIndex)
	if !strings.Contains(log.String(), "No snapshot to start from") || w.Ready() {
		t.Errorf("missing file: got ready %v and log\n%s\nwant it not ready, and a line \"No snapshot to start from\"", w.Ready(), &log)
	}
}

// The file is written once the objects have been received, then at most once a minute if
// they have changed, and at the end.
func TestSnapshotFileWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := newSnapshotFile(t)
		source := f.source
		f.source = &watchedCluster{Index: defaultOptions().newIndex(), snapshotOf: "options"} // not synced
		f.task = follow.Go(f.run)
		// services returns the number of Services in the file after some time; -1 without a file.
		services := func(after time.Duration) int {
			time.Sleep(after)
			synctest.Wait()
			s, err := readFile(f.path)
			if err != nil {
				return -1
			}
			n := 0
			if err := s.Each(func(kind cluster.Kind, _ cluster.Object) {
				if kind == cluster.Services {
					n++
				}
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := services(10 * snapshotInterval); n >= 0 {
			t.Errorf("before the objects were received: got a file with %d Services, want none", n)
		}
		f.mu.Lock()
		f.source = source
		f.mu.Unlock()
		if n := services(2 * snapshotCheck); n != 1 {
			t.Errorf("once the objects were received: got %d Services, want 1", n)
		}
		source.Put(cluster.Services, clusterIP("shop", "db", "", "10.96.0.2"))
		if n := services(snapshotInterval / 2); n != 1 {
			t.Errorf("half an interval after the first write: got %d Services, want 1", n)
		}
		if n := services(snapshotInterval); n != 2 {
			t.Errorf("an interval after the first write: got %d Services, want 2", n)
		}
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		if n := services(10 * snapshotInterval); n >= 0 {
			t.Errorf("without a change: got a file with %d Services, want none", n)
		}
		f.Stop()
		if n := services(0); n != 2 {
			t.Errorf("after Stop: got %d Services, want 2", n)
		}
		if log.String() != "" {
			t.Errorf("log: got\n%s\nwant none", log)
		}
	})
}

// While another process replaces this one, only that writes the file: this one does not at its end. It writes the
// file again if it answers alone again.
func TestSnapshotFileDuringHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newSnapshotFile(t)
		f.task = follow.Go(f.run)
		for _, end := range []func(){func() { time.Sleep(2 * snapshotInterval) }, f.Resume, f.Stop} {
			f.Yield()
			if err := os.WriteFile(f.path, []byte("of the other process"), 0o600); err != nil {
				t.Fatal(err)
			}
			end()
			if text, err := os.ReadFile(f.path); err != nil || string(text) != "of the other process" {
				t.Errorf("got %.100q and error %v, want the file of the other process", text, err)
			}
			time.Sleep(2 * snapshotInterval)
			if _, err := readFile(f.path); f.yielded != (err != nil) {
				t.Errorf("another process writes the file: %v: got error %v", f.yielded, err)
			}
		}
	})
}

// The file is written again after a change of a pod that is in no record, such as of a label, and not after the same
// pod again.
func TestSnapshotFileOfPods(t *testing.T) {
	f, _ := newSnapshotFile(t)
	pod := func(app string) *cluster.Pod {
		p := clustertest.Pod("unknown", "web-1", false, "10.0.0.1") // it counts in no serial number
		p.Labels = cluster.NewLabels(map[string]string{"app": app})
		return p
	}
	for _, c := range []struct {
		what   string
		change func()
		want   bool
	}{
		{"nothing", func() {}, false},
		{"a pod", func() { f.source.Put(cluster.Pods, pod("")) }, true},
		{"the same pod", func() { f.source.Put(cluster.Pods, pod("")) }, false},
		{"a label", func() { f.source.Put(cluster.Pods, pod("web")) }, true},
		{"another value", func() { f.source.Put(cluster.Pods, pod("db")) }, true},
		{"the same labels", func() { f.source.Put(cluster.Pods, pod("db")) }, false},
		{"the end of the pod", func() { f.source.Delete(cluster.Pods, pod("").Key()) }, true},
	} {
		if err := f.write(); err != nil {
			t.Fatal(err)
		}
		if c.change(); f.changed() != c.want {
			t.Errorf("after %s: got a file to write: %v, want %v", c.what, f.changed(), c.want)
		}
	}
}

// An error is logged with what to do, again after growing intervals, and the file is
// written once that is possible.
func TestSnapshotFileErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := newSnapshotFile(t)
		if err := os.MkdirAll(filepath.Join(f.path, "directory"), 0o700); err != nil {
			t.Fatal(err)
		}
		f.task = follow.Go(f.run)
		time.Sleep(8 * snapshotInterval)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 4 || strings.Count(got, `action="name a file, not a directory"`) != 4 || !strings.Contains(got, "duration=8m0s") {
			t.Errorf("log of a directory in place of the file: got\n%s\nwant 4 lines, after 0, 1, 3 and 7 minutes", got)
		}
		if err := os.RemoveAll(f.path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * snapshotInterval)
		synctest.Wait()
		if _, err := readFile(f.path); err != nil || !strings.Contains(log.String(), "Wrote the snapshot again") {
			t.Errorf("after the repair: got error %v and log\n%s\nwant a file, and a line \"Wrote the snapshot again\"", err, log)
		}
		f.Stop()
		if left, _ := filepath.Glob(f.path + ".*"); len(left) > 0 {
			t.Errorf("temporary files after Stop: got %q, want none", left)
		}
	})
	f, _ := newSnapshotFile(t)
	for path, want := range map[string]string{
		filepath.Join(filepath.Dir(f.path), "missing", "snapshot"): "create the directory",
		"/dev/null/snapshot": "create the directory",
	} {
		var log bytes.Buffer
		f.path, f.log = path, slog.New(slog.NewTextHandler(&log, nil))
		if f.Stop(); !strings.Contains(log.String(), want) {
			t.Errorf("%s: log\n%s\nwant %s", path, &log, want)
		}
	}
}

// readFile reads a snapshot of the options "options".
func readFile(path string) (*snapshot.Snapshot, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readSnapshot(file, "options")
}
