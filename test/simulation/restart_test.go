package simulation

import (
	"bytes"
	"context"
	"os"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster/snapshot"
)

// restart stops the server and starts it again with the same Corefile. The new server has
// the snapshot of the old one, or starts another watch. After a crash the snapshot is the
// last one that was written before it.
func (w *world) restart(crash bool) {
	w.reloading <- struct{}{}
	defer func() { <-w.reloading }()
	synctest.Wait() // clients do not send queries meanwhile
	s := *w.serving
	saved := w.saved(s.source)
	complete := s.source.complete(time.Now())
	w.restarts.Add(1)
	w.down.Store(true)
	defer w.down.Store(false)
	w.within(longestStop, "stop", func() { w.plan.Stop(context.Background()) })
	for _, f := range w.files {
		if f.zone == fileZone {
			f.repair() // a server does not start without its zone files
		}
	}
	version, _ := w.api.cluster.now()
	switch {
	case w.storage.away: // the next server finds no snapshot
		s.source.forget()
	case crash:
		version = w.lose(s.source, saved)
	case complete:
		w.storage.checkSaved(s.source, complete)
		s.source.save(time.Now())
	}
	w.trace("stopped, crash %v, snapshot has version %d at most, all lists received: %v", crash, version, complete)
	w.mu.Lock()
	w.plan, w.serving = nil, nil
	if s.source.restart(version) {
		w.serving = &s
	}
	w.mu.Unlock()
	w.start(&s)
}

// saved returns the snapshot of a source, which is nil if there is none. The server has to
// have written one soon after it has received all lists.
func (w *world) saved(s *source) []byte {
	data, err := os.ReadFile(s.file(w.dir))
	if since := time.Now().Add(-firstSnapshot); err != nil && !w.storage.failed && s.snapshot && w.loaded.Before(since) && s.complete(since) {
		w.fail("no snapshot %v after all lists: %v", firstSnapshot, err)
	}
	return data
}

// lose replaces the snapshot of a source by an earlier one, and returns the version of
// which it has changes at most.
func (w *world) lose(s *source, saved []byte) (version int) {
	s.forget()
	if saved == nil {
		_ = os.Remove(s.file(w.dir))
		return 0
	}
	if err := os.WriteFile(s.file(w.dir), saved, 0o600); err != nil {
		w.fail("%v", err)
	}
	header, err := snapshot.Read(bytes.NewReader(saved))
	if err != nil {
		w.fail("the snapshot after a crash: %v", err)
		return 0
	}
	s.save(header.Written) // in seconds
	return w.api.cluster.versionAt(header.Written.Add(time.Second))
}
