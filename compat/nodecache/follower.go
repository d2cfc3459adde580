package nodecache

import (
	"cmp"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/watch"
)

const (
	// pollInterval is node-cache's, for file systems without change notification.
	pollInterval = 10 * time.Second
	// maxTemplate is more than a ConfigMap can hold.
	maxTemplate = 4 << 20
)

// A Follower reads the template and kube-dns's ConfigMap, generates the Corefile, and
// does so again when they change.
type Follower struct {
	flags  Flags
	getenv func(string) string
	check  func([]corefile.Server) error // reports why blocks cannot be served
	log    *slog.Logger
	errors *metrics.Counter // of the ConfigMap

	served  string // the file that is served as it is; "": the generated Corefile
	watcher *watch.Watcher
	changed follow.Signal
	task    *follow.Task
	reading *follow.Value[corefile.Reading]

	last     string      // the Corefile that the process before has served; "" for none
	accepted atomic.Bool // the server serves

	// The fields below belong to the task.
	config  config // the last valid one
	loaded  bool   // there has been a valid one
	written string // to flags.Corefile
	// template is that of the first reading, if the ConfigMap was invalid then.
	template string
}

// NewFollower starts a Follower; the caller must call Stop. The flags have passed Check.
// errors counts invalid ConfigMaps. last is the Corefile that the process before has served, which this one
// continues; "" for none.
func NewFollower(
	f Flags, getenv func(string) string, check func([]corefile.Server) error, log *slog.Logger, errors *metrics.Counter,
	last string,
) (*Follower, error) {
	served, err := f.source()
	if err != nil {
		return nil, err
	}
	w := &Follower{
		flags: f, getenv: getenv, check: check, log: log, errors: errors,
		last: last, served: served, changed: follow.NewSignal(), reading: follow.NewValue(corefile.Reading{}),
	}
	w.watcher = watch.New(w.paths(), watch.Options{Poll: pollInterval, Log: log})
	w.load()
	w.task = follow.Go(func(ctx context.Context) {
		for w.watcher.Wait(ctx) {
			w.load()
			w.changed.Send()
		}
	})
	return w, nil
}

// source returns the file that is served as it is: the one of -conf if it is not the
// generated one, or if there is no template. It returns "" for the generated Corefile.
func (f Flags) source() (string, error) {
	if f.Conf != "" && filepath.Clean(f.Conf) != filepath.Clean(f.Corefile) {
		return f.Conf, nil
	}
	if _, err := os.Stat(f.Base); !errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if _, err := os.Stat(f.Corefile); err != nil {
		return "", fmt.Errorf("reading the template %s: file does not exist, and %s is no Corefile to serve instead: "+
			"mount the ConfigMap node-local-dns with its key Corefile as that file, or set -basecorefile or -conf",
			f.Base, f.Corefile)
	}
	return f.Corefile, nil
}

// Stop stops following and waits for it to end.
func (w *Follower) Stop() {
	w.task.Stop()
	w.watcher.Close()
}

// Changed returns a channel that receives a value when Read may return another Corefile.
func (w *Follower) Changed() <-chan struct{} { return w.changed }

// Accept tells that the server serves a Corefile.
func (w *Follower) Accept() {
	if !w.accepted.Swap(true) && w.last != "" {
		w.changed.Send() // it may be the last one
	}
}

// Read returns the Corefile. Until Accept it is the one that the process before has served, if the present one
// differs, which that process may have rejected: the server reads the present one next, and says what is wrong.
func (w *Follower) Read() corefile.Reading {
	present := w.read()
	if w.last == "" || w.accepted.Load() || string(present.Text) == w.last {
		return present
	}
	last := corefile.ReadText(cmp.Or(w.served, w.flags.Base), []byte(w.last))
	if last.Err != nil || w.check(last.Servers) != nil { // an imported file has changed
		return present
	}
	return last
}

// read returns the Corefile as it is now.
func (w *Follower) read() corefile.Reading {
	if w.served != "" {
		return corefile.Read(w.served)
	}
	return w.reading.Get()
}

