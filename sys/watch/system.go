package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// A system has the file events of all Watchers of a process. They share one instance of the kernel's
// events, since a user may have only 128, and root has the same ones as the kubelet. It is open
// while there are Watchers.
type system struct {
	open func() (kernel, error)

	mu      sync.Mutex
	shared  *instance       // nil while there are no Watchers, or it could not be opened
	users   map[*files]bool // that have followed
	failing map[*files]bool // some of whose paths cannot be watched; true: by errLimit
}

// process is the system of this process.
var process = newSystem(openKernel)

func newSystem(open func() (kernel, error)) *system {
	return &system{open: open, users: map[*files]bool{}, failing: map[*files]bool{}}
}

// A kernel is an instance of the kernel's events. Its watches are of inodes: the same file has the same
// descriptor by all of its paths.
type kernel interface {
	add(path string) (descriptor, error)
	remove(descriptor)
	// read blocks until there are events. It returns an error after close.
	read() ([]event, error)
	close()
}

// An event is a change of a watched file or directory, or of the entry of a directory with a name.
type event struct {
	of   descriptor
	name string
	gone bool // the watch has ended
	lost bool // there were too many events: any may be missing
}

// An instance is an open kernel and the goroutine that reads its events.
type instance struct {
	kernel
	watches map[descriptor]map[*files]bool
	ended   chan struct{}
}

// errLimit is wrapped by the errors that all Watchers of the user have.
var errLimit = errors.New("limit of the user's file watches")

// follow makes w receive the events of the wanted paths, and no others. It returns an error of w once,
// until it succeeds, and errLimit once for all Watchers.
func (s *system) follow(w *files, wanted map[string]*interest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.watch(w, wanted)
	if err == nil {
		delete(s.failing, w)
		return nil
	}

	limited := errors.Is(err, errLimit)
	_, reported := s.failing[w]
	for _, other := range s.failing {
		reported = reported || limited && other
	}
	s.failing[w] = limited
	if reported {
		return nil
	}
	return err
}

func (s *system) watch(w *files, wanted map[string]*interest) (failed error) {
	if s.shared == nil {
		k, err := s.open()
		if err != nil {
			return fmt.Errorf("%w: %w", errLimit, err)
		}
		s.shared = &instance{kernel: k, watches: map[descriptor]map[*files]bool{}, ended: make(chan struct{})}
		go s.run(s.shared)
	}
	s.users[w] = true

	old := w.watches
	w.watches = map[descriptor]*interest{}
	for path, i := range wanted {
		of, err := s.shared.add(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has been removed meanwhile
		case err != nil:
			failed = fmt.Errorf("watching %s: %w", path, err)
		case w.watches[of] != nil: // a file with two paths
			w.watches[of].merge(i)
		default:
			w.watches[of] = i
			s.shared.use(of, w)
		}
	}
	for of := range old {
		if w.watches[of] == nil {
			s.shared.release(of, w)
		}
	}
	return failed
}

// leave ends the events of w, and returns when the instance is closed if it was the last one.
func (s *system) leave(w *files) {
	s.mu.Lock()
	delete(s.failing, w)
	delete(s.users, w)
	i := s.shared
	if i == nil {
		s.mu.Unlock()
		return
	}

	if last := len(s.users) == 0; !last {
		for of := range w.watches {
			i.release(of, w)
		}
		s.mu.Unlock()
		return
	}
	s.shared = nil
	i.close()
	s.mu.Unlock()
	<-i.ended
}

func (i *instance) use(of descriptor, w *files) {
	if i.watches[of] == nil {
		i.watches[of] = map[*files]bool{}
	}
	i.watches[of][w] = true
}

func (i *instance) release(of descriptor, w *files) {
	delete(i.watches[of], w)
	if len(i.watches[of]) == 0 {
		delete(i.watches, of)
		i.remove(of)
	}
}

// run signals the instance's events until it is closed.
func (s *system) run(i *instance) {
	defer close(i.ended)
	for {
		events, err := i.read()
		s.mu.Lock()
		for _, e := range events {
			s.deliver(i, e)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *system) deliver(i *instance, e event) {
	if s.shared != i {
		return
	}
	if e.lost {
		for w := range s.users {
			w.changed.Send()
		}
		return
	}
	for w := range i.watches[e.of] {
		if in := w.watches[e.of]; e.gone || in.all || in.names[e.name] {
			w.changed.Send()
		}
	}
	if e.gone {
		delete(i.watches, e.of)
	}
}
