package kubedns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/internal/watch"
	"github.com/seamark/seamark/metrics"
)

// A Directory is one that a ConfigMap is mounted in, or that is like one: each
// file is a key, and what is in it the value. Files whose names begin with a dot
// and directories are not looked at. All must be UTF-8, as kube-dns wants it. A
// directory that is empty, or not there, is the default Config.
type Directory struct {
	Path string
	// Period is how often it is looked at besides, for file systems that do not
	// tell of changes; zero is 10 s.
	Period  time.Duration
	Log     *slog.Logger
	Metrics *metrics.Registry
	// Check, if there is one, says what is wrong with what a Config leads to: it is
	// refused then like one that is not good by itself.
	Check func(kubednsconfig.Config) error

	deaf bool // for tests: as such a file system
}

const (
	period = 10 * time.Second
	// quiet is how long files must be left alone before they are read: a ConfigMap's
	// links are replaced in several steps, and so is a text that is written.
	quiet = 50 * time.Millisecond
	// emptied: whoever empties a file may be about to fill it again.
	emptied = 10
	// settleMost is how long files may go on changing before they are read as they
	// are.
	settleMost = 5 * time.Second
	// tries at reading files that change or vanish meanwhile.
	tries = 5
	// maxFile is four times what a ConfigMap can hold.
	maxFile = 4 << 20
)

// Run calls back with the first state at once, and then with each good one that is
// another, until ctx ends. If the first is not good it calls back with the default.
// The calls come one after the other; what changes while one of them takes its time
// is seen after it.
func (d Directory) Run(ctx context.Context, apply func(kubednsconfig.Config)) {
	s, drop := newState("directory", d.Path, d.Log, d.Metrics, apply)
	s.check = d.Check
	defer drop()
	f := follower{Directory: d, state: s}
	if !d.deaf {
		if err := f.files.Open(); err != nil {
			d.Log.Warn(fmt.Sprintf("%s: no events, looking every %v: %v", s.source, cmp.Or(d.Period, period), err))
		}
	}
	defer f.files.Close()
	ticker := time.NewTicker(cmp.Or(d.Period, period))
	defer ticker.Stop()
	for f.look(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-f.files.Events():
		case <-f.files.Errors(): // too many events: some were lost
		case <-ticker.C:
		}
		if !f.settle(ctx) {
			return
		}
	}
}

// A follower looks at a directory again and again. One goroutine owns it.
type follower struct {
	Directory
	state *state
	files watch.Files
}

// look reads the files, again if they change or vanish meanwhile. It is false if
// ctx has ended.
func (f *follower) look(ctx context.Context) bool {
	for left := tries - 1; ; left-- {
		before := f.stamp()
		// What is followed before it is read cannot change unseen in between.
		f.files.Follow(before.places()...)
		data, err := f.read()
		steady := before.equal(f.stamp()) && !errors.Is(err, fs.ErrNotExist)
		if steady || left == 0 {
			f.state.take(data, err)
			return true
		}
		if !f.settle(ctx) {
			return false
		}
	}
}

// read gives the files' texts by their names.
func (f *follower) read() (map[string]string, error) {
	entries, err := os.ReadDir(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, watch.Plain(err)
	}
	data := map[string]string{}
	var wrong []string
	var gone error
	for _, e := range entries {
		if hidden(e.Name()) {
			continue
		}
		text, err := watch.Read(filepath.Join(f.Path, e.Name()), maxFile)
		switch {
		case errors.Is(err, watch.ErrDirectory):
			continue
		case errors.Is(err, fs.ErrNotExist):
			gone = fs.ErrNotExist
			wrong = append(wrong, e.Name()+": a link to nothing")
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", e.Name(), err))
		case !utf8.ValidString(text):
			wrong = append(wrong, fmt.Sprintf("%s: want UTF-8, got %s", e.Name(), kubednsconfig.Quote(text)))
		}
		data[e.Name()] = text
	}
	if len(wrong) > 0 {
		return data, &unreadable{strings.Join(wrong, "; "), gone}
	}
	return data, nil
}

// An unreadable says what is wrong with the files of a directory, and whether any
// was gone when it was to be read.
type unreadable struct {
	text string
	gone error
}

func (u *unreadable) Error() string { return u.text }
func (u *unreadable) Unwrap() error { return u.gone }

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// A stamp tells one state of a directory from another, as far as that can be told
// without reading the files.
type stamp struct {
	path  string
	link  string                 // where ..data leads, through which a ConfigMap's files are reached; "" if there is none
	files map[string]fs.FileInfo // nil for what cannot be looked at
}

func (f *follower) stamp() stamp {
	s := stamp{path: f.Path, files: map[string]fs.FileInfo{}}
	s.link, _ = os.Readlink(filepath.Join(f.Path, "..data"))
	entries, _ := os.ReadDir(f.Path) // why it cannot be read is said by who reads it
	for _, e := range entries {
		if !hidden(e.Name()) {
			s.files[e.Name()], _ = os.Stat(filepath.Join(f.Path, e.Name()))
		}
	}
	return s
}

// places are where the directory and its files really are, and the folder that the
// directory, which may be a link too, is in. A folder that is watched by two names
// and replaced by one with the same inode number breaks fsnotify, and a mounted
// ConfigMap is links: so no place has two.
func (s stamp) places() (places []string) {
	add := func(path string) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			places = append(places, real)
		}
	}
	add(filepath.Dir(s.path))
	add(s.path)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		add(filepath.Join(s.path, name))
	}
	return places
}

func (s stamp) equal(other stamp) bool {
	return s.link == other.link && maps.EqualFunc(s.files, other.files, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}

// empty says whether a file has nothing in it, and may be about to be filled; those
// of a ConfigMap are whole.
func (s stamp) empty() bool {
	if s.link != "" {
		return false
	}
	for _, info := range s.files {
		if info != nil && info.Mode().IsRegular() && info.Size() == 0 {
			return true
		}
	}
	return false
}

// settle waits until nobody writes the files any more. It is false if ctx has
// ended.
func (f *follower) settle(ctx context.Context) bool {
	was := f.stamp()
	for begin, still := time.Now(), 0; time.Since(begin) < settleMost; {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(quiet):
		}
		f.files.Drain()
		now := f.stamp()
		if still++; !now.equal(was) {
			was, still = now, 0
		}
		if still > 0 && !now.empty() || still >= emptied {
			break
		}
	}
	return true
}