// paths returns the watched files.
func (w *Follower) paths() []string {
	if w.served != "" {
		return []string{w.served}
	}
	return append(kubedns.Files(w.flags.ConfigDir), w.flags.Base)
}

// load generates the Corefile from the files. An invalid ConfigMap leaves the previous
// one in use; the server refuses an invalid template when it reads it.
func (w *Follower) load() {
	if w.served != "" {
		return
	}
	w.watcher.Follow(w.paths()...)

	data, err := kubedns.ReadDirectory(w.flags.ConfigDir)
	var c config
	if err == nil {
		c, err = parseConfig(data)
	}
	template, templateErr := watch.Read(w.flags.Base, maxTemplate)
	if templateErr != nil {
		templateErr = fmt.Errorf("reading the template %s: %w", w.flags.Base, templateErr)
	}
	if err == nil && templateErr == nil {
		err = w.conflict(template, c)
	}
	switch {
	case err == nil:
		w.config, w.loaded = c, true
	case !w.loaded && w.last != "" && (w.template == "" || w.template == template):
		// The Corefile of the process before has the stub domains and upstreams that were valid.
		w.template = template
		w.refuse(err, "Invalid ConfigMap of kube-dns, the Corefile of the process before stays in use")
		w.reading.Set(corefile.ReadText(w.flags.Base, []byte(w.last)))
		return
	case !w.loaded:
		w.refuse(err, "Invalid ConfigMap of kube-dns, serving without it")
	default:
		w.refuse(err, "Invalid ConfigMap of kube-dns, the previous one stays in use")
	}

	text := ""
	if templateErr == nil {
		text, templateErr = w.flags.generate(w.flags.Base, template, w.config, w.getenv)
	}
	if templateErr != nil {
		// The server logs an error once for each sum.
		w.reading.Set(corefile.Reading{Err: templateErr, Sum: sha512.Sum512([]byte(templateErr.Error()))})
		return
	}
	w.reading.Set(corefile.ReadText(w.flags.Base, []byte(text)))
	w.write(text)
}

// refuse counts and logs an invalid ConfigMap.
func (w *Follower) refuse(err error, message string) {
	w.errors.Add(1)
	w.log.Error(message, "configmap", w.flags.ConfigDir, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// conflict returns an error if the server can serve the template without the stub domains
// and upstreams of the ConfigMap but not with them.
func (w *Follower) conflict(template string, c config) error {
	try := func(c config) error {
		text, err := w.flags.generate(w.flags.Base, template, c, w.getenv)
		if err != nil {
			return err
		}
		return flags.Check(w.flags.Base, text, w.check)
	}
	if len(c.stubs)+len(c.upstreams) == 0 || try(config{}) != nil {
		return nil
	}
	return try(c)
}

// write replaces the file of -corefile.
func (w *Follower) write(text string) {
	if text == w.written {
		return
	}
	// After a restart the file is as it has to be. To write it would wait for the disk.
	if before, err := watch.Read(w.flags.Corefile, maxTemplate); err == nil && before == text {
		w.written = text
		return
	}

	err := watch.Replace(w.flags.Corefile, 0o644, func(file *os.File) error {
		_, err := file.WriteString(text)
		return err
	})
	if err != nil && w.written == "" {
		w.log.Info("Did not write the Corefile, the server does not need the file",
			"file", w.flags.Corefile, "error", watch.Plain(err))
	}
	w.written = text
}

// ReadConfig returns the Corefile for the files as they are, and writes nothing.
func (f Flags) ReadConfig(getenv func(string) string) (string, error) {
	served, err := f.source()
	if err != nil {
		return "", err
	}
	if served != "" {
		text, err := corefile.Text(served)
		return string(text), err
	}

	template, err := watch.Read(f.Base, maxTemplate)
	if err != nil {
		return "", fmt.Errorf("reading the template %s: %w", f.Base, err)
	}
	data, err := kubedns.ReadDirectory(f.ConfigDir)
	if err != nil {
		return "", fmt.Errorf("reading the ConfigMap in %s: %w", f.ConfigDir, err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return "", err
	}
	return f.generate(f.Base, template, c, getenv)
}
