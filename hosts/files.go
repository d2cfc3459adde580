package hosts

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxFile is the largest file that is read: ten million lines.
const maxFile = 256 << 20

// freshFor is how long after a file's time stamp another change may bear the
// same one: file systems count in steps of up to two seconds.
const freshFor = 3 * time.Second

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
	path  string // "" is none
	limit int64
	// lines that were read, by path, in order. Those of a file that cannot be
	// read now are those of before.
	texts []text
	seed  maphash.Seed
	stamp string    // of what was read
	at    time.Time // when it was
	news  time.Time // the latest time stamp among the files
}

// list gives the files: the one that path names, or all of the directory but
// those that are hidden (as a mounted ConfigMap's ..data) and the copies that
// editors leave.
func (f *files) list() (paths []string, infos []fs.FileInfo, err error) {
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, nil, plain(err)
	case info.Mode().IsRegular():
		return []string{f.path}, []fs.FileInfo{info}, nil
	case !info.IsDir():
		return nil, nil, errNotRegular
	}
	entries, err := os.ReadDir(f.path) // in the order of their names
	if err != nil {
		return nil, nil, plain(err)
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

// plain is an error without the path, which is said already.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// look tells one state of the files from another. emptied says that a file has
// lost all it had: whoever writes it may be about to.
func (f *files) look() (stamp string, news time.Time, emptied bool) {
	paths, infos, err := f.list()
	if err != nil {
		return err.Error(), news, false
	}
	var b strings.Builder
	for i, info := range infos {
		fmt.Fprintf(&b, "%s %d %d %d\n", paths[i], inode(info), info.Size(), info.ModTime().UnixNano())
		if info.ModTime().After(news) {
			news = info.ModTime()
		}
		emptied = emptied || info.Size() == 0 && f.text(paths[i]).size > 0
	}
	return b.String(), news, emptied
}

// changed says whether the files may hold something else than was read.
func (f *files) changed() bool {
	stamp, _, _ := f.look()
	return stamp != f.stamp || f.at.Sub(f.news) < freshFor
}

// read reads all files. changed says that the lines are others than before.
// What cannot be read is reported by path, and its lines stay.
func (f *files) read() (changed bool, wrong map[string]error) {
	stamp, news, _ := f.look()
	f.stamp, f.news, f.at = stamp, news, time.Now()
	paths, _, err := f.list()
	if err != nil {
		return false, map[string]error{f.path: err}
	}
	before := make(map[string]text, len(f.texts))
	for _, t := range f.texts {
		before[t.name] = t
	}
	var texts []text
	for _, path := range paths {
		old := before[path]
		lines, err := f.file(path)
		if err == nil && old.name != "" {
			err = worthless(path, lines)
		}
		switch {
		case err == nil:
			t := text{path, lines, len(lines), maphash.String(f.seed, lines)}
			changed = changed || old.name == "" || t.sum != old.sum
			texts = append(texts, t)
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
	changed = changed || len(texts) != len(f.texts)
	if changed {
		f.texts = texts
	}
	return changed, wrong
}

// worthless is an error if a file has lines and none is right: it is something
// else than a hosts file by mistake, and what it said before is better. A file
// of nothing but comments means what it says.
func worthless(path, lines string) error {
	const head = 64 << 10 // of most files this is enough to see
	for _, part := range []string{lines[:min(head, len(lines))], lines} {
		right, first := false, complaint{}
		parse(part, func(netip.Addr, []byte) { right = true }, func(c complaint) {
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
	for _, t := range f.texts {
		if t.name == path {
			return t
		}
	}
	return text{}
}

// file reads one file. It may have become something else since it was listed:
// it is opened without waiting for a writer, and looked at again.
func (f *files) file(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", plain(err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", plain(err)
	case !info.Mode().IsRegular():
		return "", errNotRegular
	case info.Size() > f.limit:
		return "", fmt.Errorf("larger than %d MB", f.limit>>20)
	}
	var b strings.Builder
	b.Grow(int(info.Size()) + 1)
	n, err := io.Copy(&b, io.LimitReader(file, f.limit+1))
	if err != nil {
		return "", plain(err)
	}
	if n > f.limit {
		return "", fmt.Errorf("larger than %d MB", f.limit>>20)
	}
	return b.String(), nil
}
