package shadow

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"net/netip"
)

// Limits of the TCP connections of a capture that are followed at a time.
const (
	maxStreams     = 4096 // directions
	maxStreamBytes = 64 << 20
)

type streamKey struct{ source, destination netip.AddrPort }

// A stream is one direction of a TCP connection.
type stream struct {
	key  streamKey
	next uint32 // the sequence number of the next byte
	buf  []byte // an incomplete message
}

// streams puts DNS messages together from TCP segments. It follows connections whose beginning is
// in the capture, and whose segments are in order: one that has a gap is ignored from there on.
type streams struct {
	byKey map[streamKey]*list.Element
	order *list.List // of *stream, the one that was used longest ago first
	bytes int
}

func newStreams() *streams {
	return &streams{byKey: map[streamKey]*list.Element{}, order: list.New()}
}

// add passes the messages that s completes to yield. It returns a reason if s cannot be used.
func (t *streams) add(s *segment, yield func(message []byte)) (skipped Skipped) {
	key := streamKey{s.source, s.destination}
	e := t.byKey[key]
	switch {
	case s.rst:
		t.remove(e)
		return ""
	case s.syn:
		t.remove(e)
		t.byKey[key] = t.order.PushBack(&stream{key: key, next: s.sequence + 1})
		if t.order.Len() > maxStreams {
			t.remove(t.order.Front())
		}
		return ""
	case len(s.payload) == 0:
		if s.fin {
			t.remove(e)
		}
		return ""
	case e == nil:
		return SkippedStream
	}

	f := e.Value.(*stream)
	t.order.MoveToBack(e)
	payload := s.payload
	switch behind := int32(f.next - s.sequence); {
	case behind < 0:
		t.remove(e)
		return SkippedStream
	case int(behind) >= len(payload): // sent again
		return ""
	default:
		payload = payload[behind:]
	}

	f.next += uint32(len(payload))
	before := len(f.buf)
	f.buf = append(f.buf, payload...)

	rest := f.buf
	for len(rest) >= 2 {
		size := 2 + int(binary.BigEndian.Uint16(rest))
		if len(rest) < size {
			break
		}
		yield(rest[2:size])
		rest = rest[size:]
	}

	if len(rest) < len(f.buf) {
		f.buf = bytes.Clone(rest) // without the memory of the messages
	}
	t.bytes += len(f.buf) - before

	if s.fin {
		t.remove(e)
	}
	for t.bytes > maxStreamBytes {
		t.remove(t.order.Front())
	}
	return ""
}

func (t *streams) remove(e *list.Element) {
	if e == nil {
		return
	}
	f := t.order.Remove(e).(*stream)
	t.bytes -= len(f.buf)
	delete(t.byKey, f.key)
}
