package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// A scriptedSocket is the socket of a client that sends a stream in pieces. The sizes of
// the pieces repeat; before one of size zero, a read would block.
type scriptedSocket struct {
	stream []byte
	sizes  []byte
	reads  int
	closed chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
	writes int
}

func (s *scriptedSocket) tryRead(p []byte) (int, error) {
	if len(s.sizes) > 0 && s.sizes[s.reads%len(s.sizes)] == 0 {
		s.reads++
		return 0, errWouldBlock
	}
	return s.Read(p)
}

func (s *scriptedSocket) Read(p []byte) (int, error) {
	if len(s.stream) == 0 {
		return 0, io.EOF
	}
	size := len(p)
	if len(s.sizes) > 0 {
		size = max(1, int(s.sizes[s.reads%len(s.sizes)]))
		s.reads++
	}
	n := copy(p[:min(len(p), size)], s.stream)
	s.stream = s.stream[n:]
	return n, nil
}

// tryWrite accepts all bytes and half of them by turns.
func (s *scriptedSocket) tryWrite(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	n := len(p) >> (s.writes % 2)
	s.output.Write(p[:n])
	return n
}

func (s *scriptedSocket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

func (s *scriptedSocket) Close() error                     { close(s.closed); return nil }
func (s *scriptedSocket) CloseRead() error                 { return nil }
func (s *scriptedSocket) CloseWrite() error                { return nil }
func (s *scriptedSocket) SetLinger(int) error              { return nil }
func (s *scriptedSocket) SetReadDeadline(time.Time) error  { return nil }
func (s *scriptedSocket) SetWriteDeadline(time.Time) error { return nil }
func (s *scriptedSocket) cork()                            {}

// A replyRecorder receives the reply of one parked query.
type replyRecorder chan []byte

func (r replyRecorder) Send(q *dns.Query) { r <- bytes.Clone(q.Reply()) }

// splitStream returns the complete messages of a stream.
func splitStream(stream []byte) (messages [][]byte) {
	for len(stream) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(stream))
		if end > len(stream) {
			break
		}
		messages = append(messages, stream[2:end])
		stream = stream[end:]
	}
	return messages
}

// FuzzStream sends a stream over a TCP connection. However the stream is split, the replies
// are the replies to the messages before the first that is not a query, each served alone.
// Replies of parked queries have any order, other replies the order of the queries.
func FuzzStream(f *testing.F) {
	s := &server{lot: dns.NewParkingLot(1000), wait: &waiting{gate: make(chan struct{})}, seen: new(observing)}
	close(s.wait.gate)
	var err error
	if s.Listener, err = Listen(f.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{Portable: true, MaxInFlight: 2}); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Stop)
	s.Port().Swap(s.mux(1))

	query := func(name string, qtype uint16) []byte {
		packet, err := newQuery(name, qtype).SetEdns0(4096, false).Pack()
		if err != nil {
			f.Fatal(err)
		}
		return packet
	}
	inline, parked, long := query("a.in.", mdns.TypeA), query("a.wait.", mdns.TypeA), query("500.in.", mdns.TypeTXT)
	reply := slices.Clone(inline)
	reply[2] |= 0x80
	padded := append(slices.Clone(inline), make([]byte, 3*inSize)...)
	for _, messages := range [][][]byte{
		{inline}, {inline, inline, parked, inline}, {parked, parked, parked, parked, parked}, {long, long, inline, long},
		{inline, reply, inline}, {parked, {}, inline}, {inline, padded, inline}, {query("a.panic.", mdns.TypeA), query("a.drop.", mdns.TypeA), inline},
		{query("o.in.", mdns.TypeA), query("a.elsewhere.", mdns.TypeA), inline[:20], inline},
	} {
		var stream []byte
		for _, m := range messages {
			stream = append(stream, framed(m)...)
		}
		for _, sizes := range []string{"", "\x01", "\x00\x03\x20", "\xff", "\x25\x00"} {
			f.Add(stream, []byte(sizes))
			f.Add(stream[:len(stream)-5], []byte(sizes))
		}
	}
	f.Add([]byte(strings.Repeat("\x00", 100)), []byte{})
	f.Add([]byte("\xff\xffGET / HTTP/1.1\r\n"), []byte{3})

	peer := netip.MustParseAddrPort("127.0.0.1:4242")
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		sock := &scriptedSocket{stream: bytes.Clone(stream), sizes: sizes, closed: make(chan struct{})}
		c := newConn(s.Listener, sock, peer, s.Addr())
		if !s.admit(c) {
			t.Fatal("the connection was refused, want it accepted")
		}
		c.run()
		select {
		case <-sock.closed:
		case <-time.After(patience):
			t.Fatalf("stream %x in pieces of %v: the connection was not closed after its end", stream, sizes)
		}
		replies := splitStream(sock.output.Bytes())
		size := 0
		for _, r := range replies {
			size += 2 + len(r)
		}
		if size != sock.output.Len() {
			t.Fatalf("stream %x in pieces of %v: got %x, want complete replies", stream, sizes, sock.output.Bytes())
		}

		next := 0 // reply of a query that is not parked
		for _, m := range splitStream(stream) {
			parked := make(replyRecorder, 1)
			q := dns.NewQuery(parked)
			q.Peer, q.Local = peer, s.Addr()
			q.Reset(bytes.Clone(m), dns.TCP, time.Now())
			outcome, want := serveRecovered(s.Port(), q, nil), []byte(nil)
			switch outcome {
			case dns.Answered:
				want = q.Reply()
			case dns.Parked:
				want = <-parked
			}
			if outcome == dns.Ignored {
				break
			}
			if len(want) == 0 {
				continue
			}
			from := 0
			if outcome == dns.Answered {
				from = next
			}
			i := slices.IndexFunc(replies[from:], func(r []byte) bool { return bytes.Equal(r, want) })
			if i < 0 {
				t.Fatalf("stream %x in pieces of %v:\ngot replies %x\nwant %x for %x", stream, sizes, replies, want, m)
			}
			replies = slices.Delete(replies, from+i, from+i+1)
			if outcome == dns.Answered {
				next = from + i
			} else if i < next {
				next--
			}
		}
		if len(replies) > 0 {
			t.Fatalf("stream %x in pieces of %v: got unexpected replies %x", stream, sizes, replies)
		}
	})
}
