package watch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/follow"
)

// touch writes a file at a time of the test's clock.
func touch(t *testing.T, path, text string, at time.Time) {
	t.Helper()
	write(t, path, text)
	must(t, os.Chtimes(path, at, at))
}

// configMap mounts a ConfigMap's version in dir as the kubelet does, except for the
// links to its files.
func configMap(t *testing.T, dir, version, text string, at time.Time) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, version), 0o755))
	touch(t, filepath.Join(dir, version, "key"), text, at)
	link := filepath.Join(dir, "..tmp")
	must(t, os.Symlink(version, link))
	must(t, os.Rename(link, filepath.Join(dir, dataLink)))
}

// Without file events a change is found at the next check, and no sooner than the
// file has stopped changing.
func TestWaitPoll(t *testing.T) {
	const poll = 5 * time.Second
	type change func(t *testing.T, dir string)
	now := time.Now
	for name, c := range map[string]struct {
		change change
		want   time.Duration // after the change
	}{
		"written":               {func(t *testing.T, dir string) { touch(t, dir+"/file", "other", now()) }, quiet},
		"same size":             {func(t *testing.T, dir string) { touch(t, dir+"/file", "2", now()) }, quiet},
		"deleted":               {func(t *testing.T, dir string) { must(t, os.Remove(dir+"/file")) }, quiet},
		"emptied":               {func(t *testing.T, dir string) { touch(t, dir+"/file", "", now()) }, emptied},
		"created in directory":  {func(t *testing.T, dir string) { touch(t, dir+"/dir/new", "1", now()) }, quiet},
		"replaced by directory": {func(t *testing.T, dir string) { must(t, os.Remove(dir+"/file")); must(t, os.Mkdir(dir+"/file", 0o755)) }, quiet},
		"ConfigMap replaced":    {func(t *testing.T, dir string) { configMap(t, dir+"/mount", "..2", "2", now()) }, 0},
		"hidden file":           {func(t *testing.T, dir string) { touch(t, dir+"/dir/.swp", "1", now()) }, -1},
		"editor's copy":         {func(t *testing.T, dir string) { touch(t, dir+"/dir/file~", "1", now()) }, -1},
		"other file":            {func(t *testing.T, dir string) { touch(t, dir+"/other", "1", now()) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				long := time.Now().Add(-time.Hour)
				touch(t, dir+"/file", "1", long)
				must(t, os.Mkdir(dir+"/dir", 0o755))
				configMap(t, dir+"/mount", "..1", "1", long)
				must(t, os.Symlink("..data/key", dir+"/mount/key"))
				w := New([]string{dir + "/file", dir + "/dir", dir + "/mount"}, Options{Poll: poll, NoEvents: true})
				defer w.Close()
				begin := time.Now()
				time.AfterFunc(time.Second, func() { c.change(t, dir) })
				ctx, cancel := context.WithTimeout(t.Context(), 10*poll)
				defer cancel()
				ok := w.Wait(ctx)
				took := time.Since(begin)
				switch {
				case c.want < 0 && ok:
					t.Errorf("%s: Wait returned after %v, want no return", name, took)
				case c.want >= 0 && (!ok || took != poll+c.want):
					t.Errorf("%s: Wait returned %v after %v, want true after %v", name, ok, took, poll+c.want)
				}
			})
		})
	}
}

// A file that was written just before it was read is reported again, until a
// change would have another modification time.
func TestWaitFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		touch(t, file, "1", time.Now())
		w := New([]string{file}, Options{Poll: time.Second, NoEvents: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		for w.Wait(ctx) {
			n++
		}
		if n != 3 {
			t.Errorf("Wait returned %d times within %v of a write, want 3", n, timestampStep)
		}
	})
}

// A path that does not exist is checked every second.
func TestWaitMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "missing", "file")
		w := New([]string{file}, Options{Poll: time.Hour, NoEvents: true})
		time.AfterFunc(time.Minute+time.Millisecond, func() {
			must(t, os.Mkdir(filepath.Dir(file), 0o755))
			touch(t, file, "1", time.Now())
		})
		begin := time.Now()
		if ok := w.Wait(t.Context()); !ok || time.Since(begin) != time.Minute+time.Second+quiet {
			t.Errorf("Wait returned %v after %v, want true after %v", ok, time.Since(begin), time.Minute+time.Second+quiet)
		}
	})
}

