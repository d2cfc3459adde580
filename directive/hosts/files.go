package hosts

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/internal/watch"
)

const (
	// maxFile is the largest file that is read: ten million lines.
	maxFile = 256 << 20
	// freshFor is how long after a file's time stamp another change may bear the
	// same one: file systems count in steps of up to two seconds.
	freshFor = 3 * time.Second
	// tries at reading files that are exchanged meanwhile.
	tries = 5
)

// A text is one source of lines.
type text struct {
	name  string // what people know it by: a file's path
	lines string
	size  int
	sum   uint64
}

// files is a file, or the files of a directory, as they were last read. One
// goroutine owns it.
type files struct {
	path  string
	limit int64
	// lines that were read, by path, in order. Those of a file that cannot be
	// read now are those of before.
	texts []text
	seed  maphash.Seed
	was   state             // of what was read
	at    time.Time         // when it was
	told  map[string]string // what has been said of each path that cannot be read

	writing bool // they have changed, or may have, and are going to be read
	since   time.Time
	seen    state // when they were last looked at since then
	still   int   // how often they have been like that
}

// newFiles has read nothing yet.
func newFiles(path string) *files {
	return &files{path: path, limit: maxFile, seed: maphash.MakeSeed(), told: map[string]string{}}
}

// A state tells one state of files from another, as far as that can be told
// without reading them.
type state struct {
	stamp string
	// link is where ..data leads, through which the files of a mounted ConfigMap
	// are reached: all change at once, with that link. "" for other files.
	link    string
	news    time.Time // the latest time stamp among the files
	emptied bool      // one has lost all it had: whoever writes it may be about to
}

// list gives the files: the one that path names, or all of the directory but
// those that are hidden (as a mounted ConfigMap's ..data) and the copies that
// editors leave.
func (f *files) list() (paths []string, infos []fs.FileInfo, err error) {
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, nil, watch.Plain(err)
	case info.Mode().IsRegular():
		return []string{f.path}, []fs.FileInfo{info}, nil
	case !info.IsDir():
		return nil, nil, errNotRegular
	}
	entries, err := os.ReadDir(f.path) // in the order of their names
	if err != nil {
		return nil, nil, watch.Plain(err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") {
			continue
		}
		path := filepath.Join(f.path, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			paths, infos = append(paths, path), append(infos, info)
		}
	}
	return paths, infos, nil
}

var errNotRegular = errors.New("neither a file nor a directory")

// The link through which all files of a mounted ConfigMap are reached, and the
// beginning of theirs.
const (
	data     = "..data"
	fromData = data + string(filepath.Separator)
)

// link is where ..data leads, beside the file or in the directory.
func (f *files) link() string {
	to, err := os.Readlink(filepath.Join(f.path, data))
	if err != nil {
		to, _ = os.Readlink(filepath.Join(filepath.Dir(f.path), data))
	}
	return to
}

// look gives the state of the files.
func (f *files) look() (s state) {
	link := f.link()
	for range tries {
		s = f.stateBy(link)
		before := link
		if link = f.link(); link == before {
			break // else some of it may be of one ConfigMap, and some of the next
		}
	}
	return s
}

func (f *files) stateBy(link string) state {
	s := state{link: link}
	paths, infos, err := f.list()
	if err != nil {
		s.stamp = err.Error()
		return s
	}
	var b strings.Builder
	for i, info := range infos {
		fmt.Fprintf(&b, "%s %d %d %d\n", paths[i], inode(info), info.Size(), info.ModTime().UnixNano())
		if info.ModTime().After(s.news) {
			s.news = info.ModTime()
		}
		s.emptied = s.emptied || info.Size() == 0 && f.text(paths[i]).size > 0
		if to, err := os.Readlink(paths[i]); err != nil || !strings.HasPrefix(to, fromData) {
			s.link = "" // it may be written by itself
		}
	}
	s.stamp = b.String()
	return s
}

// changed says whether the files may hold something else than was read.
func (f *files) changed(now state) bool {
	if now.link != f.was.link || now.stamp != f.was.stamp {
		return true
	}
	return now.link == "" && f.at.Sub(f.was.news) < freshFor
}

// due says whether the files are to be read now: they have changed and nobody
// writes them any more. If they are not yet, writing is set, and it is to be asked
// again when a file's quiet time is over.
func (f *files) due(now time.Time) bool {
	s := f.look()
	switch {
	case !f.changed(s):
		f.writing = false
		return false
	case s.link != "" && s.link != f.was.link: // nobody ever writes what a ConfigMap's link leads to
		f.writing = false
		return true
	case !f.writing:
		f.writing, f.since, f.seen, f.still = true, now, s, 0
		return false
	}
	if f.still++; s.stamp != f.seen.stamp {
		f.seen, f.still = s, 0
	}
	rests := f.still > 0 && !s.emptied || f.still >= emptied
	f.writing = !rests && now.Sub(f.since) < settleMost
	return !f.writing
}

// read reads all files. changed says that the lines are others than before.
// What cannot be read is reported by path, and its lines stay.
func (f *files) read() (changed bool, wrong map[string]error) {
	for left := tries - 1; ; left-- {
		was := f.look()
		texts, wrong := f.readAll()
		// The files of a ConfigMap belong together: none may be of the one before,
		// or gone with it.
		if f.look().link != was.link && left > 0 {
			continue
		}
		f.was, f.at = was, time.Now()
		return f.take(texts), wrong
	}
}

// take takes in what was read. It says whether the lines are others than before.
func (f *files) take(texts []text) (changed bool) {
	changed = len(texts) != len(f.texts)
	for i := 0; i < len(texts) && !changed; i++ {
		changed = texts[i].name != f.texts[i].name || texts[i].sum != f.texts[i].sum
	}
	if changed {
		f.texts = texts
	}
	return changed
}

// readAll gives the lines of all files; those of before for what cannot be read.
func (f *files) readAll() (texts []text, wrong map[string]error) {
	paths, _, err := f.list()
	if err != nil {
		return f.texts, map[string]error{f.path: err}
	}
	for _, path := range paths {
		old := f.text(path)
		lines, err := watch.Read(path, f.limit)
		if err == nil && old.name != "" {
			err = worthless(path, lines)
		}
		switch {
		case err == nil:
			texts = append(texts, text{path, lines, len(lines), maphash.String(f.seed, lines)})
		case old.name != "":
			texts = append(texts, old)
			fallthrough
		default:
			if wrong == nil {
				wrong = map[string]error{}
			}
			wrong[path] = err
		}
	}
	return texts, wrong
}

// worthless is an error if a file has lines and none is right: it is something
// else than a hosts file by mistake, and what it said before is better. A file
// of nothing but comments means what it says.
func worthless(path, lines string) error {
	const head = 64 << 10 // of most files this is enough to see
	for _, part := range []string{lines[:min(head, len(lines))], lines} {
		right, first := false, complaint{}
		parse(part, "", func(netip.Addr, []byte) { right = true }, func(c complaint) {
			if first.line == 0 {
				first = c
			}
		})
		switch {
		case right:
			return nil
		case len(part) == len(lines) && first.line > 0:
			return fmt.Errorf("no line of it is right: %s:%d: %s", path, first.line, first.text)
		}
	}
	return nil
}

// text is what was read of a file; it has no name if nothing was.
func (f *files) text(path string) text {
	i, ok := slices.BinarySearchFunc(f.texts, path, func(t text, path string) int { return strings.Compare(t.name, path) })
	if !ok {
		return text{}
	}
	return f.texts[i]
}
