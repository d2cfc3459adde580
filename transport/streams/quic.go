package streams

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

// Error codes of DNS over QUIC (RFC 9250 §4.3).
const (
	doqNoError          closeCode = 0
	doqProtocolError    closeCode = 2
	doqExcessiveLoad    closeCode = 4
	doqUnspecifiedError closeCode = 5
)

// QUIC serves DNS over QUIC (RFC 9250).
type QUIC struct {
	endpoint
	responses statusCounter
	buffers   sync.Pool     // of *[smallMessage]byte
	waiting   slots.Counter // streams that wait for their clients
}

// ListenQUIC opens addr. The caller must call Stop.
func ListenQUIC(ctx context.Context, addr netip.AddrPort, o Options) (*QUIC, error) {
	l := &QUIC{responses: newStatusCounter(o.Metrics, "coredns_dns_quic_responses_total",
		"Replies over QUIC, and errors, by error code.", o.Name)}
	l.buffers.New = func() any { return new([smallMessage]byte) }
	return l, l.open(ctx, addr, o, protocol{"doq", -1, doqNoError, doqExcessiveLoad}, l.answerAll)
}

// A doqConn is a connection. Its goroutine answers the queries that have been received
// completely. Other streams have goroutines of their own.
type doqConn struct {
	*connection
	l           *QUIC
	peer, local netip.AddrPort
}

// answerAll answers the queries of a connection until one side closes it.
func (l *QUIC) answerAll(conn *connection) {
	c := &doqConn{conn, l, transport.AddrPort(conn.RemoteAddr()), transport.AddrPort(conn.LocalAddr())}
	c.acceptStreams(l.timeouts.Load().MaxQueries, func(s *quic.Stream) { c.answer(s) })
}

// A doqStream is what is used of a stream of package quic.
type doqStream interface {
	io.ReadWriteCloser
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	SetReceiveFinalSizeCallback(func(int64))
}

// answer answers the query of a stream.
func (c *doqConn) answer(s doqStream) {
	q := &doqQuery{c: c, s: s}
	q.size.Store(-1)
	s.SetReceiveFinalSizeCallback(q.size.Store)
	if size := q.size.Load(); size >= 0 && size <= smallMessage {
		q.receive(func(reply []byte) { c.wait(q, func() { q.writeLarge(reply) }) })
		return
	}
	c.wait(q, func() { q.receive(q.writeLarge) })
}

// wait calls do, which may wait for the client, on another goroutine. If there are too many
// it cancels the stream.
func (c *doqConn) wait(q *doqQuery, do func()) {
	client := c.peer.Addr()
	if !c.l.waiting.TryAdd(client, c.l.requestsIn(c.l.limits.Load().Workers, memory.QUIC)) {
		q.cancel(doqExcessiveLoad)
		return
	}
	c.running.Go(func() {
		defer c.l.waiting.Done(client)
		do()
	})
}

// A doqQuery is a stream: one query and its reply. It sends the reply of a parked query.
type doqQuery struct {
	c       *doqConn
	s       doqStream
	size    atomic.Int64 // of what the client sends; -1 while it is not known
	written bool         // Stream has written a part of the reply
	// cancelled is set if the client has not accepted a part of the reply.
	cancelled bool
}

// cancel finishes the stream without a reply.
func (q *doqQuery) cancel(code closeCode) {
	q.s.CancelRead(quic.StreamErrorCode(code))
	q.s.CancelWrite(quic.StreamErrorCode(code))
	q.c.finish()
}

// fail closes the connection because the client has violated the protocol, and finishes the
// stream.
func (q *doqQuery) fail() {
	q.c.protocolError()
	q.cancel(doqProtocolError)
}

func (c *doqConn) protocolError() {
	c.l.responses.add(doqProtocolError)
	c.end(doqProtocolError)
}

// receive reads the query and answers it. It calls write for a large reply.
func (q *doqQuery) receive(write func([]byte)) {
	l := q.c.l
	timeout := l.timeouts.Load().MessageTimeout
	_ = q.s.SetReadDeadline(time.Now().Add(timeout))
	small := l.buffers.Get().(*[smallMessage]byte)
	defer l.buffers.Put(small)

	n, err := io.ReadFull(q.s, small[:2])
	message := small[2:]
	if size := int(binary.BigEndian.Uint16(small[:])); size <= len(message) {
		message = message[:size]
	} else if n == 2 {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		client := q.c.peer.Addr()
		if l.load.large.Acquire(ctx, client) != nil {
			q.cancel(doqExcessiveLoad)
			return
		}
		defer l.load.large.Release(client)
		message = make([]byte, size)
	}

	if err == nil {
		_, err = io.ReadFull(q.s, message)
	}
	end := q.size.Load() // -1 if it is not known
	isOne := isQuery(message) && (end < 0 || end == int64(2+len(message)))

	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.sessions.CountSlowSender()
		q.cancel(doqExcessiveLoad)
	case err == io.EOF, err == io.ErrUnexpectedEOF, err == nil && !isOne:
		q.fail()
	case err != nil: // the client has cancelled the query, or the connection is closed
		q.cancel(doqUnspecifiedError)
	default:
		q.serve(message, write)
		q.awaitEnd(small[:1])
	}
}