// Wait returns when a writer has finished.
func TestWaitSettles(t *testing.T) {
	const step = 40 * time.Millisecond
	for name, c := range map[string]struct {
		texts []string // written one step apart; the last one repeats if it is "..."
		want  time.Duration
	}{
		"one write":          {[]string{"2"}, quiet},
		"slow writer":        {[]string{"2", "22", "222", "2222"}, 3*step + quiet},
		"emptied":            {[]string{""}, emptied},
		"emptied and filled": {[]string{"", "2"}, step + quiet},
		"never finished":     {[]string{"2", "..."}, longestChange},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "file")
				touch(t, file, "1", time.Now().Add(-time.Hour))
				w := New([]string{file}, Options{Poll: time.Hour, NoEvents: true})
				ctx, cancel := context.WithCancel(t.Context())
				var writing sync.WaitGroup
				begin := time.Now()
				writing.Go(func() {
					for i := 0; i < len(c.texts) && ctx.Err() == nil; i++ {
						if c.texts[i] == "..." {
							i = 0
						}
						touch(t, file, c.texts[i], time.Now())
						w.files.changed.Send() // as an event does
						time.Sleep(step)
					}
				})
				ok := w.Wait(ctx)
				took := time.Since(begin)
				cancel()
				writing.Wait()
				if !ok || took < c.want || took > c.want+quiet {
					t.Errorf("%s: Wait returned %v after %v, want true after %v to %v", name, ok, took, c.want, c.want+quiet)
				}
			})
		})
	}
}

// However a file is changed, the system's events make Wait return long before the
// next check.
func TestWaitEvents(t *testing.T) {
	here, there, renamed := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new")
	path, real, mounted := filepath.Join(here, "link"), filepath.Join(there, "file"), filepath.Join(t.TempDir(), "file")
	write(t, real, "1")
	must(t, os.Symlink(real, path))
	must(t, os.Link(real, mounted))
	w := New([]string{path}, Options{Poll: time.Hour})
	defer w.Close()
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"target written", func() { write(t, real, "2") }},
		{"target written by another name", func() { write(t, mounted, "3") }},
		{"target replaced", func() { write(t, renamed, "4"); must(t, os.Rename(renamed, real)) }},
		{"new target written", func() { write(t, real, "5") }},
		{"link replaced", func() { must(t, os.Symlink(mounted, renamed)); must(t, os.Rename(renamed, path)) }},
		{"target of the new link written", func() { write(t, mounted, "6") }},
		{"link removed", func() { must(t, os.Remove(path)) }},
		{"file created", func() { write(t, path, "7") }},
	} {
		step.do()
		if !w.Wait(t.Context()) {
			t.Fatalf("%s: Wait returned false, want true", step.name)
		}
	}
}

// Events of other files in the same directory cause no check.
func TestInterest(t *testing.T) {
	for name, want := range map[string]bool{
		"file": true, "dir": true, "missing": true, "dir/any": true, "..data": true, "other": false, "dir/sub/any": false,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.MkdirAll(filepath.Join(dir, "dir", "sub"), 0o755))
			write(t, filepath.Join(dir, "file"), "1")
			w := openFiles(t)
			other := &files{system: w.system, changed: follow.NewSignal()}
			defer w.system.leave(other)
			must(t, w.follow(filepath.Join(dir, "file"), filepath.Join(dir, "dir"), filepath.Join(dir, "missing")))
			must(t, other.follow(filepath.Join(dir, name), filepath.Join(dir, "last")))

			// The events are delivered in their order, so that one of the last file follows all others.
			if name == "dir" {
				must(t, os.Chmod(filepath.Join(dir, name), 0o700))
			} else {
				write(t, filepath.Join(dir, name), "2")
			}
			other.wantEvent(t, name)
			write(t, filepath.Join(dir, "last"), "1")
			other.wantEvent(t, "last")
			if got := len(w.changed) > 0; got != want {
				t.Errorf("change of %s: got an event %v, want %v", name, got, want)
			}
		})
	}
}

