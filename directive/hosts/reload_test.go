package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

// pollInterval is the interval at which the tables of these tests check their files.
const pollInterval = 20 * time.Millisecond

// followFiles serves paths in zone test until the test ends. Changes are found by checks
// alone, which do not depend on the real clock in a synctest bubble. prepare may
// change the table before it starts.
func followFiles(t *testing.T, log *chaintest.Log, prepare func(*table), paths ...string) *asker {
	t.Helper()
	from := source{paths: paths, reverse: true, zones: []wire.Name{"\x04test\x00"}}
	h := &Handler{ttl: 60}
	h.zones.Set("\x04test\x00", struct{}{})
	h.table = newTable(from, log.Logger(), new(metrics.Registry))
	for _, f := range h.table.files {
		f.watcher = watch.New([]string{f.path}, watch.Options{Poll: pollInterval, NoEvents: true})
	}
	if prepare != nil {
		prepare(h.table)
	}
	h.table.start()
	t.Cleanup(func() {
		h.table.Stop()
		if t.Failed() {
			t.Log(log)
		}
	})
	return newAsker(t, h)
}

// becomes waits for an answer.
func (a *asker) becomes(t *testing.T, name, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s", name, got)
		}
	}()
	chaintest.Eventually(t, name+": "+want, func() bool { got = a.digest(t, name, "A"); return got == want })
}

// A file changes a thousand times. Each version is served, and during the changes
// every query for a name in all versions is answered.
func TestThousandReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "hosts")
		write(t, file, "10.0.0.1 always.test\n")
		a := followFiles(t, new(chaintest.Log), nil, file)
		stop := make(chan struct{})
		var askers sync.WaitGroup
		for range 2 {
			a := newAsker(t, a.handler)
			p, want := packet(t, "always.test.", "A"), ""
			askers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					reply := string(a.Serve(p, dns.UDP)[2:])
					if want == "" {
						want = reply
					}
					if reply != want {
						t.Errorf("always.test. A: got %x, want %x", reply, want)
						return
					}
				}
			})
		}
		spare := file + ".new"
		for i := range race.Fewer(1000) {
			if err := os.WriteFile(spare, fmt.Appendf(nil, "10.0.0.1 always.test\n10.0.0.2 n%d.test\n", i), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(spare, file); err != nil {
				t.Fatal(err)
			}
			a.becomes(t, fmt.Sprintf("n%d.test.", i), "NOERROR aa 10.0.0.2")
		}
		if got := a.digest(t, "n0.test.", "A"); got != "NXDOMAIN aa" {
			t.Errorf("n0.test. A after all reloads: got %s, want NXDOMAIN aa", got)
		}
		close(stop)
		askers.Wait()
	})
}

// A mounted ConfigMap is links to a link to a hidden directory. It changes when that
// link is replaced.
func TestConfigMapMount(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			swap := func(version, text string) {
				t.Helper()
				folder := filepath.Join(dir, "..v"+version)
				if err := os.Mkdir(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, "hosts"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				old, _ := os.Readlink(filepath.Join(dir, "..data"))
				if err := os.Symlink("..v"+version, filepath.Join(dir, "..tmp")); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
					t.Fatal(err)
				}
				if old != "" {
					if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
						t.Fatal(err)
					}
				}
			}
			swap("1", "10.0.0.1 a.test\n")
			if err := os.Symlink("..data/hosts", filepath.Join(dir, "hosts")); err != nil {
				t.Fatal(err)
			}
			path, log := filepath.Join(dir, "hosts"), new(chaintest.Log)
			if whole {
				path = dir
			}
			a := followFiles(t, log, nil, path)
			a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
			for i := 2; i < 20; i++ {
				swap(fmt.Sprint(i), fmt.Sprintf("10.0.0.%d a.test\n", i))
				a.becomes(t, "a.test.", fmt.Sprintf("NOERROR aa 10.0.0.%d", i))
			}
			if n := log.Count("WARN"); n != 0 {
				t.Errorf("%d warnings, want 0\n%s", n, log)
			}
		})
	}
}