// serve answers the query. It calls write for a large reply.
func (q *doqQuery) serve(message []byte, write func([]byte)) {
	var large []byte
	use := func(r *dns.Query) { large = q.reply(r) }
	from := transport.Origin{Peer: q.c.peer, Local: q.c.local, Encrypted: true}
	if q.c.l.Messages.Serve(message, from, q, use) == dns.Ignored {
		q.fail()
	} else if large != nil {
		write(large)
	}
}

// awaitEnd reads the end of what the client sends, which may come after the reply. one has one
// byte.
func (q *doqQuery) awaitEnd(one []byte) {
	switch n, err := q.s.Read(one); {
	case n > 0: // more than one message
		q.c.protocolError()
	case err != io.EOF:
		q.s.CancelRead(quic.StreamErrorCode(doqNoError))
	}
}

// isQuery reports whether message may be a query: its ID is 0 (RFC 9250 §4.2.1).
func isQuery(message []byte) bool {
	return len(message) >= wire.HeaderLen && binary.BigEndian.Uint16(message) == 0
}

// reply writes a reply, or returns it if it is large.
func (q *doqQuery) reply(r *dns.Query) (large []byte) {
	reply := r.Reply()
	if wire.HasOption(r.Request.Options(r.Packet()), wire.OptionKeepalive) { // RFC 9250 §5.5.2
		q.fail()
		return nil
	}
	switch {
	case len(reply) == 0:
		q.cancel(doqUnspecifiedError)
		return nil
	case q.written || 2+len(reply) > smallMessage:
		return framed(make([]byte, 0, 2+len(reply)), reply)
	}
	small := q.c.l.buffers.Get().(*[smallMessage]byte)
	defer q.c.l.buffers.Put(small)
	q.write(framed(small[:0], reply))
	return nil
}

// framed appends a message and its length.
func framed(b, message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(message))), message...)
}

// write writes the last message, with its length, and finishes the stream.
func (q *doqQuery) write(framed []byte) {
	if q.tryWrite(framed) != nil {
		return
	}
	q.c.l.responses.add(doqNoError)
	_ = q.s.Close()
	q.c.finish()
}

// tryWrite writes a message with its length. If the client does not accept it in time, it
// resets the stream and returns an error.
func (q *doqQuery) tryWrite(framed []byte) error {
	_, err := q.s.Write(framed)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			q.c.l.sessions.CountSlowReader()
		}
		q.cancelled = true
		q.cancel(doqExcessiveLoad)
	}
	return err
}

// writeLarge is like write, and waits for the client.
func (q *doqQuery) writeLarge(framed []byte) {
	l, client := q.c.l, q.c.peer.Addr()
	reserved, ok := l.load.enqueue(client, framed)
	defer l.load.dequeue(client, reserved)
	if !ok {
		q.cancel(doqExcessiveLoad)
		return
	}
	q.c.pace(len(framed))
	_ = q.s.SetWriteDeadline(time.Now().Add(l.timeouts.Load().WriteTimeout))
	q.write(framed)
}

// Send writes the reply of a parked query.
func (q *doqQuery) Send(r *dns.Query) {
	if q.cancelled {
		return
	}
	if large := q.reply(r); large != nil {
		q.writeLarge(large)
	}
}

// Stream writes a message of the reply to a parked query, and waits for the client.
func (q *doqQuery) Stream(message []byte) error {
	q.written = true
	l, client := q.c.l, q.c.peer.Addr()
	framed := framed(make([]byte, 0, 2+len(message)), message)
	reserved, ok := l.load.enqueue(client, framed)
	defer l.load.dequeue(client, reserved)
	if !ok {
		q.cancelled = true
		q.cancel(doqExcessiveLoad)
		return errBusy
	}

	q.c.pace(len(framed))
	_ = q.s.SetWriteDeadline(time.Now().Add(l.timeouts.Load().WriteTimeout))
	return q.tryWrite(framed)
}
