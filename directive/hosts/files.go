package hosts

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
)

// maxFile is the size of the largest file that is read: ten million lines.
const maxFile = 256 << 20

// A text holds the lines of one source.
type text struct {
	name  string // for log messages: the path of a file
	lines string
	size  int
	sum   uint64
	line  int // the number of lines before it in the file
}

// files is a file, or the files of a directory, as last read. One goroutine owns it.
type files struct {
	path  string
	limit int64
	// texts has the lines by path, sorted. A file that cannot be read any more keeps
	// its lines.
	texts   []text
	seed    maphash.Seed
	warned  map[string]string // the last warning about each file that cannot be read
	watcher *watch.Watcher    // nil if changes are not followed
	claim   *memory.Claim     // the memory of the lines; nil without a budget
	short   bool              // there was no memory for a file, or for its new content
}

// The memory of lines, in times of their size: as long as they are read and the index is made of
// them, and in the index.
const (
	readFactor = 4
	keptFactor = 3
)

// reserve reserves the memory of a file that is about to be read, beside that of the lines that are
// kept until then.
func (f *files) reserve(path string, read *int64) error {
	size := *read
	if info, err := os.Stat(path); err == nil && info.Size() <= f.limit {
		size += info.Size()
	}
	err := f.claim.Grow(f.kept() + readFactor*size)
	if err == nil { // else it is not read, and takes no room from those after it
		*read = size
	}
	return err
}

// kept returns the memory of the lines in the index.
func (f *files) kept() (bytes int64) {
	for _, t := range f.texts {
		bytes += keptFactor * int64(t.size)
	}
	return bytes
}

// settle makes the claim as large as the lines, which are in the index now.
func (f *files) settle() { f.claim.Set(f.kept()) }

// newFiles returns files that have not been read.
func newFiles(path string) *files {
	return &files{path: path, limit: maxFile, seed: maphash.MakeSeed(), warned: map[string]string{}}
}

// read reads all files. changed reports whether the lines differ from before. wrong
// has the errors by path.
func (f *files) read() (changed bool, wrong map[string]error) {
	const tries = 5 // while the files of a mounted ConfigMap are replaced
	for n := 1; ; n++ {
		texts, wrong := f.readAll()
		if n == tries || f.watcher == nil || !f.watcher.Changed() {
			return f.set(texts), wrong
		}
	}
}

// set sets the lines, and reports whether they differ from before.
func (f *files) set(texts []text) (changed bool) {
	same := slices.EqualFunc(texts, f.texts, func(a, b text) bool { return a.name == b.name && a.sum == b.sum })
	if !same {
		f.texts = texts
	}
	return !same
}

// readAll returns the lines of all files: the previous ones of files that cannot be
// read.
func (f *files) readAll() (texts []text, wrong map[string]error) {
	paths, err := f.list()
	if err != nil {
		return f.texts, map[string]error{f.path: err}
	}

	var read int64
	for _, path := range paths {
		old, lines := f.text(path), ""
		err := f.reserve(path, &read)
		if err == nil {
			lines, err = watch.Read(path, f.limit)
		}
		if err == nil && old.name != "" {
			err = checkLines(path, lines)
		}

		switch {
		case err == nil:
			texts = append(texts, text{name: path, lines: lines, size: len(lines), sum: maphash.String(f.seed, lines)})
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

var errNotRegular = errors.New("neither a file nor a directory")

// list returns the path, if it is a file, or the regular files in the directory
// except hidden ones, such as ..data of a mounted ConfigMap, and editors' copies.
func (f *files) list() (paths []string, err error) {
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, watch.Plain(err)
	case info.Mode().IsRegular():
		return []string{f.path}, nil
	case !info.IsDir():
		return nil, errNotRegular
	}

	entries, err := os.ReadDir(f.path) // sorted by name
	if err != nil {
		return nil, watch.Plain(err)
	}
	for _, e := range entries {
		path := filepath.Join(f.path, e.Name())
		if watch.Ignored(e.Name()) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// checkLines returns an error if a file has lines but none is valid: then it is not
// a hosts file. A file that has only comments is one.
func checkLines(path, lines string) error {
	const beginning = 64 << 10 // of most files this is enough to parse
	for _, part := range []string{lines[:min(beginning, len(lines))], lines} {
		valid, first := false, hostsfile.Error{}
		hostsfile.Parse(part, "", func(netip.Addr, []byte) { valid = true }, func(e hostsfile.Error) {
			if first.Line == 0 {
				first = e
			}
		})

		switch {
		case valid:
			return nil
		case len(part) == len(lines) && first.Line > 0:
			return fmt.Errorf("no valid line: %s:%d: %s", path, first.Line, first.Text)
		}
	}
	return nil
}

// text returns the lines of a file; without a name if it has not been read.
func (f *files) text(path string) text {
	i, ok := slices.BinarySearchFunc(f.texts, path, func(t text, path string) int {
		return strings.Compare(t.name, path)
	})
	if !ok {
		return text{}
	}
	return f.texts[i]
}