// A file that cannot be read keeps its lines. Each reason is logged once.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, log := filepath.Join(t.TempDir(), "hosts"), new(chaintest.Log)
		write(t, file, "10.0.0.1 a.test\n")
		a := followFiles(t, log, func(t *table) { t.files[0].limit = 100 }, file)
		stays := func(reason string) {
			t.Helper()
			words := fmt.Sprintf("msg=%q file=%s error=%q", keptMessage, file, reason)
			chaintest.Eventually(t, words, func() bool { return log.Count(words) > 0 })
			time.Sleep(10 * pollInterval)
			if n := log.Count(words); n != 1 {
				t.Errorf("%q is logged %d times, want 1\n%s", words, n, log)
			}
			a.check(t, "a.test.", "A", false, "10.0.0.1")
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.Remove(file))
		stays("no such file or directory")
		must(os.Symlink(file, file))
		stays("too many levels of symbolic links")
		must(os.Remove(file))
		if mkfifo != nil {
			must(mkfifo(file, 0o644))
			stays("neither a file nor a directory")
			must(os.Remove(file))
		}
		write(t, file, "10.0.0.9 a.test\n"+strings.Repeat("#", 100))
		stays("larger than 0 MB")
		write(t, file, "10.0.0.2 a.test\n")
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
		if n := log.Count("can be read again"); n != 1 {
			t.Errorf("%d messages that the file can be read again, want 1\n%s", n, log)
		}
		// A directory replaces the file.
		must(os.Remove(file))
		must(os.Mkdir(file, 0o755))
		write(t, filepath.Join(file, "x"), "10.0.0.3 a.test\n")
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.3")
	})
}

// A file in a directory that cannot be read keeps its lines; the others change.
func TestUnreadableInDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := t.TempDir(), new(chaintest.Log)
		write(t, filepath.Join(dir, "a"), "10.0.0.1 a.test\n")
		write(t, filepath.Join(dir, "b"), "10.0.0.1 b.test\n")
		a := followFiles(t, log, func(t *table) { t.files[0].limit = 100 }, dir)
		write(t, filepath.Join(dir, "a"), "10.0.0.2 a.test\n"+strings.Repeat("#", 100))
		write(t, filepath.Join(dir, "b"), "10.0.0.2 b.test\n")
		a.becomes(t, "b.test.", "NOERROR aa 10.0.0.2")
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
		if err := os.Remove(filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
		a.becomes(t, "a.test.", "NXDOMAIN aa")
	})
}

// A missing file is read when it is created, and so is its directory.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := filepath.Join(t.TempDir(), "later"), new(chaintest.Log)
		file := filepath.Join(dir, "hosts")
		a := followFiles(t, log, nil, file)
		if got := a.digest(t, "a.test.", "A"); got != "NXDOMAIN aa" {
			t.Errorf("a.test. A without a file: got %s, want NXDOMAIN aa", got)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, "10.0.0.1 a.test\n")
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
		if n := log.Count(fmt.Sprintf("msg=%q file=%s error=\"no such file or directory\"", failedMessage, file)); n != 1 {
			t.Errorf("%d messages that the file is missing, want 1\n%s", n, log)
		}
	})
}

// Removing a file that could not be read does not log that it can be read again.
func TestUnreadableRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := t.TempDir(), new(chaintest.Log)
		write(t, filepath.Join(dir, "a"), "10.0.0.1 a.test\n")
		write(t, filepath.Join(dir, "b"), strings.Repeat("#", 200))
		a := followFiles(t, log, func(t *table) { t.files[0].limit = 100 }, dir)
		write(t, filepath.Join(dir, "b"), strings.Repeat("#", 201))
		chaintest.Eventually(t, "a warning", func() bool { return log.Count("larger than") > 0 })
		if err := os.Remove(filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "a"), "10.0.0.2 a.test\n")
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
		if n := log.Count("can be read again"); n != 0 {
			t.Errorf("got %d messages that the file can be read again, want 0\n%s", n, log)
		}
	})
}

// A file may be written under another name in another directory, such as a file that
// is mounted into a container. The change is found with file events and without.
func TestOtherName(t *testing.T) {
	t.Run("events", func(t *testing.T) {
		otherName(t, func(table *table) {
			f := table.files[0]
			f.watcher = watch.New([]string{f.path}, watch.Options{Poll: time.Hour})
		})
	})
	t.Run("poll", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { otherName(t, nil) })
	})
}

