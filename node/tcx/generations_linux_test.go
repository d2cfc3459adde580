package tcx

import (
	"encoding/binary"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

// The worker and the programs agree on the size of the array.
func TestElements(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpecFromReader(strings.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	m := spec.Maps["seamark_replies"]
	if want := uint32(unsafe.Sizeof(reply{})); m.ValueSize != want {
		t.Errorf("size of an element: got %d, want %d", m.ValueSize, want)
	}
	if got, want := m.ValueSize*m.MaxEntries, uint32(unsafe.Sizeof(elements{})); got != want {
		t.Errorf("size of the array: got %d, want %d", got, want)
	}
	if numCells > generation.MaxCells {
		t.Errorf("cells: got %d, want at most %d", numCells, generation.MaxCells)
	}
}

// A counter answers TXT queries with a number that changes at any time.
type counter struct {
	generations *generation.Cells
	value       atomic.Uint64
}

// The keys that answers of a counter depend on.
var service, namespaceLabel = []byte("\x03api\x04shop"), []byte("\x04shop")

func (c *counter) ServeDNS(q *dns.Query) dns.Verdict {
	s, ok := c.generations.Read(service, namespaceLabel)
	runtime.Gosched() // for a change between the steps
	r := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeTXT, 30, 8)
	q.Answer.Append(wire.Answers, binary.BigEndian.AppendUint64(r, c.value.Load()), 1)
	if ok {
		q.AllowRepeat(dns.Repeat{For: time.Minute, While: s})
	}
	return dns.Done
}

func (*counter) Repetition() dns.Repetition { return dns.Repetition{} }

// change changes the answers, which depend on key.
func (c *counter) change(key string, during func()) {
	c.generations.Begin(key)
	runtime.Gosched()
	c.value.Add(1)
	during()
	runtime.Gosched()
	c.generations.End(key)
}

// valueOf returns the number in a reply.
func valueOf(message []byte) uint64 { return binary.BigEndian.Uint64(message[len(message)-8:]) }

// serveCounter makes a counter answer all queries to the port.
func (b *repeatBench) serveCounter() *counter {
	c := &counter{generations: b.replies.Generations()}
	chain := new(dns.Chain)
	chain.Add("counter", c)
	mux := dns.NewMux(nil, nil)
	_ = mux.Route(wire.Root, chain)
	mux.Repeat(b.replies.Keep, b.replies.Forget)
	b.port.Swap(mux)
	return c
}

// A cell that overflows in a change ends the repetition as any other, and the next reply is repeated.
func TestRepeatCellOverflow(t *testing.T) {
	b := newRepeatBench(t)
	c := b.serveCounter()
	cells := &(*elements)(unsafe.Pointer(&b.replies.memory[0])).cells
	for i := range cells[1:] { // the first one is constant
		cells[1+i].Store(^uint64(0xffff))
	}
	in := over4.query(frame{payload: query})
	for _, key := range []string{string(service), string(namespaceLabel), ""} {
		b.clear()
		b.serve(query, over4.pod, over4.alias)
		if b.send(in) == nil {
			t.Errorf("before the change of %q: got no reply, want one", key)
		}
		c.change(key, func() {})
		if got := b.send(in); got != nil {
			t.Errorf("after the change of %q: got the earlier reply %x", key, got)
		}
		b.serve(query, over4.pod, over4.alias)
		if got := b.send(in); got == nil || valueOf(got) != c.value.Load() {
			t.Errorf("after the next answer: got %x, want %d", got, c.value.Load())
		}
	}
}

// A reply is repeated until one of the keys that it depends on begins to change, and the next one
// from the end of the change on.
func TestRepeatUntilChange(t *testing.T) {
	b := newRepeatBench(t)
	c := b.serveCounter()
	for _, conversation := range []conversation{over4, over6} {
		in := conversation.query(frame{payload: query})
		sent := func(when string, want bool) {
			t.Helper()
			got := b.send(in)
			if (got != nil) != want {
				t.Errorf("%s: got the reply %x, want one: %t", when, got, want)
			}
			if got != nil && valueOf(got) != c.value.Load() {
				t.Errorf("%s: got %d, want %d", when, valueOf(got), c.value.Load())
			}
		}
		for _, key := range []string{string(service), string(namespaceLabel), ""} {
			b.clear()
			b.serve(query, conversation.pod, conversation.alias)
			sent("before a change", true)
			c.generations.Begin("\x03api\x05other")
			c.generations.End("\x03api\x05other")
			sent("after a change of another key", true)
			c.change(key, func() {
				sent("in a change", false)
				b.serve(query, conversation.pod, conversation.alias)
				sent("after an answer in a change", false)
			})
			sent("after a change", false)
			b.serve(query, conversation.pod, conversation.alias)
			sent("after the next answer", true)
		}
	}
}

// A reply is not stored if the data have changed since the answer.
func TestRepeatChangedSince(t *testing.T) {
	b := newRepeatBench(t)
	c := b.serveCounter()
	q := dns.NewQuery(nil)
	q.Peer, q.Local = ports(pod4, alias4, 40000)
	q.Reset(query, dns.UDP, time.Now())
	if b.port.Serve(q, make([]byte, 0, 1<<16)) != dns.Answered {
		t.Fatal("got no answer")
	}
	c.change(string(service), func() {})
	q.Observe(time.Now())
	for i := range b.replies.replies {
		if until := b.replies.replies[i].until.Load(); until > uint64(monotonic()) {
			t.Errorf("place %d: got a reply that was outdated before it was stored", i)
		}
	}
}

// goHere runs f on a thread in the calling thread's network namespace.
func goHere(t *testing.T, running *sync.WaitGroup, f func()) {
	t.Helper()
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		defer ns.Close()
		runtime.LockOSThread() // and the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f()
	})
}

