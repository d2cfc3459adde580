package simulation

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/seamark/seamark/cluster/snapshot"
)

// A disk has the snapshots and the files of the secondary. It is taken away in some worlds, and then
// nothing can be read from it or written to it.
type disk struct {
	world *world
	*rand.Rand
	away   bool
	failed bool // it has been away
}

// newDisk returns the disk of a world. Its decisions are its own, so that those of a seed that are older
// than disks stay.
func newDisk(w *world) *disk {
	d := &disk{world: w, Rand: w.rand("disk")}
	if err := os.Mkdir(w.disk(), 0o700); err != nil {
		w.fail("%v", err)
	}
	if d.IntN(4) > 0 {
		d.Rand = nil // it never fails
	}
	return d
}

// disk returns the directory of the disk.
func (w *world) disk() string { return filepath.Join(w.dir, "disk") }

// step takes the disk away or brings it back, or does nothing.
func (d *disk) step() {
	switch {
	case d.Rand == nil:
	case d.away && d.IntN(4) == 0:
		d.move(false)
	case !d.away && d.IntN(12) == 0:
		d.move(true)
	}
}

// move takes the disk away, or brings it back.
func (d *disk) move(away bool) {
	if d.away == away {
		return
	}
	d.away, d.failed = away, true
	d.world.cause("the disk is away: %v", away)
	from, to := d.world.disk(), d.world.disk()+".away"
	if !away {
		from, to = to, from
	}
	if err := os.Rename(from, to); err != nil {
		d.world.fail("%v", err)
	}
}

// checkSaved checks that a server which has stopped has written a snapshot of its objects, although the
// disk had been away.
func (d *disk) checkSaved(s *source, complete bool) {
	if !d.failed || d.away || !s.snapshot || !complete {
		return
	}
	data, err := os.ReadFile(s.file(d.world.dir))
	if err != nil {
		d.world.fail("no snapshot after the stop: %v", err)
		return
	}
	if h, err := snapshot.Read(bytes.NewReader(data)); err != nil || time.Since(h.Written) > longestStop {
		d.world.fail("the snapshot after the stop: got one of %v, and error %v", h, err)
	}
}