// Follow with a new path makes Wait return once more, since it may have changed
// before; with known paths it does not.
func TestFollowPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		for _, file := range []string{a, b} {
			touch(t, file, "1", time.Now().Add(-time.Hour))
		}
		w := New([]string{a}, Options{Poll: time.Second, NoEvents: true})
		wait := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return w.Wait(ctx)
		}
		w.Follow(a)
		if wait() {
			t.Error("Wait returned after Follow of a known path")
		}
		w.Follow(a, b)
		if !wait() {
			t.Error("Wait did not return after Follow of a new path")
		}
		if wait() {
			t.Error("Wait returned a second time after Follow of a new path")
		}
		touch(t, b, "2", time.Now())
		if !wait() {
			t.Error("Wait did not return after a write to the new path")
		}
		touch(t, a, "2", time.Now())
		w.Follow(b)
		w.Follow(b, a) // in between a is unknown
		if !wait() {
			t.Error("Wait did not return after Follow of a path that had been dropped")
		}
	})
}

// Changed reports changes since Wait returned, once.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		touch(t, file, "1", time.Now().Add(-time.Hour))
		w := New([]string{file}, Options{Poll: time.Second, NoEvents: true})
		if w.Changed() {
			t.Error("Changed = true for an unchanged file")
		}
		touch(t, file, "22", time.Now().Add(-time.Minute))
		if !w.Changed() {
			t.Error("Changed = false for a changed file")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if w.Changed() || w.Wait(ctx) {
			t.Error("the same change was reported twice")
		}
	})
}

// Run sends each change and returns when its context is done. A channel that
// nothing receives from does not block it.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		touch(t, file, "1", time.Now().Add(-time.Hour))
		w := New([]string{file}, Options{Poll: time.Second, NoEvents: true})
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx, changed) })
		for i := range 3 {
			touch(t, file, strings.Repeat("2", i+2), time.Now().Add(-time.Minute))
			time.Sleep(2 * time.Second)
		}
		if len(changed) != 1 {
			t.Errorf("%d signals in the channel, want 1", len(changed))
		}
		cancel()
		running.Wait()
	})
}

// A limit of the system is reported in the log once, however many Watchers it concerns, and they poll.
func TestUnavailable(t *testing.T) {
	limited := errors.New("too many open files")
	for name, open := range map[string]func() (kernel, error){
		"instances": func() (kernel, error) { return nil, limited },
		"watches":   func() (kernel, error) { return fullKernel{make(chan struct{})}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				events := newSystem(open)
				var watchers []*Watcher
				for range 3 {
					file := filepath.Join(t.TempDir(), "file")
					touch(t, file, "1", time.Now().Add(-time.Hour))
					options := Options{Poll: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))}
					watchers = append(watchers, newWatcher([]string{file}, options, events))
				}
				for _, w := range watchers {
					touch(t, w.paths[0], "22", time.Now().Add(-time.Hour))
					if !w.Wait(t.Context()) {
						t.Error("Wait returned false after a change, want true")
					}
				}
				const want = `level=WARN msg="File watch unavailable, polling" interval=1m0s error=`
				if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
					t.Errorf("log of 3 Watchers: %q, want one warning with the interval and the error", got)
				}

				// After the last of them the next failure is another one.
				for _, w := range watchers {
					w.Close()
				}
				w := newWatcher(watchers[0].paths, watchers[0].options, events)
				defer w.Close()
				if got := log.String(); strings.Count(got, "\n") != 2 {
					t.Errorf("log after a new Watcher: %q, want two warnings", got)
				}
			})
		})
	}
}

// A fullKernel has no watch left.
type fullKernel struct{ closed chan struct{} }

func (k fullKernel) add(string) (d descriptor, err error) { return d, errLimit }
func (k fullKernel) remove(descriptor)                    {}
func (k fullKernel) close()                               { close(k.closed) }
func (k fullKernel) read() ([]event, error)               { <-k.closed; return nil, os.ErrClosed }
