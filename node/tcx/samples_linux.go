package tcx

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/dns"
)

const (
	// sampleBudget is the number of samples in an interval above which only a share of the repeated
	// replies is sampled. The buffer has room for five times as many. The interval is that of counts, and
	// sampleInterval for observers that want many samples.
	sampleBudget   = 20
	sampleInterval = 100 * time.Millisecond
	// wholeShare is the share with which each repeated reply is a sample.
	wholeShare = 1 << 32
)

// sampling is struct sampling of program/repeat.h, as an element.
type sampling struct {
	share, lost atomic.Uint64
	_           [unsafe.Sizeof(reply{}) - 16]byte
}

// sample is struct sample of program/repeat.h.
type sample struct {
	time, share           uint64
	alias                 [16]byte
	querySize, packetSize uint16
	_                     uint32
	query                 [maxQuery]byte
	packet                [maxPacket]byte
}

// maxPacket is the size of the largest IP packet with a reply, rounded up to words.
const maxPacket = (40 + 8 + 2 + maxReply + 6) &^ 7

// A sampleBuffer is the reader's side of the ring buffer seamark_samples (BPF_MAP_TYPE_RINGBUF of
// linux/bpf.h), whose memory a process may map without a capability: a page with the position of the reader,
// which alone is writable, one with that of the programs, and the data, twice, so that no record ends at the
// end of the memory.
type sampleBuffer struct {
	written, read     []byte // memory
	consumer, present *atomic.Uint64
	data              []byte
}

// The first word of a record's header is its length, with two bits. Records begin at multiples of eight.
const (
	recordHeader    = 8
	recordBusy      = 1 << 31 // a program writes it
	recordDiscarded = 1 << 30
)

// openSamples maps the file of a ring buffer, which the caller may close.
func openSamples(f *os.File) (*sampleBuffer, error) {
	page := os.Getpagesize()
	written, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the position in the samples for the capture: %w", err)
	}
	read, err := unix.Mmap(int(f.Fd()), int64(page), page+2*samplesSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Munmap(written)
		return nil, fmt.Errorf("mapping the samples for the capture: %w", err)
	}
	return &sampleBuffer{
		written: written, read: read, data: read[page:],
		consumer: (*atomic.Uint64)(unsafe.Pointer(&written[0])),
		present:  (*atomic.Uint64)(unsafe.Pointer(&read[0])),
	}, nil
}

// reset drops the samples.
func (b *sampleBuffer) reset() { b.consumer.Store(b.present.Load()) }

// drain calls take for each sample, and makes room for others.
func (b *sampleBuffer) drain(take func(*sample)) {
	const size = uint32(unsafe.Sizeof(sample{}))
	for at, end := b.consumer.Load(), b.present.Load(); at < end; b.consumer.Store(at) {
		header := b.data[at%samplesSize:]
		switch length := (*atomic.Uint32)(unsafe.Pointer(&header[0])).Load(); length {
		case size:
			take((*sample)(unsafe.Pointer(&header[recordHeader])))
		case size | recordDiscarded:
		case size | recordBusy:
			return
		default: // another process reads, too
			at = end
			continue
		}
		at += recordHeader + uint64(size)
	}
}

func (b *sampleBuffer) close() {
	_ = unix.Munmap(b.written)
	_ = unix.Munmap(b.read)
}

// A sampler is what Replies need to pass samples to the observers that want them.
type sampler struct {
	buffer *sampleBuffer
	rate   dns.SampleRate
	ticker *time.Ticker // runs while the rate is that of many samples
	query  *dns.Query
	packet [2 + maxQuery]byte
	share  uint64        // of the replies that are sampled; 0 if none are
	missed uint64        // of sampling.lost at the last look
	owed   float64       // weight of lost samples, for the next one
	lost   atomic.Uint64 // samples
}

// openSampler returns a sampler that has not begun.
func openSampler(f *os.File) (*sampler, error) {
	buffer, err := openSamples(f)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(sampleInterval)
	ticker.Stop()
	return &sampler{buffer: buffer, ticker: ticker, query: dns.NewQuery(nil)}, nil
}

// LostSamples returns the number of samples for which there was no room, or no reply any more.
func (r *Replies) LostSamples() uint64 { return r.samples.lost.Load() }

