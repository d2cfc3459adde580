package hosts

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/internal/watch"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// follow serves a path, in zone test, until the test ends. prepare may change
// the table before it is followed.
func follow(t *testing.T, path string, log *journal, prepare func(*table)) *Handler {
	t.Helper()
	return followAll(t, []string{path}, log, prepare)
}

func followAll(t *testing.T, paths []string, log *journal, prepare func(*table)) *Handler {
	t.Helper()
	from := source{paths: paths, reload: time.Hour, reverse: true, zones: []wire.Name{"\x04test\x00"}}
	h := &Handler{ttl: 60, zones: []zone{{"\x04test\x00", 1}}}
	h.table = newTable(from, slog.New(slog.NewTextHandler(log, nil)), newCount(new(metrics.Registry)))
	h.table.quiet = time.Millisecond
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
	return h
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
	eventually(t, name+": "+want, func() bool { got = a.digest(t, name, "A"); return got == want })
}

// A thousand files one after the other, under constant questions: each of them
// is answered from, and nobody ever misses the name that they all have.
func TestThousandReloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "10.0.0.1 always.test\n")
	h := follow(t, file, new(journal), nil)
	stop := make(chan struct{})
	var askers sync.WaitGroup
	for range 2 {
		a := newAsker(t, h)
		p, want := packet(t, "always.test.", "A"), ""
		askers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Microsecond):
				}
				reply := string(a.send(p, dns.UDP)[2:])
				if want == "" {
					want = reply
				}
				if reply != want {
					t.Errorf("got %x, want %x", reply, want)
					return
				}
			}
		})
	}
	a := newAsker(t, h)
	spare := file + ".new"
	for i := range 1000 {
		if err := os.WriteFile(spare, fmt.Appendf(nil, "10.0.0.1 always.test\n10.0.0.2 n%d.test\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(spare, file); err != nil {
			t.Fatal(err)
		}
		a.becomes(t, fmt.Sprintf("n%d.test.", i), "NOERROR aa 10.0.0.2")
	}
	if got := a.digest(t, "n0.test.", "A"); got != "NXDOMAIN aa" {
		t.Errorf("the first name, in the end: %s", got)
	}
	close(stop)
	askers.Wait()
}

// A mounted ConfigMap is links to links to a directory with a hidden name, and
// changes when the link in the middle does.
func TestConfigMapMount(t *testing.T) {
	for _, whole := range []bool{false, true} {
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
		path, log := filepath.Join(dir, "hosts"), new(journal)
		if whole {
			path = dir
		}
		a := newAsker(t, follow(t, path, log, nil))
		a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
		for i := 2; i < 20; i++ {
			swap(fmt.Sprint(i), fmt.Sprintf("10.0.0.%d a.test\n", i))
			a.becomes(t, "a.test.", fmt.Sprintf("NOERROR aa 10.0.0.%d", i))
		}
		if n := log.count("WARN"); n != 0 {
			t.Errorf("%d warnings\n%s", n, log)
		}
	}
}

