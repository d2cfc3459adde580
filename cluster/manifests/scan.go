package manifests

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seamark/seamark/sys/watch"
)

// The largest files that are read. YAML is held in memory; JSON is not.
const (
	maxYAML = 64 << 20
	maxJSON = 1 << 30
)

// freshFor is how long after a file's modification time another change may have the
// same modification time: some file systems count in steps of two seconds.
const freshFor = 3 * time.Second

// A manifest is the result of reading a file.
type manifest struct {
	info   fs.FileInfo
	read   time.Time
	sum    uint64 // of its bytes
	failed bool   // it could not be read; items are from an earlier version
	items  []*item
	whole  bool // items are from a version without errors
}

// stale reports whether the file may have changed since it was read.
func (m *manifest) stale(now fs.FileInfo) bool {
	return m == nil || m.failed || !os.SameFile(m.info, now) || m.info.Size() != now.Size() ||
		!m.info.ModTime().Equal(now.ModTime()) || m.read.Sub(now.ModTime()) < freshFor
}

// A tree is the result of one walk of the folder.
type tree struct {
	f        *folder
	ok       bool                   // the folder itself could be read
	files    map[string]fs.FileInfo // by path within the folder
	dirs     []string               // directories below the folder
	seen     map[string]bool        // directories by their real path: links may go in circles
	warnings []warning
}

// walk lists the manifests.
func (f *folder) walk() *tree {
	t := &tree{f: f, files: map[string]fs.FileInfo{}, seen: map[string]bool{}}
	info, err := os.Stat(f.dir)
	switch {
	case err != nil:
		t.warn(".", err)
	case !info.IsDir():
		t.warn(".", errors.New("not a directory"))
	default:
		t.ok = t.dir(".")
	}
	return t
}

func (t *tree) warn(file string, err error) {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err // the path is in the message
	}
	t.warnings = append(t.warnings, warning{"Reading a manifest failed", []any{"file", t.f.path(file), "error", err}})
}

// dir lists one directory. It returns false if that cannot be read; its known files
// are kept then.
func (t *tree) dir(rel string) bool {
	path := filepath.Join(t.f.dir, rel)
	real, err := filepath.EvalSymlinks(path)
	if t.seen[real] {
		return true
	}

	var entries []fs.DirEntry
	if err == nil {
		t.seen[real] = true
		if rel != "." {
			t.dirs = append(t.dirs, path)
		}
		entries, err = os.ReadDir(real)
	}

	if err != nil {
		t.warn(rel, err)
		t.keep(rel)
		return false
	}

	for _, e := range entries {
		if !watch.Ignored(e.Name()) {
			t.entry(filepath.Join(rel, e.Name()))
		}
	}
	return true
}

// entry adds the file, or the files of the directory, at rel. What cannot be examined or read keeps its known content.
func (t *tree) entry(rel string) {
	info, err := os.Stat(filepath.Join(t.f.dir, rel)) // follows links, which a mounted ConfigMap consists of
	switch {
	case err == nil && info.IsDir():
		t.dir(rel)
		return
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil: // perhaps of a directory
	case !isManifest(rel):
		return
	case !info.Mode().IsRegular():
		err = errNotRegular
	case info.Size() > t.f.limitOf(rel):
		err = t.f.tooLarge(rel)
	default:
		t.files[rel] = info
		return
	}
	t.warn(rel, err)
	t.keep(rel)
}

var errNotRegular = errors.New("skipped, not a regular file")

func (f *folder) tooLarge(path string) error {
	hint := ""
	if !isJSONFile(path) {
		hint = "; use the output of kubectl get -o json"
	}
	return fmt.Errorf("skipped, larger than %d MB%s", f.limitOf(path)>>20, hint)
}

