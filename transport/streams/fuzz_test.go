package streams

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/wire"
)

// The ways in which a client ends what it sends on a stream.
const (
	endsAtOnce  = iota // the end is received with the data
	endsLater          // the end is not known when the stream is accepted
	neverEnds          // the read deadline passes
	resetStream        // the client resets the stream
	waysToEnd
)

// A scriptedStream is a stream on which a client sends data in pieces of a size.
type scriptedStream struct {
	data []byte
	size int
	end  uint8

	mu      sync.Mutex
	output  bytes.Buffer
	closed  int                    // calls of Close
	reset   []quic.StreamErrorCode // calls of CancelWrite
	stopped bool                   // CancelRead was called
}

func (s *scriptedStream) SetReceiveFinalSizeCallback(f func(int64)) {
	if s.end == endsAtOnce {
		f(int64(len(s.data)))
	}
}

func (s *scriptedStream) Read(p []byte) (int, error) {
	if len(s.data) > 0 {
		n := copy(p[:min(len(p), s.size)], s.data)
		s.data = s.data[n:]
		return n, nil
	}
	switch s.end {
	case neverEnds:
		return 0, os.ErrDeadlineExceeded
	case resetStream:
		return 0, &quic.StreamError{ErrorCode: 3, Remote: true}
	}
	return 0, io.EOF
}

func (s *scriptedStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

func (s *scriptedStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *scriptedStream) CancelWrite(code quic.StreamErrorCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset = append(s.reset, code)
}

func (s *scriptedStream) CancelRead(quic.StreamErrorCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

func (s *scriptedStream) SetReadDeadline(time.Time) error  { return nil }
func (s *scriptedStream) SetWriteDeadline(time.Time) error { return nil }

// A finish is how the server finishes a stream.
type finish struct {
	reset  closeCode // noReset if it replies
	closed bool      // it closes the connection with DOQ_PROTOCOL_ERROR
}

const noReset closeCode = 1 << 32

// wantFinish returns how the server has to finish a stream with data (RFC 9250 §4.2, §4.3 and
// §5.5.2).
func wantFinish(data []byte, end uint8) finish {
	violation := finish{doqProtocolError, true}
	size := 2
	if len(data) >= 2 {
		size += int(binary.BigEndian.Uint16(data))
	}
	switch {
	case len(data) >= size: // the message is complete
	case end == neverEnds:
		return finish{doqExcessiveLoad, false}
	case end == resetStream:
		return finish{doqUnspecifiedError, false}
	default:
		return violation
	}
	message := data[2:size]
	var r wire.Request
	fault := r.Parse(message)
	if fault == wire.Unreadable || r.ID != 0 {
		return violation
	}
	for code := range wire.Options(r.Options(message)) {
		if code == wire.OptionKeepalive {
			return violation
		}
	}
	more := len(data) > size
	switch {
	case more && end == endsAtOnce:
		return violation
	case fault == wire.NoFault && r.Class == wire.ClassIN && inDropped(r.Name()):
		return finish{doqUnspecifiedError, more}
	}
	return finish{noReset, more}
}

// inDropped reports whether a name is in the zone drop.
func inDropped(name []byte) bool {
	for ; name[0] != 0; name = name[1+name[0]:] {
		if string(name) == "\x04drop\x00" {
			return true
		}
	}
	return false
}

// FuzzQUIC sends data on a stream of DNS over QUIC. The server finishes each stream: with one
// reply if the data is a query, with a reset if the client does not complete it, and by closing
// the connection with DOQ_PROTOCOL_ERROR for anything else.
func FuzzQUIC(f *testing.F) {
	s := listen(f, Options{})
	close(s.wait.gate)
	withOption := func(code uint16, size int) []byte {
		m := new(mdns.Msg).SetQuestion("1.in.", mdns.TypeTXT)
		m.Id = 0
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: code, Data: make([]byte, size)})
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		return framed(nil, packet)
	}
	var streams [][]byte
	for _, name := range []string{"1.in.", "20.in.", "600.in.", "1.wait.", "600.wait.", "a.drop.", "a.elsewhere."} {
		streams = append(streams, query(f, name))
	}
	one := streams[0]
	withID, reply, notify, noQuestion := bytes.Clone(one), bytes.Clone(one), bytes.Clone(one), bytes.Clone(one)
	withID[3], reply[4], notify[4], noQuestion[7] = 1, 0x80, 4<<3, 0
	streams = append(streams, withID, reply, notify, noQuestion, one[:1], one[:20], nil, []byte{0, 0}, append(bytes.Clone(one), 0), append(bytes.Clone(one), one...),
		append([]byte{0xff, 0xff}, one...), withOption(wire.OptionKeepalive, 2), withOption(wire.OptionPadding, 100), withOption(wire.OptionPadding, 2000))
	for _, data := range streams {
		for end := range uint8(waysToEnd) {
			f.Add(data, end, uint8(0))
			f.Add(data, end, uint8(7))
		}
	}

	f.Fuzz(func(t *testing.T, data []byte, end, size uint8) {
		stream := &scriptedStream{data: bytes.Clone(data), end: end % waysToEnd, size: cmp.Or(int(size), len(data))}
		c := &doqConn{connection: &connection{Session: s.sessions.Add(t.Context(), new(net.UDPAddr), func() {}), stats: func() quic.ConnectionStats { return quic.ConnectionStats{} }, running: new(sync.WaitGroup), idle: make(chan struct{})}, l: s.QUIC}
		defer s.sessions.Remove(c.Session)
		c.ctx, c.end = context.WithCancelCause(t.Context())
		defer c.end(nil)
		c.refs.Store(1)
		c.StartQuery()
		c.answer(stream)
		select {
		case <-c.idle:
		case <-time.After(patience):
			t.Fatalf("stream %x, end %d: the server has not finished it", data, stream.end)
		}
		c.running.Wait()
		stream.check(t, data, context.Cause(c.ctx))
	})
}

// check fails the test unless the server has finished the stream as it has to. cause is that of
// the end of the connection; nil if it is open.
func (s *scriptedStream) check(t *testing.T, data []byte, cause error) {
	got, want := finish{noReset, cause == doqProtocolError}, wantFinish(data, s.end)
	if len(s.reset) > 0 {
		got.reset = closeCode(s.reset[0])
	}
	if got != want || s.closed+len(s.reset) != 1 || cause != nil && !got.closed {
		t.Fatalf("stream %x, end %d: got %+v, %d ends, resets %v, connection error %v; want %+v once", data, s.end, got, s.closed, s.reset, cause, want)
	}
	if want.reset != noReset {
		return
	}
	reply := s.output.Bytes()
	m := new(mdns.Msg)
	if len(reply) < 2 || int(binary.BigEndian.Uint16(reply)) != len(reply)-2 {
		t.Fatalf("stream %x: got %x, want one message with its length", data, reply)
	}
	if err := m.Unpack(reply[2:]); err != nil || m.Id != 0 || !m.Response {
		t.Fatalf("stream %x: got reply %v, error %v; want a response with the ID 0", data, m, err)
	}
	if s.end == neverEnds && !want.closed && !s.stopped {
		t.Errorf("stream %x: the server waits for the end after its reply", data)
	}
}
