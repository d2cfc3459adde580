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

// An event of the kernel is among the recent events, and counts for its client, not for its name. One that is lost while
// a reader holds the lock makes the next one stand for more.
func TestRecordKernel(t *testing.T) {
	r := NewRecorder(nil)
	name := []byte("\x01a\x07example\x00")
	record := func(weight float64) {
		r.RecordKernel(&Event{Time: time.Now(), Client: netip.MustParseAddr("192.0.2.1"), RCode: "NXDOMAIN", Weight: weight},
			name, []byte("shop"), 2)
	}
	record(4)
	r.mu.Lock()
	for range queueSize + 3 {
		record(2)
	}
	r.mu.Unlock()
	record(1)

	now := time.Now()
	const sent = 4 + 2*(queueSize+3) + 1
	for list, want := range map[int]Entry{
		Names: {}, NXDomain: {},
		Clients:    {Key: "192.0.2.1", Namespace: "shop", Count: sent, Share: 1, Example: "a.example."},
		Waste:      {Key: "192.0.2.1", Namespace: "shop", Count: sent, Share: 1, Example: "a.example."},
		Namespaces: {Key: "shop", Count: sent, Share: 1, Example: "a.example."},
	} {
		got := append(r.Top(list, 10, now).Entries, Entry{})
		if got[0] != want || len(got) > 2 {
			t.Errorf("%s: got %+v, want %+v", ListNames[list], got, want)
		}
	}
	if last, _ := r.Last(time.Minute, now); last.Queries != 0 || last.Kernel != 0 {
		t.Errorf("history: got %+v, want nothing", last)
	}
	events, _ := r.Since(0, 2*queueSize)
	total := 0.0
	for _, e := range events {
		total += e.Weight
		if !e.Kernel || e.Name != "a.example." {
			t.Errorf("got the event %+v, want one of the kernel for a.example.", e)
		}
	}
	if len(events) != queueSize+2 || total != sent {
		t.Errorf("got %d events that stand for %v queries, want %d for %d", len(events), total, queueSize+2, sent)
	}
}

// Events are of use while a client watches.
func TestWatched(t *testing.T) {
	r := NewRecorder(nil)
	if r.Watched() {
		t.Error("without a client: got true")
	}
	first, second := r.Watch(), r.Watch()
	first()
	if !r.Watched() {
		t.Error("with a client: got false")
	}
	if second(); r.Watched() {
		t.Error("after the clients: got true")
	}
}
