package file

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// zoneText returns a zone file with so many names.
func zoneText(serial, names int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "@ 60 SOA ns host %d 1 1 1 1\n", serial)
	for i := range names {
		fmt.Fprintf(&text, "n%d 60 TXT %s\n", i, strings.Repeat("x", 100))
	}
	return text.String()
}

// A version of a zone file for which there is no memory is refused: the old one stays, and only
// that is reserved.
func TestReloadMemoryRefused(t *testing.T) {
	b, log := memory.New(8<<20, memory.FromGroup), new(chaintest.Log)
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneText(1, 100))
	u := &use{path: db, origins: []wire.Name{origin}}
	block := &config.Block{Log: log.Logger(), Metrics: new(metrics.Registry), Memory: b}
	var err error
	if u.planned, err = load(db, u.origins, u.limits(block), nil, block.Log); err != nil {
		t.Fatal(err)
	}
	s := newSource(u, block)
	u.drop()
	used := func() int64 { return b.Part(memory.Zones).Used }
	small := used()

	// Neither zone has room beside the first version.
	for _, names := range []int{7000, 20_000} {
		write(t, db, zoneText(2, names))
		s.reload()
		if got, _ := s.zones[0].Load().Serial(); got != 1 || used() != small || small == 0 {
			t.Errorf("%d names: got serial number %d and %d bytes reserved, want 1 and %d\n%s", names, got, used(), small, log)
		}
	}
	if !strings.Contains(log.String(), "no memory for more zones") {
		t.Errorf("the log lacks the reason:\n%s", log)
	}

	write(t, db, zoneText(3, 200))
	s.reload()
	if got, _ := s.zones[0].Load().Serial(); got != 3 || used() <= small || used() > 3*small {
		t.Errorf("200 names: got serial number %d and %d bytes reserved, want 3 and about %d", got, used(), 2*small)
	}
	s.Stop()
	if used() != 0 {
		t.Errorf("after Stop: %d bytes reserved, want 0", used())
	}
}

// What exceeds max_size is released.
func TestMaxSizeMemoryReleased(t *testing.T) {
	b := memory.New(80<<20, memory.FromGroup)
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneText(1, 1000))
	log := slog.New(slog.DiscardHandler)
	if _, err := load(db, []wire.Name{origin}, limits{b, 10_000}, nil, log); err == nil || !strings.Contains(err.Error(), "more than 10000 bytes") {
		t.Errorf("max_size 10000: got %v", err)
	}
	if used := b.Part(memory.Zones).Used; used != 0 {
		t.Errorf("a zone over max_size: %d bytes reserved, want 0", used)
	}
}

// A version for which there was no memory is read again while there is none, and once there is some; only
// the first failure is logged.
func TestFileReadOnceThereIsMemory(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneText(1, 100))
	synctest.Test(t, func(t *testing.T) {
		b, log := memory.New(8<<20, memory.FromGroup), new(chaintest.Log)
		u := &use{path: db, origins: []wire.Name{origin}, reload: time.Second}
		block := &config.Block{Log: log.Logger(), Metrics: new(metrics.Registry), Memory: b, NoFileEvents: true}
		var err error
		if u.planned, err = load(db, u.origins, u.limits(block), nil, block.Log); err != nil {
			t.Fatal(err)
		}
		s := newSource(u, block)
		defer s.Stop()
		u.drop()
		serial := func() uint32 { n, _ := s.zones[0].Load().Serial(); return n }

		others := b.Part(memory.Zones).Max
		b.Force(memory.Zones, others)
		write(t, db, zoneText(2, 200))
		time.Sleep(5*shortInterval + time.Second)
		if n := log.Count("Failed to reload zone file"); serial() != 1 || n != 1 {
			t.Errorf("without memory: got serial number %d and %d errors, want 1 and one\n%s", serial(), n, log)
		}
		b.Release(memory.Zones, others)
		time.Sleep(shortInterval)
		if serial() != 2 {
			t.Errorf("with memory: got serial number %d, want 2\n%s", serial(), log)
		}
	})
}

// Only the records of a zone file need memory, not its text.
func TestTextNeedsNoMemory(t *testing.T) {
	b := memory.New(8<<20, memory.FromGroup)
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneText(1, 10)+strings.Repeat("; "+strings.Repeat("x", 1000)+"\n", 8000))
	v, err := load(db, []wire.Name{origin}, limits{b, 0}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if used, want := b.Part(memory.Zones).Used, v.zones[0].zone.Memory(); used != want {
		t.Errorf("%d bytes reserved, want the %d of the zone", used, want)
	}
}

// The library forgets files whose names no plan uses any more, as in a directory of auto.
func TestLibraryForgetsUnusedFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	l, dir := &library{latest: map[libraryKey]*version{}}, t.TempDir()
	read := func(name string) *version {
		t.Helper()
		path := filepath.Join(dir, name)
		write(t, path, zoneText(1, 1))
		v, err := l.read(path, []wire.Name{origin}, limits{}, false, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var used []*version
	for i := range 100 {
		used = append(used, read(fmt.Sprint("used", i)))
	}
	for i := range 1000 {
		read(fmt.Sprint("unused", i)).release()
	}
	if n := len(l.latest); n < 100 || n > 2*100+minVersions {
		t.Errorf("got %d versions after 1,100 files, want the 100 in use and at most as many others", n)
	}
	for i, v := range used {
		if again := read(fmt.Sprint("used", i)); again == nil || v.zones[0].users == 0 {
			t.Errorf("file %d: got a version without users", i)
		}
	}
}
