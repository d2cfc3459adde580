package tcx

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is struct shared of program/capture.c.
type shared struct {
	stamp, queries, replies, silent atomic.Uint64
	interfaces                      atomic.Uint64 // captured, and paused in the upper half
}

// A Beat is the sign of life of the process that serves the captured queries. It needs no
// capability, only the file of Capture.Heartbeat.
type Beat struct {
	memory []byte
	page   *shared
}

// OpenBeat returns a Beat of a file of Capture.Heartbeat, which the caller may close.
func OpenBeat(heartbeat *os.File) (*Beat, error) { return mapBeat(int(heartbeat.Fd())) }

func mapBeat(fd int) (*Beat, error) {
	memory, err := mapped(fd, int(unsafe.Sizeof(shared{})))
	if err != nil {
		return nil, fmt.Errorf("mapping the heartbeat of the capture: %w", err)
	}
	return &Beat{memory, (*shared)(unsafe.Pointer(&memory[0]))}, nil
}

// Stamp records that the process is alive. Queries are captured for 1.5 s from then on.
func (b *Beat) Stamp() { b.page.stamp.Store(uint64(monotonic())) }

// Counters returns the numbers of the Capture.
func (b *Beat) Counters() Counters {
	interfaces := b.page.interfaces.Load()
	return Counters{b.page.queries.Load(), b.page.replies.Load(), interfaces & 0xffffffff, interfaces >> 32}
}

// Close ends the use of the Beat. The last stamp stays.
func (b *Beat) Close() {
	b.page = nil
	_ = unix.Munmap(b.memory)
}

// monotonic returns the time of the clock of bpf_ktime_get_ns.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return now.Nano()
}

// mapped maps the values of an array into memory.
func mapped(fd, size int) ([]byte, error) {
	page := os.Getpagesize()
	return unix.Mmap(fd, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