// The last good version stays when a file cannot be read, and each change is
// said once.
func TestUnreadable(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "hosts"), new(journal)
	write(t, file, "10.0.0.1 a.test\n")
	a := newAsker(t, follow(t, file, log, func(t *table) { t.reload, t.files[0].limit = 20*time.Millisecond, 100 }))
	stays := func(words string) {
		t.Helper()
		eventually(t, words, func() bool { return log.count(words) > 0 })
		time.Sleep(100 * time.Millisecond) // more polls, which have nothing new to say
		if n := log.count(words); n != 1 {
			t.Errorf("%q is said %d times\n%s", words, n, log)
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
	stays(file + ": no such file or directory; what it said before stays")
	must(os.Symlink(file, file))
	stays(file + ": too many levels of symbolic links; what it said before stays")
	must(os.Remove(file))
	must(syscall.Mkfifo(file, 0o644))
	stays(file + ": neither a file nor a directory; what it said before stays")
	must(os.Remove(file))
	write(t, file, "10.0.0.9 a.test\n"+strings.Repeat("#", 100))
	stays(file + ": larger than 0 MB; what it said before stays")
	write(t, file, "10.0.0.2 a.test\n")
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
	if n := log.count("can be read now"); n != 1 {
		t.Errorf("that it can be read is said %d times\n%s", n, log)
	}
	// A directory in its place is one of hosts.
	must(os.Remove(file))
	must(os.Mkdir(file, 0o755))
	write(t, filepath.Join(file, "x"), "10.0.0.3 a.test\n")
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.3")
}

// Of a directory, a file that cannot be read keeps its lines, and the others
// change.
func TestUnreadableInDirectory(t *testing.T) {
	dir, log := t.TempDir(), new(journal)
	write(t, filepath.Join(dir, "a"), "10.0.0.1 a.test\n")
	write(t, filepath.Join(dir, "b"), "10.0.0.1 b.test\n")
	a := newAsker(t, follow(t, dir, log, func(t *table) { t.files[0].limit = 100 }))
	write(t, filepath.Join(dir, "a"), "10.0.0.2 a.test\n"+strings.Repeat("#", 100))
	write(t, filepath.Join(dir, "b"), "10.0.0.2 b.test\n")
	a.becomes(t, "b.test.", "NOERROR aa 10.0.0.2")
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	a.becomes(t, "a.test.", "NXDOMAIN aa")
}

// What is not there yet is read when it comes, its folder too.
func TestMissing(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "later"), new(journal)
	file := filepath.Join(dir, "hosts")
	a := newAsker(t, follow(t, file, log, func(t *table) { t.reload = 20 * time.Millisecond }))
	if got := a.digest(t, "a.test.", "A"); got != "NXDOMAIN aa" {
		t.Error(got)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, "10.0.0.1 a.test\n")
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
	if n := log.count("hosts: no such file or directory\""); n != 1 {
		t.Errorf("that it is missing is said %d times\n%s", n, log)
	}
}

// A file that could not be read and has gone cannot be read now.
func TestUnreadableAndGone(t *testing.T) {
	dir, log := t.TempDir(), new(journal)
	write(t, filepath.Join(dir, "a"), "10.0.0.1 a.test\n")
	write(t, filepath.Join(dir, "b"), strings.Repeat("#", 200))
	a := newAsker(t, follow(t, dir, log, func(t *table) { t.reload, t.files[0].limit = 20*time.Millisecond, 100 }))
	eventually(t, "said", func() bool { return log.count("larger than") > 0 })
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a"), "10.0.0.2 a.test\n")
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
	if n := log.count("can be read now"); n != 0 {
		t.Errorf("that it can be read is said %d times\n%s", n, log)
	}
}

// A file may be written by another name, in another folder, as one that is
// mounted into a container: events tell of it, and without them the poll does.
func TestOtherName(t *testing.T) {
	t.Run("events", func(t *testing.T) { otherName(t, nil) })
	t.Run("poll", func(t *testing.T) {
		otherName(t, func(t *table) {
			t.watch.Close()
			t.watch, t.reload = watch.Files{}, 20*time.Millisecond
		})
	})
}

