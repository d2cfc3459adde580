package watch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// dataLink is the link through which the files of a mounted ConfigMap or Secret
// are reached. The kubelet replaces all of them at once by replacing the link.
const dataLink = "..data"

// ContentDir returns the directory to read the files of dir from: the target of
// dataLink if dir is a mounted ConfigMap or Secret. Its files are complete, whereas
// the links in dir are added and removed one by one after a change.
func ContentDir(dir string) string {
	if to, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink)); err == nil {
		return to
	}
	return dir
}

// A snapshot is the state of files that is visible without reading them.
type snapshot struct {
	files   map[string]fs.FileInfo // nil for a file that cannot be examined
	links   map[string]string      // destination of dataLink, by directory
	missing bool                   // a path does not exist; other errors do not count
	newest  time.Time              // the latest modification time
	taken   time.Time
}

// take examines files, and the files in directories.
func take(paths []string) snapshot {
	const tries = 5 // while the link is replaced again and again
	for n := 1; ; n++ {
		links := readLinks(paths)
		s := snapshot{files: map[string]fs.FileInfo{}, links: links, taken: time.Now()}
		for _, path := range paths {
			s.add(path)
		}
		if n == tries || maps.Equal(links, readLinks(paths)) {
			return s
		}
	}
}

// readLinks reads dataLink in the directories and beside the files.
func readLinks(paths []string) map[string]string {
	links := map[string]string{}
	for _, path := range paths {
		for _, dir := range []string{path, filepath.Dir(path)} {
			if _, ok := links[dir]; ok {
				continue
			}
			if to, err := os.Readlink(filepath.Join(dir, dataLink)); err == nil {
				links[dir] = to
			}
		}
	}
	return links
}

func (s *snapshot) add(path string) {
	info, err := os.Stat(path)
	if err != nil {
		s.missing = s.missing || errors.Is(err, fs.ErrNotExist)
		s.files[path] = nil
		return
	}
	s.note(path, info)
	if !info.IsDir() {
		return
	}
	entries, _ := os.ReadDir(path) // the reader reports the error
	for _, e := range entries {
		if !Ignored(e.Name()) {
			file := filepath.Join(path, e.Name())
			info, _ := os.Stat(file)
			s.note(file, info)
		}
	}
}

func (s *snapshot) note(path string, info fs.FileInfo) {
	s.files[path] = info
	if regular(info) && info.ModTime().After(s.newest) {
		s.newest = info.ModTime()
	}
}

// update makes s a snapshot of these paths. It adds the present state of new paths
// and keeps the recorded state of the others.
func (s *snapshot) update(paths []string) {
	now := take(paths)
	for path := range now.files {
		if was, ok := s.files[path]; ok {
			now.files[path] = was
		}
	}
	now.taken = s.taken
	*s = now
}

// equal reports whether s and t show no difference. A directory's own
// modification time does not count.
func (s snapshot) equal(t snapshot) bool {
	if s.missing != t.missing || !maps.Equal(s.links, t.links) {
		return false
	}
	return maps.EqualFunc(s.files, t.files, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return a.Mode() == b.Mode() && os.SameFile(a, b) &&
			(!regular(a) || a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()))
	})
}

// fresh reports whether a file may have changed since s without another
// modification time.
func (s snapshot) fresh() bool { return s.taken.Sub(s.newest).Abs() < timestampStep }

// emptied reports whether a file has lost its content since before.
func (s snapshot) emptied(before snapshot) bool {
	for path, info := range s.files {
		if was := before.files[path]; regular(info) && info.Size() == 0 && regular(was) && was.Size() > 0 {
			return true
		}
	}
	return false
}

// replaced reports whether the link of a mounted ConfigMap has changed since
// before.
func (s snapshot) replaced(before snapshot) bool {
	for dir, to := range s.links {
		if was, ok := before.links[dir]; ok && was != to {
			return true
		}
	}
	return false
}
