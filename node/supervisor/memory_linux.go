package supervisor

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/seamark/seamark/sys/filepages"
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

// age returns the age of the last heartbeat.
func (p page) age() time.Duration { return time.Duration(monotonic() - p.beat.Load()) }

// monotonic returns the time of CLOCK_MONOTONIC, which all processes share.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// ReleaseMemory releases the memory that only the start of the process needs, after three
// seconds, and from then on what is not in use, from time to time. Run calls it for the
// supervisor.
func ReleaseMemory() {
	time.AfterFunc(filepages.Delay, func() { releaseAgain(filepages.Find()) })
}

// releaseAgain returns garbage and free memory of the heap to the kernel, and pages of the
// program's file, and plans the next time. Where queries allocate nothing, Go's garbage
// collector runs every two minutes, and the pages that it reads stay. So it runs before they
// are released.
func releaseAgain(pages filepages.Pages) {
	debug.FreeOSMemory()
	pages.Release()
	time.AfterFunc(filepages.Interval, func() { releaseAgain(pages) })
}