// limitOf returns the largest size of the file at path.
func (f *folder) limitOf(path string) int64 {
	if isJSONFile(path) {
		return f.limit * (maxJSON / maxYAML)
	}
	return f.limit
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// keep adds the known files at and below rel as unchanged.
func (t *tree) keep(rel string) {
	for path, m := range t.f.files {
		if rel == "." || path == rel || strings.HasPrefix(path, rel+string(filepath.Separator)) {
			t.files[path] = m.info
		}
	}
}

// read reads the new and changed files of t and drops the deleted ones. It reports whether a
// file has changed.
func (f *folder) read(ctx context.Context, t *tree) (changed bool) {
	for path := range f.files {
		if t.files[path] == nil {
			delete(f.files, path)
			changed = true
		}
	}

	var paths []string
	for path, info := range t.files {
		if f.files[path].stale(info) {
			paths = append(paths, path)
		}
	}

	results := make([]readFile, len(paths))
	shapes := newShapes()
	inParallel(ctx, len(paths), func(i int) { results[i] = f.readFile(ctx, paths[i], t.files[paths[i]], shapes) })
	if ctx.Err() != nil {
		return false
	}

	for i, r := range results {
		if r.err != nil {
			t.warn(paths[i], r.err)
		}
		for _, w := range r.warnings {
			f.Log.Warn(w.msg, w.attrs...)
		}
		f.files[paths[i]] = r.manifest
		if r.changed {
			changed, f.decoded = true, f.decoded+len(r.items)
		}
	}
	return changed
}

// A readFile is the result of reading a file.
type readFile struct {
	*manifest
	changed  bool
	warnings []warning
	err      error
}

func (f *folder) newDecoder(file string, s *shapes) *decoder {
	return &decoder{opts: f.opts, scope: f.scope, file: f.path(file), shapes: s}
}

// readFile reads and decodes one file. If it has errors, its last version without
// errors is kept; if there was none, its valid documents are used.
func (f *folder) readFile(ctx context.Context, path string, info fs.FileInfo, shapes *shapes) readFile {
	m := manifest{info: info, read: time.Now()}
	old := f.files[path]
	if old != nil {
		m.items, m.whole, m.sum = old.items, old.whole, old.sum
	}

	d := f.newDecoder(path, shapes)
	sum, err := f.decode(ctx, path, old, d)
	if err != nil {
		m.failed = true
		return readFile{manifest: &m, err: err}
	}
	if old != nil && sum == old.sum {
		return readFile{manifest: &m}
	}

	m.sum = sum
	if len(d.errors) > 0 {
		if m.whole {
			kept := d.invalid("Invalid manifest, keeping its last valid version")
			return readFile{manifest: &m, warnings: []warning{kept}}
		}
		d.warnings = append([]warning{d.invalid("Invalid manifest, using its valid objects")}, d.warnings...)
	}

	m.items, m.whole = d.items, len(d.errors) == 0
	return readFile{manifest: &m, changed: true, warnings: d.warnings}
}

// decode decodes a file, unless its content equals old's, and returns a hash of its
// content. The file may have been replaced since its directory was read, so it is
// opened without waiting for a writer, and examined again.
func (f *folder) decode(ctx context.Context, path string, old *manifest, d *decoder) (sum uint64, err error) {
	file, err := os.OpenFile(filepath.Join(f.dir, path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errNotRegular
	}
	if info.Size() > f.limitOf(path) {
		return 0, f.tooLarge(path)
	}

	var hash maphash.Hash
	hash.SetSeed(f.seed)
	if old != nil {
		if _, err := io.Copy(&hash, file); err != nil {
			return 0, err
		}
		if hash.Sum64() == old.sum {
			return old.sum, nil
		}
		hash.Reset()
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
	}

	limited := io.LimitedReader{R: io.TeeReader(file, &hash), N: f.limitOf(path) + 1}
	if err := d.decode(ctx, &limited); err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, &limited); err != nil { // after a syntax error
		return 0, err
	}
	if limited.N == 0 {
		return 0, f.tooLarge(path)
	}
	return hash.Sum64(), nil
}
