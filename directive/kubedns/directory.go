package kubedns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/watch"
)

const (
	defaultPeriod = 10 * time.Second
	// maxAttempts limits how often files are read that change meanwhile.
	maxAttempts = 5
	// retryDelay is the delay between two attempts.
	retryDelay = 50 * time.Millisecond
	// maxFile is four times the size limit of a ConfigMap.
	maxFile = 4 << 20
)

// runDirectory updates to with the files of a directory.
func (s Source) runDirectory(ctx context.Context, to *state) {
	o := watch.Options{Poll: cmp.Or(s.Period, defaultPeriod), Log: to.log, NoEvents: s.noEvents}
	w := watch.New([]string{s.Dir}, o)
	defer w.Close()
	for ok := true; ok; ok = w.Wait(ctx) {
		s.load(ctx, w, to)
	}
}

// load reads the files and updates to. It reads again if files changed or were missing
// meanwhile: the links of a mounted ConfigMap are replaced in several steps.
func (s Source) load(ctx context.Context, w *watch.Watcher, to *state) {
	for attempt := 1; ; attempt++ {
		w.Follow(Files(s.Dir)...)
		data, err := ReadDirectory(s.Dir)
		consistent := !w.Changed() && !errors.Is(err, fs.ErrNotExist)
		if consistent || attempt == maxAttempts {
			to.update(data, err)
			return
		}
		if !clock.Sleep(ctx, retryDelay) {
			return
		}
	}
}

// Files returns the directory of a mounted ConfigMap and its files, which may be links to
// elsewhere.
func Files(dir string) []string {
	paths := []string{dir}
	entries, _ := os.ReadDir(dir) // ReadDirectory reports the error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// ReadDirectory returns the data of a ConfigMap that is mounted at path. The error
// names every file that cannot be read.
func ReadDirectory(path string) (map[string]string, error) {
	path = watch.ContentDir(path)
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, watch.Plain(err)
	}

	data := map[string]string{}
	var problems []string
	var missing error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}

		text, err := watch.Read(filepath.Join(path, e.Name()), maxFile)
		switch {
		case errors.Is(err, watch.ErrDirectory):
			continue
		case errors.Is(err, fs.ErrNotExist):
			missing = fs.ErrNotExist
			problems = append(problems, e.Name()+": broken symbolic link")
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s: %v", e.Name(), err))
		case !utf8.ValidString(text):
			problems = append(problems, fmt.Sprintf("%s: want UTF-8, got %s", e.Name(), kubednsconfig.Quote(text)))
		}
		data[e.Name()] = text
	}

	if len(problems) > 0 {
		return data, &readError{strings.Join(problems, "; "), missing}
	}
	return data, nil
}

// A readError lists the problems with the files of a directory. It wraps
// fs.ErrNotExist if a file was missing.
type readError struct {
	text    string
	missing error
}

func (e *readError) Error() string { return e.text }
func (e *readError) Unwrap() error { return e.missing }
