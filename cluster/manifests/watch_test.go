package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A mounted ConfigMap is a link to a link to a directory with a hidden name,
// and is replaced by renaming the link in the middle.
func TestManifestsConfigMapMount(t *testing.T) {
	b := newBench(t, map[string]string{"..1/web.yaml": service("web", "10.0.0.1")})
	must(t, os.Symlink("..1", b.path("..data")))
	must(t, os.Symlink("..data/web.yaml", b.path("web.yaml")))
	b.serve(func(f *folder) { f.poll = time.Hour })
	b.gets("services shop/web 10.0.0.1")

	b.write("..2/web.yaml", service("web", "10.0.0.2"))
	must(t, os.Symlink("..2", b.path("..tmp")))
	must(t, os.Rename(b.path("..tmp"), b.path("..data")))
	b.remove("..1")
	b.gets("services shop/web 10.0.0.2")
	if slices.Contains(b.sink.called(), "delete services shop/web") {
		t.Errorf("the Service was deleted during the change: %q, want no deletion", b.sink.called())
	}
	b.says(0, "level=WARN")
}

// Links to directories are followed, also in circles. The folder itself may be a
// link, and may be changed to another folder.
func TestManifestsLinks(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("a", "10.0.0.1")})
	elsewhere := newBench(t, map[string]string{"b.yaml": service("b", "10.0.0.2")})
	must(t, os.Symlink(elsewhere.dir, b.path("there")))
	must(t, os.Symlink(b.dir, b.path("circle")))
	must(t, os.Symlink("nowhere.yaml", b.path("dangling.yaml")))
	link := filepath.Join(t.TempDir(), "current")
	must(t, os.Symlink(b.dir, link))
	one, two := b.dir, elsewhere.dir
	b.dir = link
	b.serve(func(f *folder) { f.poll = time.Hour })
	b.gets("services shop/a 10.0.0.1", "services shop/b 10.0.0.2")

	elsewhere.write("b.yaml", service("b", "10.0.0.3"))
	b.gets("services shop/a 10.0.0.1", "services shop/b 10.0.0.3")

	must(t, os.Symlink(two, link+".new"))
	must(t, os.Rename(link+".new", link))
	b.gets("services shop/b 10.0.0.3")
	b.write("c.yaml", service("c", "10.0.0.4"))
	b.gets("services shop/b 10.0.0.3", "services shop/c 10.0.0.4")
	must(t, os.WriteFile(filepath.Join(one, "late.yaml"), []byte(service("late", "10.0.0.5")), 0o644))
	b.write("c.yaml", service("c", "10.0.0.6"))
	b.gets("services shop/b 10.0.0.3", "services shop/c 10.0.0.6")
	b.says(0, "level=WARN")
}

// A missing folder is logged once and watched for. If it is deleted later, its last
// state is kept.
func TestManifestsMissing(t *testing.T) {
	b := newBench(t, nil)
	b.remove(".")
	f := b.open()
	for range 3 {
		f.check(t.Context())
	}
	b.says(1, "level=WARN", b.dir, "no such file")
	b.says(1, "level=WARN")
	if calls := b.sink.called(); len(calls) > 0 {
		t.Errorf("without a folder: got calls %q, want none", calls)
	}
	if age, ok := b.src.Age(); ok {
		t.Errorf("age of the data without a folder: got %v, want none", age)
	}
	b.serve(func(f *folder) { f.poll = 20 * time.Millisecond })
	b.within("a warning", func() bool { return len(b.log.with("level=WARN", "no such file")) == 2 })
	b.write("a.yaml", service("a", "10.0.0.1"))
	b.gets("services shop/a 10.0.0.1")

	must(t, os.Rename(b.dir, b.dir+".away"))
	b.within("another warning", func() bool { return len(b.log.with("level=WARN", "no such file")) == 3 })
	b.has("services shop/a 10.0.0.1")
	b.write("b.yaml", service("b", "10.0.0.2"))
	b.gets("services shop/b 10.0.0.2")

	b = newBench(t, nil)
	b.remove(".")
	must(t, os.WriteFile(b.dir, nil, 0o644))
	b.read()
	b.says(1, "level=WARN", "not a directory")
}

