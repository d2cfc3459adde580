package forward

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A signal is a Sender that discards replies.
type signal chan struct{}

func (s signal) Send(*dns.Query) { s <- struct{}{} }

// A query that waits for a silent upstream has no goroutine, and needs less than 2 KB.
func TestWaitingQueryMemory(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	r := newHarness(t, "forward . "+silent.LocalAddr().String()+" {\n max_fails 0\n}")
	const n, most = 2000, 2 << 10
	lot := dns.NewParkingLot(n)
	mux := dns.NewMux(lot, nil)
	if err := mux.Route("\x00", r.block.Chain.CopyFor("dns://:53", ".")); err != nil {
		t.Fatal(err)
	}
	r.port.Swap(mux)
	inUse := func() (bytes uint64, goroutines int) {
		runtime.GC()
		runtime.GC() // the first one may have been running already
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine() // stacks belong to goroutines, which queries do not have
	}
	bytesBefore, goroutinesBefore := inUse()
	replies := make(signal, n)
	lent := make([]byte, 0, 4096)
	for i := range n {
		q := dns.NewQuery(replies)
		q.Reset(pack(query(fmt.Sprintf("n%d.example.", i), mdns.TypeA)), dns.UDP, time.Now())
		q.Timeout = time.Minute
		q.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1000)
		if outcome := r.port.Serve(q, lent); outcome != dns.Parked {
			t.Fatalf("query %d: got outcome %v, want %v", i, outcome, dns.Parked)
		}
	}
	u := r.forward[0].set.current.Load().all[0]
	chaintest.Eventually(t, "all queries have been sent", func() bool { return u.waiting.Load() >= n })
	if got := r.metric(fmt.Sprintf("seamark_forward_waiting_queries{to=%q}", silent.LocalAddr())); got == "" || got == "0" {
		t.Errorf("seamark_forward_waiting_queries with %d waiting queries: got %q, want a positive number", n, got)
	}
	// The goroutines that sent the queries have ended. Other goroutines repeat queries now and then, with
	// memory of their own: one moment without them shows what the queries need.
	least, fewest := int64(math.MaxInt64), n
	chaintest.Eventually(t, fmt.Sprintf("no query has a goroutine, and each at most %d bytes", most), func() bool {
		bytes, goroutines := inUse()
		if got := u.waiting.Load(); got < n {
			t.Fatalf("got %d queries that wait, want %d; there were %d goroutines and %d bytes for each", got, n, fewest, least)
		}
		least, fewest = min(least, int64(bytes-bytesBefore)/n), min(fewest, goroutines-goroutinesBefore)
		return fewest < n/10 && least <= most
	})
	t.Logf("%d bytes for each waiting query", least)
	r.start.Stop() // ends all waiting queries
	for range n {
		<-replies
	}
	lot.Close(t.Context())
	if got := u.waiting.Load(); got != 0 {
		t.Errorf("after Stop: got %d waiting queries, want 0", got)
	}
}

// largeBehavior answers every query with 200 TXT records.
func largeBehavior(q *mdns.Msg, tcp bool, send func([]byte)) {
	m := answerOf(q, "1")
	m.Truncated = !tcp
	for i := 0; tcp && i < 200; i++ {
		m.Answer = append(m.Answer, rr(fmt.Sprintf("%s 60 IN TXT %d-%0200d", q.Question[0].Name, i, i)))
	}
	send(pack(m))
}

// The reply to a query is SERVFAIL if there is no memory for a large one, and what it reserves is free again
// afterwards. A small one needs none.
func TestLargeReplyMemory(t *testing.T) {
	up := newFakeUpstream(t, largeBehavior)
	r := newHarness(t, "forward . "+up.addr)
	b := memory.New(64<<20, memory.FromGroup)
	r.forward[0].set.memory = b
	most := b.Max(memory.Waiting)
	for i, c := range []struct {
		used int64
		fits bool
	}{{0, true}, {most, false}, {most - 20<<10, false}, {0, true}} {
		b.Force(memory.Waiting, c.used)
		m, err := r.ask(query(fmt.Sprintf("n%d.example.", i), mdns.TypeTXT), dns.TCP)
		_, refused := errors.AsType[*memory.Error](err)
		if (len(m.Answer) == 201) != c.fits || (m.Rcode == mdns.RcodeServerFailure) == c.fits || refused == c.fits {
			t.Errorf("%d bytes in use: got %d records, error %v; want an answer %t", c.used, len(m.Answer), err, c.fits)
		}
		b.Release(memory.Waiting, c.used)
		chaintest.Eventually(t, "the memory is free", func() bool {
			runtime.GC() // of a reply that was refused
			return b.Part(memory.Waiting).Used == 0
		})
	}
}

// The records of a reply are copied once, whatever their number is.
func TestReplyIsCopiedOnce(t *testing.T) {
	q := query("a.example.", mdns.TypeTXT)
	var packet []byte
	largeBehavior(q, true, func(p []byte) { packet = p })
	r, f := new(parser).parse(packet, pack(q)[wire.HeaderLen:], false)
	if f != valid || r.count[0] != 201 || cap(r.records)-len(r.records) > len(r.records)/4 {
		t.Errorf("got fault %v, %d records in %d bytes with a capacity of %d", f, r.count[0], len(r.records), cap(r.records))
	}
}
