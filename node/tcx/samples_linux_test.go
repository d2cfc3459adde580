package tcx

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// A sampleReader has the samples that an observer got.
type sampleReader struct {
	wanted atomic.Int64 // a dns.SampleRate
	hold   sync.Mutex   // held: the observer waits

	mu  sync.Mutex
	got []takenSample
}

type takenSample struct {
	packet, reply []byte
	peer, local   netip.AddrPort
	start         time.Time
	weight        float64
	answeredBy    string
}

func (r *sampleReader) take(q *dns.Query, weight float64) {
	r.hold.Lock()
	defer r.hold.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, takenSample{
		bytes.Clone(q.Packet()), bytes.Clone(q.Reply()), q.Peer, q.Local, q.Start, weight, q.AnsweredBy(),
	})
}

func (r *sampleReader) rate() dns.SampleRate { return dns.SampleRate(r.wanted.Load()) }

// all returns the samples.
func (r *sampleReader) all() []takenSample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[:len(r.got):len(r.got)]
}

// sampling reports whether the programs produce samples.
func (b *repeatBench) sampling() bool { return b.replies.sampling.share.Load() > 0 }

// While an observer wants samples, it gets each query that is answered by a repeated reply, as the pod has sent it, with
// the reply as it is sent. Without one the programs produce none.
func TestSamples(t *testing.T) {
	b := newTimedRepeatBench(t, Times{Count: 5 * time.Millisecond})
	b.repeat = time.Hour
	for _, c := range []conversation{over4, over6} {
		b.serve(query, c.pod, c.alias)
		if b.send(c.query(frame{payload: query})) == nil {
			t.Fatal("got no repeated reply")
		}
	}
	if b.sampling() {
		t.Error("without a reader: got a share of samples, want none")
	}

	b.samples.wanted.Store(int64(dns.ManySamples))
	chaintest.Eventually(b.t, "want samples with a reader", b.sampling)
	begin := time.Now()
	var want []takenSample
	for i, c := range []conversation{over4, over6, over4} {
		f := frame{payload: withID(uint16(i), query)}
		peer, _ := ports(c.pod, c.cluster, 40000)
		reply := b.send(c.query(f))[14+20+8:]
		if c == over6 {
			reply = reply[20:]
		}
		want = append(want, takenSample{
			packet: f.payload, reply: reply, peer: peer, local: netip.AddrPortFrom(c.alias, 53), weight: 1, answeredBy: "answerer",
		})
	}
	chaintest.Eventually(b.t, "want three samples", func() bool { return len(b.samples.all()) >= len(want) })
	for i, got := range b.samples.all() {
		if age := got.start.Sub(begin); age < -time.Second || age > time.Minute {
			t.Errorf("sample %d: got the time %s, want one after %s", i, got.start, begin)
		}
		if i >= len(want) || !got.equal(want[i]) {
			t.Errorf("sample %d: got %+v, want %+v", i, got, want[min(i, len(want)-1)])
		}
	}

	b.samples.wanted.Store(int64(dns.NoSamples))
	chaintest.Eventually(b.t, "want no samples without a reader", func() bool { return !b.sampling() })
	if n := b.replies.LostSamples(); n > 0 {
		t.Errorf("got %d lost samples, want none", n)
	}
}

func (s takenSample) equal(o takenSample) bool {
	return bytes.Equal(s.packet, o.packet) && bytes.Equal(s.reply, o.reply) && s.peer == o.peer && s.local == o.local &&
		s.weight == o.weight && s.answeredBy == o.answeredBy
}

