package shadow

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Message is a DNS message that was captured.
type Message struct {
	Time           time.Time
	Client, Server netip.AddrPort
	Proto          dns.Proto // UDP, or TCP for everything else
	Response       bool
	Data           []byte // valid during the call that passes the message
}

// A pair is a captured query and its response.
type pair struct {
	client   netip.AddrPort
	proto    dns.Proto
	time     time.Time // of the query
	latency  time.Duration
	query    []byte
	response []byte
}

// Limits of the messages that wait for the other half of their pair.
const (
	maxWaiting      = 1 << 16
	maxWaitingBytes = 64 << 20
	// maxLatency is the time of the capture after which a response is not expected anymore.
	maxLatency = 10 * time.Second
)

type matchKey struct {
	client, server netip.AddrPort
	proto          dns.Proto
	id             uint16
}

// A waiting is a message without its other half.
type waiting struct {
	key      matchKey
	time     time.Time
	response bool
	data     []byte
}

// A matcher makes pairs of queries and responses. Messages may come out of order, as from
// the threads of a server. The zero value is not ready: newMatcher.
type matcher struct {
	byKey  map[matchKey]*list.Element
	order  *list.List // of *waiting, the oldest first
	bytes  int
	newest time.Time

	counts *Counts
}

func newMatcher(counts *Counts) *matcher {
	return &matcher{byKey: map[matchKey]*list.Element{}, order: list.New(), counts: counts}
}

// add returns the pair that m completes, or nil.
func (t *matcher) add(m *Message) *pair {
	if len(m.Data) < wire.HeaderLen {
		t.counts.Skipped[SkippedShort]++
		return nil
	}

	if m.Response {
		t.counts.Responses++
		t.counts.ResponseBytes += uint64(len(m.Data))
	} else {
		t.counts.Queries++
		t.counts.QueryBytes += uint64(len(m.Data))
	}
	if m.Time.After(t.newest) {
		t.newest = m.Time
	}

	t.expire()
	key := matchKey{m.Client, m.Server, m.Proto, binary.BigEndian.Uint16(m.Data)}
	e := t.byKey[key]
	if e == nil {
		t.wait(key, m)
		return nil
	}

	w := e.Value.(*waiting)
	switch same := sameQuestion(w.data, m.Data); {
	case w.response == m.Response && same:
		if m.Response { // the first one counts, as it does for the client
			t.counts.Unasked++
		} else {
			t.counts.Repeated++
		}
		return nil

	case w.response == m.Response || !same:
		// The client uses the port and the ID again. A response to another question is
		// late, or forged.
		if m.Response {
			t.counts.Unasked++
			return nil
		}
		t.remove(e)
		t.wait(key, m)
		return nil
	}

	t.remove(e)
	t.countLost(w, -1)
	p := &pair{
		client: m.Client, proto: m.Proto, time: w.time, latency: m.Time.Sub(w.time),
		query: w.data, response: bytes.Clone(m.Data),
	}
	if w.response {
		p.time, p.latency, p.query, p.response = m.Time, -p.latency, bytes.Clone(m.Data), w.data
	}
	t.counts.Answered++
	return p
}

// wait keeps m until its other half comes.
func (t *matcher) wait(key matchKey, m *Message) {
	w := &waiting{key, m.Time, m.Response, bytes.Clone(m.Data)}
	t.byKey[key] = t.order.PushBack(w)
	t.bytes += len(w.data)
	t.countLost(w, 1)
	for t.order.Len() > maxWaiting || t.bytes > maxWaitingBytes {
		t.remove(t.order.Front())
	}
}

// countLost adds n to the number of messages like w without their other half.
func (t *matcher) countLost(w *waiting, n int) {
	if w.response {
		t.counts.Unasked += n
	} else {
		t.counts.Unanswered += n
	}
}

func (t *matcher) remove(e *list.Element) {
	w := t.order.Remove(e).(*waiting)
	t.bytes -= len(w.data)
	delete(t.byKey, w.key)
}

// expire removes messages whose other half is not expected anymore.
func (t *matcher) expire() {
	for e := t.order.Front(); e != nil && t.newest.Sub(e.Value.(*waiting).time) > maxLatency; e = t.order.Front() {
		t.remove(e)
	}
}

// sameQuestion reports whether two messages with the same ID have the same question. A
// response may lack it: servers that cannot parse a query leave it out.
func sameQuestion(a, b []byte) bool {
	qa, oka := question(a)
	qb, okb := question(b)
	if !oka || !okb {
		return true
	}
	return wire.SameName(qa[:len(qa)-4], qb[:len(qb)-4]) && bytes.Equal(qa[len(qa)-4:], qb[len(qb)-4:])
}

// question returns the name, type and class of the only question of a message.
func question(message []byte) ([]byte, bool) {
	if binary.BigEndian.Uint16(message[4:]) != 1 {
		return nil, false
	}
	for off := wire.HeaderLen; off < len(message); off += int(message[off]) + 1 {
		switch {
		case message[off] == 0 && off+5 <= len(message):
			return message[wire.HeaderLen : off+5], true
		case message[off] == 0, message[off] > 63, off-wire.HeaderLen > 255:
			return nil, false
		}
	}
	return nil, false
}
