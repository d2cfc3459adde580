package supervisor

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is the content of the page that supervisor and worker share.
type shared struct {
	beat     atomic.Int64  // monotonic time of the last heartbeat; 0: none
	restarts atomic.Uint64 // of workers
	open     atomic.Bool   // the gate is open
	counts   [maxCounts]atomic.Uint64
}

// A page is memory of two processes.
type page struct {
	file *os.File
	*shared
}

func newPage() (page, error) {
	fd, err := unix.MemfdCreate("seamark-supervisor", unix.MFD_CLOEXEC)
	if err != nil {
		return page{}, fmt.Errorf("allocating memory for supervisor and worker: %w", err)
	}
	f := os.NewFile(uintptr(fd), "page")
	if err := f.Truncate(int64(unsafe.Sizeof(shared{}))); err != nil {
		return page{}, fmt.Errorf("allocating memory for supervisor and worker: %w", err)
	}
	return mapPage(f)
}

func mapPage(f *os.File) (page, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(shared{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return page{}, fmt.Errorf("mapping memory of supervisor and worker: %w", err)
	}
	return page{f, (*shared)(unsafe.Pointer(&b[0]))}, nil
}

func (p page) close() { _ = p.file.Close() }

// keep replaces the text behind the page. It has its hash before it: a worker may end while it writes.
func (p page) keep(text []byte) error {
	begin, sum := int64(unsafe.Sizeof(shared{})), sha256.Sum256(text)
	if err := p.file.Truncate(begin); err != nil {
		return err
	}
	_, err := p.file.WriteAt(append(sum[:], text...), begin)
	return err
}

// kept returns the text of keep, "" if there is none.
func (p page) kept() string {
	begin := int64(unsafe.Sizeof(shared{}))
	b, err := io.ReadAll(io.NewSectionReader(p.file, begin, math.MaxInt64-begin))
	if err != nil || len(b) < sha256.Size {
		return ""
	}
	text := b[sha256.Size:]
	if sha256.Sum256(text) != [sha256.Size]byte(b) {
		return ""
	}
	return string(text)
}

// age returns the age of the last heartbeat.
func (p page) age() time.Duration { return time.Duration(monotonic() - p.beat.Load()) }

// monotonic returns the time of CLOCK_MONOTONIC, which all processes share.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