// Samples for which there is no room are counted, the next one stands for them, and then only a share of the replies
// is sampled.
func TestSamplesLost(t *testing.T) {
	b := newTimedRepeatBench(t, Times{Count: 5 * time.Millisecond})
	b.repeat = time.Hour
	b.serve(query, pod4, alias4)
	in := over4.query(frame{payload: query})
	b.samples.wanted.Store(int64(dns.ManySamples))
	chaintest.Eventually(b.t, "want samples with a reader", b.sampling)

	const sent = 300
	b.samples.hold.Lock()
	for range sent {
		if b.send(in) == nil {
			t.Fatal("got no repeated reply")
		}
	}
	lost := b.replies.sampling.lost.Load()
	b.samples.hold.Unlock()
	if room := uint64(samplesSize / 624); lost < sent-2*room {
		t.Errorf("got %d lost samples, want at least %d", lost, sent-2*room)
	}

	chaintest.Eventually(b.t, "want the lost samples counted", func() bool { return b.replies.LostSamples() >= lost })
	chaintest.Eventually(b.t, "want a sample that stands for the lost ones", func() bool {
		b.send(in)
		for _, got := range b.samples.all() {
			if got.weight > float64(lost) {
				return true
			}
		}
		return false
	})
}

// Few samples are passed with the counts, and begin with the share that the number of repeated replies lets expect.
func TestFewSamples(t *testing.T) {
	b := newTimedRepeatBench(t, Times{Count: time.Hour}) // its goroutine waits
	b.repeat = time.Hour
	b.serve(query, pod4, alias4)
	for _, c := range []struct {
		rate     dns.SampleRate
		repeated uint64
		want     uint64
	}{
		{dns.NoSamples, 1000, 0},
		{dns.FewSamples, 1000, wholeShare * sampleBudget / 1000},
		{dns.FewSamples, 1, wholeShare * sampleBudget / 1000}, // as it runs
		{dns.ManySamples, 1000, wholeShare},
		{dns.FewSamples, 1 << 40, 1},
		{dns.NoSamples, 0, 0},
		{dns.FewSamples, 0, wholeShare},
	} {
		b.samples.wanted.Store(int64(c.rate))
		b.replies.startSampling(c.repeated)
		if got := b.replies.sampling.share.Load(); got != c.want {
			t.Errorf("rate %d, %d repeated: got the share %d, want %d", c.rate, c.repeated, got, c.want)
		}
	}

	const sent = 5
	for range sent {
		if b.send(over4.query(frame{payload: query})) == nil {
			t.Fatal("got no repeated reply")
		}
	}
	if n := len(b.samples.all()); n > 0 {
		t.Errorf("before the counts: got %d samples, want none", n)
	}
	if b.replies.tick(1); len(b.samples.all()) != sent {
		t.Errorf("with the counts: got %d samples, want %d", len(b.samples.all()), sent)
	}
}

// A reader of the buffer skips what the programs have discarded, waits for what they write, and drops everything
// after a length that they do not write.
func TestSampleBuffer(t *testing.T) {
	const size, record = 616, 624
	for _, c := range []struct {
		name    string
		lengths []uint32
		want    int
		left    uint64
	}{
		{"none", nil, 0, 0},
		{"two", []uint32{size, size}, 2, 0},
		{"discarded", []uint32{size, size | recordDiscarded, size}, 2, 0},
		{"busy", []uint32{size, size | recordBusy, size}, 1, 2 * record},
		{"no length", []uint32{size, 0, size}, 1, 0},
		{"a large length", []uint32{1 << 29, size}, 0, 0},
	} {
		for _, start := range []uint64{0, 8, samplesSize - 8, samplesSize - record, 1 << 40} {
			var consumer, present atomic.Uint64
			b := &sampleBuffer{consumer: &consumer, present: &present, data: make([]byte, 2*samplesSize)}
			consumer.Store(start)
			for i, length := range c.lengths {
				at := (start + uint64(i)*record) % samplesSize
				binary.NativeEndian.PutUint32(b.data[at:], length)
			}
			present.Store(start + record*uint64(len(c.lengths)))
			got := 0
			b.drain(func(*sample) { got++ })
			if left := present.Load() - consumer.Load(); got != c.want || left != c.left {
				t.Errorf("%s from %d: got %d samples, and %d bytes left, want %d and %d", c.name, start, got, left, c.want, c.left)
			}
		}
	}
}