func otherName(t *testing.T, prepare func(*table)) {
	file, other := filepath.Join(t.TempDir(), "hosts"), filepath.Join(t.TempDir(), "other")
	write(t, other, "10.0.0.1 a.test\n")
	if err := os.Link(other, file); err != nil {
		t.Fatal(err)
	}
	a := followFiles(t, new(chaintest.Log), prepare, file)
	for i := range 5 {
		if err := os.WriteFile(other, fmt.Appendf(nil, "10.0.0.%d a.test\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
		a.becomes(t, "a.test.", fmt.Sprintf("NOERROR aa 10.0.0.%d", i))
	}
}

// A file is changed in place, with the same size and modification time as before.
func TestSameModificationTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "hosts")
		write(t, file, "10.0.0.1 a.test\n")
		at := time.Now()
		touch := func() {
			t.Helper()
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
		touch()
		a := followFiles(t, new(chaintest.Log), nil, file)
		if err := os.WriteFile(file, []byte("10.0.0.2 a.test\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		touch()
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
	})
}

// There is one warning for each change of a file, with the position of the first
// invalid line.
func TestInvalidLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, log := filepath.Join(t.TempDir(), "hosts"), new(chaintest.Log)
		write(t, file, "10.0.0.1 a.test\nbad b.test\n")
		a := followFiles(t, log, nil, file)
		if log.Count(file+` line=2 error="\"bad\" is not an IP address" count=1`) != 1 {
			t.Errorf("got no warning about line 2, want one\n%s", log)
		}
		write(t, file, "10.0.0.1 a.test a..b *b\n10.0.0.1\n10.0.0.2 b.test\nbad c.test\n")
		a.becomes(t, "b.test.", "NOERROR aa 10.0.0.2")
		if log.Count(file+` line=1 error="\"a..b\" is not a name: a label is empty" count=4`) != 1 || log.Count("WARN") != 2 {
			t.Errorf("want two warnings, the second about line 1; logged\n%s", log)
		}
		write(t, file, "10.0.0.3 b.test\n")
		a.becomes(t, "b.test.", "NOERROR aa 10.0.0.3")
		if log.Count("WARN") != 2 {
			t.Errorf("want two warnings, logged\n%s", log)
		}
	})
}

// The progress of loading many lines is logged.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, log := filepath.Join(t.TempDir(), "hosts"), new(chaintest.Log)
		write(t, file, "")
		a := followFiles(t, log, func(t *table) { t.progress = -1 }, file)
		write(t, file, distinctLines(200_000))
		a.becomes(t, "host-199999.zone-999.test.", "NOERROR aa 10.3.13.63")
		if log.Count("count=65536") != 1 || log.Count("count=196608") != 1 || log.Count("Loading lines") != 3 {
			t.Errorf("want three messages, the last with count=196608; logged\n%s", log)
		}
	})
}

// With reload 0, files are not followed, and no goroutine is started.
func TestReloadZero(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "10.0.0.1 a.test\n")
	table := newTable(source{paths: []string{file}, zones: []wire.Name{wire.Root}}, chaintest.QuietLog(), new(metrics.Registry)).start()
	defer table.Stop()
	if table.files[0].watcher != nil {
		t.Error("reload 0: got a watcher, want none")
	}
	table.task.Wait() // does not return if a goroutine is running
}

// A file keeps its lines if it changes to one without valid lines, unless that has
// only comments.
func TestNoValidLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, log := filepath.Join(t.TempDir(), "hosts"), new(chaintest.Log)
		write(t, file, "10.0.0.1 a.test\n")
		a := followFiles(t, log, nil, file)
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
		write(t, file, "# a list\napiVersion: v1\nkind: ConfigMap\n"+strings.Repeat("x", 70_000))
		chaintest.Eventually(t, "a warning", func() bool { return log.Count("no valid line: "+file+":2: ") > 0 })
		if n := log.Count(keptMessage); n != 1 {
			t.Errorf("%d messages that the file keeps its lines, want 1\n%s", n, log)
		}
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
		write(t, file, strings.Repeat("# a comment\n", 10_000)+"nonsense\n10.0.0.2 a.test\n")
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
		if n := log.Count("can be read again"); n != 1 {
			t.Errorf("got %d messages that the file can be read again, want 1\n%s", n, log)
		}
		write(t, file, "# no lines\n")
		a.becomes(t, "a.test.", "NXDOMAIN aa")
	})
}

// Names of a file that are not ASCII, which no client asks for, are served with one warning.
func TestNamesNotASCII(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, log := filepath.Join(t.TempDir(), "hosts"), new(chaintest.Log)
		write(t, file, "10.0.0.1 ok.test München.test\n10.0.0.2 straße.test\n")
		a := followFiles(t, log, nil, file)
		a.becomes(t, "ok.test.", "NOERROR aa 10.0.0.1")
		want := `"hosts: Found names that are not ASCII" file=` + file +
			` error="münchen.test. is not ASCII: clients ask for xn--mnchen-3ya.test." count=2`
		if got := log.Take("WARN"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