// With many readers and a writer, no reader gets a number that is less than the largest that any
// had got when it sent its query: from the programs, or from the server if they pass the query on.
func TestRepeatNeverStale(t *testing.T) {
	const readers = 4
	changes := race.Fewer(uint64(20_000))
	if testing.Short() {
		changes = 2_000
	}
	b := newRepeatBench(t)
	c := b.serveCounter()
	for family := range families {
		b.state.families[family].replied.Store(uint64(monotonic()) + uint64(time.Hour)) // reached, for the whole test
	}

	var largest, repeated, served atomic.Uint64
	var done atomic.Bool
	var running sync.WaitGroup
	for n := range readers {
		conversation := []conversation{over4, over6}[n%2]
		in := conversation.query(frame{payload: query})
		goHere(t, &running, func() {
			q := dns.NewQuery(nil)
			q.Peer, q.Local = ports(conversation.pod, conversation.alias, 40000)
			lent := make([]byte, 0, 1<<16)
			for !done.Load() && !t.Failed() {
				before := largest.Load()
				b.page.Stamp()
				o := ebpf.RunOptions{Data: in, DataOut: make([]byte, 256)}
				verdict, err := b.program.query.Run(&o)
				if err != nil {
					t.Error(err)
					return
				}
				var value uint64
				switch int32(verdict) {
				case 7: // TC_ACT_REDIRECT
					repeated.Add(1)
					value = valueOf(o.DataOut)
				case -1:
					served.Add(1)
					q.Reset(query, dns.UDP, time.Now())
					b.port.Serve(q, lent)
					value = valueOf(q.Reply())
					q.Observe(time.Now())
				default:
					continue // dropped: the reply was replaced
				}
				if value < before {
					t.Errorf("verdict %d: got %d after %d", int32(verdict), value, before)
				}
				for old := before; value > old && !largest.CompareAndSwap(old, value); old = largest.Load() {
				}
			}
		})
	}
	keys := []string{string(service), string(namespaceLabel), ""}
	for n := range changes {
		for n%16 == 0 && repeated.Load() < n && !t.Failed() {
			runtime.Gosched() // until replies are repeated
		}
		c.change(keys[n%3], func() {})
	}
	done.Store(true)
	running.Wait()
	t.Logf("%d changes, %d repeated, %d served", changes, repeated.Load(), served.Load())
}

// setOf returns the first place for the reply to a query.
func setOf(packet []byte) int {
	w := reply{querySize: uint16(len(packet) - 2)}
	copy(w.query[:], packet[2:])
	return firstOf(hashOf(&w))
}

// If all places for a reply are taken, it takes that of the query that is the least often, once its own
// is more often.
func TestRepeatPlaces(t *testing.T) {
	b := newRepeatBench(t)
	b.serveCounter()
	var names [][]byte // of one set, one more than places
	for n := 0; len(names) <= replyWays; n++ {
		if name := numbered(n); setOf(name) == 0 {
			names = append(names, name)
		}
	}
	repeated := func(when string, want ...bool) {
		t.Helper()
		for i, name := range names {
			if got := b.send(over4.query(frame{payload: name})); (got != nil) != want[i] {
				t.Errorf("%s: name %d: repeated: got %t, want %t", when, i, got != nil, want[i])
			}
		}
	}

	for i, name := range names[:replyWays] {
		b.serve(name, pod4, alias4)
		for range []int{9, 9, 2, 9}[i] {
			b.send(over4.query(frame{payload: name}))
		}
	}
	b.serve(names[4], pod4, alias4)
	repeated("a name that was queried once", true, true, true, true, false)

	for range 3 {
		b.serve(names[4], pod4, alias4) // four times now, and name 2 four times with its reply
	}
	repeated("a name that was queried as often", true, true, true, true, false)
	b.serve(names[4], pod4, alias4)
	b.serve(names[4], pod4, alias4)
	repeated("a name that was queried more often", true, true, false, true, false)

	for deadline := time.Now().Add(time.Minute); b.send(over4.query(frame{payload: names[4]})) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the place is not free after a minute")
		}
		b.serve(names[4], pod4, alias4)
	}
	repeated("after a while", true, true, false, true, true)
}

// Names that are queried once, however many, end the repetition of no name that is queried often.
func TestRepeatScan(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	b := newRepeatBench(t)
	b.serveCounter()
	const often = 1000
	for n := range often {
		b.serve(numbered(n), pod4, alias4)
		for range 8 {
			b.send(over4.query(frame{payload: numbered(n)}))
		}
	}
	stored := 0
	for n := range often {
		if b.send(over4.query(frame{payload: numbered(n)})) != nil {
			stored++
		}
	}
	for n := often; n < 5*numReplies; n++ {
		b.serve(numbered(n), pod4, alias4)
	}
	left := 0
	for n := range often {
		if b.send(over4.query(frame{payload: numbered(n)})) != nil {
			left++
		}
	}
	if left != stored || stored < often*9/10 {
		t.Errorf("repeated after the scan: got %d of %d, before it %d", left, often, stored)
	}
}
