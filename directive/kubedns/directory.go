package kubedns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/watch"
)

// A Directory is a mounted ConfigMap, or a directory of the same form: each file is
// a key, its content the value. Hidden files and subdirectories are ignored. All
// files must be UTF-8, as in kube-dns. An empty or missing directory is the default
// Config.
type Directory struct {
	Path    string
	Period  time.Duration // poll interval, for file systems without events; 0: 10 s
	Log     *slog.Logger
	Metrics *metrics.Registry
	// Check, unless nil, returns an error if the server cannot use a Config. Run
	// then refuses the Config as if it were invalid.
	Check func(kubednsconfig.Config) error

	begun    func(*state) // as in Object
	noEvents bool         // poll only; for tests
}

const (
	defaultPeriod = 10 * time.Second
	// maxAttempts limits how often files are read that change meanwhile.
	maxAttempts = 5
	// retryDelay is the delay between two attempts.
	retryDelay = 50 * time.Millisecond
	// maxFile is four times the size limit of a ConfigMap.
	maxFile = 4 << 20
)

// Run calls apply with the first state at once, and then with each valid state that
// differs from the last one, until ctx ends. If the first state is invalid it
// applies the default. Calls do not overlap; Run notices a change during a call
// after it.
func (d Directory) Run(ctx context.Context, apply func(kubednsconfig.Config)) {
	s, unregister := newState(d.Path, d.Log, d.Metrics, apply)
	s.check = d.Check
	defer unregister()
	if d.begun != nil {
		d.begun(s)
	}

	o := watch.Options{Poll: cmp.Or(d.Period, defaultPeriod), Log: s.log, NoEvents: d.noEvents}
	w := watch.New([]string{d.Path}, o)
	defer w.Close()
	for ok := true; ok; ok = w.Wait(ctx) {
		d.load(ctx, w, s)
	}
}

// load reads the files and updates s. It reads again if files changed or were missing
// meanwhile: the links of a mounted ConfigMap are replaced in several steps.
func (d Directory) load(ctx context.Context, w *watch.Watcher, s *state) {
	for attempt := 1; ; attempt++ {
		w.Follow(Files(d.Path)...)
		data, err := ReadDirectory(d.Path)
		consistent := !w.Changed() && !errors.Is(err, fs.ErrNotExist)
		if consistent || attempt == maxAttempts {
			s.update(data, err)
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
