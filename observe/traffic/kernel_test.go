package traffic

import (
	"net/netip"
	"testing"
	"time"
)

// Replies that the kernel repeats count for their names and in the history, apart from the server's queries. Names
// without a client keep the example of the list.
func TestCountKernel(t *testing.T) {
	r := NewRecorder(nil)
	name := []byte("\x01a\x07example\x00")
	r.Record(&Event{Time: time.Now(), Client: netip.MustParseAddr("192.0.2.1"), RCode: "NXDOMAIN"}, name, nil, 0)
	r.CountKernel(name, "NXDOMAIN", 10)
	r.CountKernel(name, "NOERROR", 100)
	r.CountKernel(nil, "NOERROR", 1000)

	now := time.Now()
	for list, want := range map[int]Entry{
		Names:    {Key: "a.example.", Count: 111, Share: 1},
		NXDomain: {Key: "a.example.", Count: 11, Share: 1, Example: "192.0.2.1"},
	} {
		if got := r.Top(list, 10, now).Entries; len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %+v, want %+v", ListNames[list], got, want)
		}
	}
	if got := r.Top(Clients, 10, now); got.Total != 1 {
		t.Errorf("clients: got %+v, want one query", got)
	}
	if last, _ := r.Last(time.Minute, now); last.Queries != 1 || last.Kernel != 1110 {
		t.Errorf("history: got %+v, want one query, and 1110 replies of the kernel", last)
	}
}

// CountKernel does not wait for a reader, and what it has counted meanwhile is in the history later.
func TestCountKernelDoesNotWait(t *testing.T) {
	r := NewRecorder(nil)
	r.mu.Lock()
	r.CountKernel([]byte("\x01a\x00"), "NOERROR", 7)
	r.mu.Unlock()
	if last, _ := r.Last(time.Minute, time.Now()); last.Kernel != 7 {
		t.Errorf("got %v replies of the kernel, want 7", last.Kernel)
	}
}

func TestCountKernelAllocatesNothing(t *testing.T) {
	r := NewRecorder(nil)
	name := []byte("\x01a\x07example\x00")
	r.CountKernel(name, "NXDOMAIN", 1)
	if n := testing.AllocsPerRun(100, func() { r.CountKernel(name, "NXDOMAIN", 1) }); n > 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