// Without file events, polling finds every change, even one with the same size
// and modification time.
func TestManifestsPolled(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("a", "10.0.0.1")})
	at := time.Now()
	must(t, os.Chtimes(b.path("a.yaml"), at, at))
	f := b.read()
	b.has("services shop/a 10.0.0.1")
	b.write("a.yaml", service("a", "10.0.0.2"))
	must(t, os.Chtimes(b.path("a.yaml"), at, at))
	f.check(t.Context())
	b.has("services shop/a 10.0.0.2")

	target := filepath.Join(t.TempDir(), "x.yaml") // changes in this folder cause no events in the other
	must(t, os.WriteFile(target, []byte(service("x", "10.0.0.3")), 0o644))
	b = newBench(t, nil)
	must(t, os.Symlink(target, b.path("x.yaml")))
	b.serve(func(f *folder) { f.poll = 20 * time.Millisecond })
	b.gets("services shop/x 10.0.0.3")
	must(t, os.WriteFile(target, []byte(service("x", "10.0.0.4")), 0o644))
	b.gets("services shop/x 10.0.0.4")
}

// The last valid version of a file is kept, and each invalid version is logged
// once.
func TestManifestsLastGood(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": join(service("a", "10.0.0.1"), service("b", "10.0.0.2"))})
	f := b.read()
	b.write("a.yaml", join(service("a", "10.0.0.9"), "spec: [\n"))
	for range 3 {
		f.check(t.Context())
	}
	b.has("services shop/a 10.0.0.1", "services shop/b 10.0.0.2")
	b.says(1, "level=WARN")
	b.says(1, "level=WARN", "a.yaml line=", "keeping its last valid version")
	b.write("a.yaml", join(service("a", "10.0.0.9"), "spec: {\n"))
	f.check(t.Context())
	b.says(2, "level=WARN")
	b.write("other.yaml", service("c", "10.0.0.3"))
	f.check(t.Context())
	b.has("services shop/a 10.0.0.1", "services shop/b 10.0.0.2", "services shop/c 10.0.0.3")
	b.write("a.yaml", service("a", "10.0.0.9"))
	f.check(t.Context())
	b.has("services shop/a 10.0.0.9", "services shop/c 10.0.0.3")
	b.says(2, "level=WARN")
	b.remove("a.yaml")
	f.check(t.Context())
	b.has("services shop/c 10.0.0.3")
}

// A file that an editor empties before it writes it keeps its objects.
func TestManifestsHalfWritten(t *testing.T) { synctest.Test(t, manifestsHalfWritten) }

func manifestsHalfWritten(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("a", "10.0.0.1")})
	b.serve(func(f *folder) { f.poll, f.noEvents = time.Millisecond, true })
	b.gets("services shop/a 10.0.0.1")
	for i := range 5 {
		b.write("a.yaml", "")
		time.Sleep(100 * time.Millisecond) // by the test's clock
		b.write("a.yaml", service("a", fmt.Sprint("10.0.0.", i+2)))
	}
	b.gets("services shop/a 10.0.0.6")
	if slices.Contains(b.sink.called(), "delete services shop/a") {
		t.Errorf("the Service was deleted during the changes: %q, want no deletion", b.sink.called())
	}
}

func TestManifestsManyChanges(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("a", "10.0.0.1")})
	f := b.read()
	var docs []string
	for i := range 21 {
		docs = append(docs, service(fmt.Sprint("s", i), "10.0.1.1"))
	}
	b.write("many.yaml", join(docs...))
	f.check(t.Context())
	b.says(1, "level=INFO", "added=21 changed=0 deleted=0")
	b.says(0, "change=added")
	if n := b.src.Events[cluster.Services].Value(); n != 21 {
		t.Errorf("%d events counted, want 21", n)
	}
	b.write("twice.yaml", join(docs...))
	f.check(t.Context())
	b.says(20, "level=WARN", "Ignored duplicate object")
	b.says(1, "level=WARN", "Suppressed further warnings", "count=1")
}