func otherName(t *testing.T, prepare func(*table)) {
	file, other := filepath.Join(t.TempDir(), "hosts"), filepath.Join(t.TempDir(), "other")
	write(t, other, "10.0.0.1 a.test\n")
	if err := os.Link(other, file); err != nil {
		t.Fatal(err)
	}
	a := newAsker(t, follow(t, file, new(journal), prepare))
	for i := range 5 {
		if err := os.WriteFile(other, fmt.Appendf(nil, "10.0.0.%d a.test\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
		a.becomes(t, "a.test.", fmt.Sprintf("NOERROR aa 10.0.0.%d", i))
	}
}

// A change in place, of the same size and at the same time as the one before.
func TestSameStamp(t *testing.T) {
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
	a := newAsker(t, follow(t, file, new(journal), nil))
	if err := os.WriteFile(file, []byte("10.0.0.2 a.test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	touch()
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
}

// One warning for a file and its change, with the place of the first bad line.
func TestWarnings(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "hosts"), new(journal)
	write(t, file, "10.0.0.1 a.test\nbad b.test\n")
	a := newAsker(t, follow(t, file, log, nil))
	if log.count(file+`:2: \"bad\" is not an IP address: left out"`) != 1 {
		t.Error(log)
	}
	write(t, file, "10.0.0.1 a.test a..b *b\n10.0.0.1\n10.0.0.2 b.test\nbad c.test\n")
	a.becomes(t, "b.test.", "NOERROR aa 10.0.0.2")
	if log.count(file+`:1: \"a..b\" is not a name: a label is empty: left out (and so are 3 more)`) != 1 || log.count("WARN") != 2 {
		t.Error(log)
	}
	write(t, file, "10.0.0.3 b.test\n")
	a.becomes(t, "b.test.", "NOERROR aa 10.0.0.3")
	if log.count("WARN") != 2 {
		t.Error(log)
	}
}

// Whoever waits for many lines hears how many there are so far.
func TestProgress(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "hosts"), new(journal)
	write(t, file, "")
	a := newAsker(t, follow(t, file, log, func(t *table) { t.slow = 0 }))
	write(t, file, millionLines(200_000))
	a.becomes(t, "host-199999.zone-999.test.", "NOERROR aa 10.3.13.63")
	if log.count("65536 names so far") != 1 || log.count("196608 names so far") != 1 || log.count("names so far") != 3 {
		t.Error(log)
	}
}

// Files are read when they have been left alone for a while; emptied ones later,
// and ones that never rest in the end.
func TestSettle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "10.0.0.1 a.test\n")
	for _, c := range []struct {
		what        string
		writes      []time.Duration // after which the file grows; the first empties it
		forever     bool
		least, most time.Duration
	}{
		{"nothing", nil, false, quiet, 2 * quiet},
		{"a slow writer", []time.Duration{40 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond}, false, 160 * time.Millisecond, 160*time.Millisecond + 2*quiet},
		{"emptied", []time.Duration{10 * time.Millisecond}, false, emptied * quiet, (emptied + 3) * quiet},
		{"emptied and filled", []time.Duration{10 * time.Millisecond, 400 * time.Millisecond}, false, 410 * time.Millisecond, 410*time.Millisecond + 2*quiet},
		{"never at rest", []time.Duration{10 * time.Millisecond}, true, settleMost, settleMost + quiet},
	} {
		synctest.Test(t, func(t *testing.T) {
			write(t, file, "10.0.0.1 a.test\n")
			table := newTable(source{paths: []string{file}, zones: []wire.Name{wire.Root}}, quietLog(), newCount(new(metrics.Registry)))
			table.quiet = quiet
			begin, stop := time.Now(), make(chan struct{})
			var writer sync.WaitGroup
			grow := func(flags int, text string) {
				f, err := os.OpenFile(file, os.O_WRONLY|flags, 0o644)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				if _, err := f.WriteString(text); err != nil {
					t.Error(err)
				}
			}
			writer.Go(func() {
				for i, after := range c.writes {
					time.Sleep(after)
					if i == 0 {
						grow(os.O_TRUNC, "")
					} else {
						grow(os.O_APPEND, "#\n")
					}
				}
				for c.forever {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
						grow(os.O_APPEND, "#\n")
					}
				}
			})
			for table.look() {
				time.Sleep(quiet)
			}
			if took := time.Since(begin); took < c.least || took > c.most {
				t.Errorf("%s: %v", c.what, took)
			}
			close(stop)
			writer.Wait()
		})
	}
}

// With reload 0 nothing is followed, and nothing is left running.
func TestReloadZero(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "10.0.0.1 a.test\n")
	table := newTable(source{paths: []string{file}, zones: []wire.Name{wire.Root}}, quietLog(), newCount(new(metrics.Registry))).start()
	defer table.Stop()
	if table.watch.Active() {
		t.Error("it is watched")
	}
	table.tasks.Wait() // or the test never ends
}

// A file that has become something else altogether does not take away what was
// good; one that says nothing does.
func TestWorthless(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "hosts"), new(journal)
	write(t, file, "10.0.0.1 a.test\n")
	a := newAsker(t, follow(t, file, log, nil))
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
	write(t, file, "# a list\napiVersion: v1\nkind: ConfigMap\n"+strings.Repeat("x", 70_000))
	eventually(t, "said", func() bool { return log.count("no line of it is right: "+file+":2: ") > 0 })
	if n := log.count("what it said before stays"); n != 1 {
		t.Errorf("that it stays is said %d times\n%s", n, log)
	}
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.1")
	write(t, file, strings.Repeat("# a comment\n", 10_000)+"nonsense\n10.0.0.2 a.test\n")
	a.becomes(t, "a.test.", "NOERROR aa 10.0.0.2")
	if n := log.count("can be read now"); n != 1 {
		t.Errorf("that it can be read is said %d times\n%s", n, log)
	}
	write(t, file, "# nobody\n")
	a.becomes(t, "a.test.", "NXDOMAIN aa")
}