// startSampling makes the programs produce the samples that observers want, in the same interval about as many
// as their budget: repeated is the number of replies that were repeated in the last one of counts.
func (r *Replies) startSampling(repeated uint64) {
	s, rate := r.samples, r.sampleRate()
	if rate == s.rate {
		return
	}
	s.ticker.Stop()
	if s.rate == dns.NoSamples {
		s.buffer.reset()
		s.missed, s.owed = r.sampling.lost.Load(), 0
	}

	s.rate = rate
	switch rate {
	case dns.NoSamples:
		s.share = 0
	case dns.FewSamples:
		s.share = min(wholeShare, max(1, wholeShare*sampleBudget/max(1, repeated)))
	default:
		s.share = wholeShare
		s.ticker.Reset(sampleInterval)
	}
	r.sampling.share.Store(s.share)
}

func (r *Replies) stopSampling() {
	r.sampling.share.Store(0)
	r.samples.ticker.Stop()
}

// sampleRate returns the highest rate at which an observer of a kept reply wants samples.
func (r *Replies) sampleRate() (rate dns.SampleRate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last *dns.Chain
	for i := range r.kept {
		if c := r.kept[i].chain; c != last && c != nil {
			last, rate = c, max(rate, c.SampleRate())
		}
	}
	return rate
}

// passSamples passes on the samples in the buffer, and sets the share for the next ones.
func (r *Replies) passSamples() {
	s := r.samples
	if s.share == 0 {
		return
	}
	lost := r.sampling.lost.Load()
	missed := lost - s.missed
	s.missed = lost
	s.lose(missed, s.share)

	n := missed
	s.buffer.drain(func(one *sample) {
		n++
		if !r.pass(one) {
			s.lose(1, one.share)
		}
	})

	switch {
	case n > sampleBudget:
		s.share = max(1, s.share*sampleBudget/n)
	case n < sampleBudget/2:
		s.share = min(wholeShare, 2*s.share)
	}
	r.sampling.share.Store(s.share)
}

// lose counts samples that are lost. The next one stands for them.
func (s *sampler) lose(n, share uint64) {
	s.lost.Add(n)
	s.owed += float64(n) * weightOf(share)
}

// weightOf returns the number of repeated replies for which a sample stands.
func weightOf(share uint64) float64 { return wholeShare / float64(share) }

// pass passes a sample to the observers of its chain. It reports whether the reply is still known.
func (r *Replies) pass(s *sample) bool {
	var w reply
	w.alias, w.querySize, w.query = s.alias, min(s.querySize, maxQuery), s.query
	peer, message, ok := s.parse()
	if !ok {
		return false
	}
	start := time.Now().Add(-time.Duration(uint64(monotonic()) - s.time))

	// As counts, samples reach no observer after Forget, when the configuration has ended.
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.find(&w)
	if k == nil {
		return false
	}

	q := r.samples.query
	q.Reset(append(append(r.samples.packet[:0], message[:2]...), w.query[:w.querySize]...), dns.UDP, start)
	q.Peer, q.Local = peer, netip.AddrPortFrom(addressOf(s.alias, peer.Addr().Is4()), r.port)
	repeated := k.repeated()
	repeated.Sample(q, message, weightOf(s.share)+r.samples.owed)
	r.samples.owed = 0
	return true
}

// find returns the kept reply to the query of w; nil if there is none.
func (r *Replies) find(w *reply) *kept {
	hash := hashOf(w)
	for i := firstOf(hash); i < firstOf(hash)+replyWays; i++ {
		if k := &r.kept[i]; k.chain != nil && k.hash == hash && r.replies[i].equal(w) {
			return k
		}
	}
	return nil
}

// parse returns the client and the reply of a sample.
func (s *sample) parse() (client netip.AddrPort, message []byte, ok bool) {
	packet := s.packet[:min(int(s.packetSize), maxPacket)]
	header, address := 20, s.packet[16:20]
	if s.packet[0]>>4 == 6 {
		header, address = 40, s.packet[24:40]
	}
	if len(packet) < header+8+2 {
		return client, nil, false
	}
	ip, _ := netip.AddrFromSlice(address)
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(packet[header+2:])), packet[header+8:], true
}

// addressOf is the reverse of words.
func addressOf(b [16]byte, is4 bool) netip.Addr {
	if is4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}
