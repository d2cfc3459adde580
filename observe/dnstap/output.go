package dnstap

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	framestream "github.com/farsightsec/golang-framestream"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/transport"
)

const (
	// timeout bounds connecting to a receiver, and each write.
	timeout = 5 * time.Second
	// stopTimeout bounds how long Stop waits for a receiver.
	stopTimeout = 2 * time.Second
	// minDelay and maxDelay bound the time between two attempts to connect.
	minDelay, maxDelay = 100 * time.Millisecond, 10 * time.Second
	// logInterval is the least time between two log messages about lost messages.
	logInterval = 10 * time.Second
)

// contentType is the content type of the frames.
const contentType = "protobuf:dnstap.Dnstap"

const (
	// queueCount and queueBytes bound the messages that wait for one receiver, for each
	// unit of the queue's size.
	queueCount = 10_000
	queueBytes = 4 << 20
)

// A queue holds messages for one receiver until it accepts them.
type queue struct {
	maxCount, maxBytes int
	lost               *Lost
	wake               follow.Signal
	memory             *memory.Budget // nil for a receiver of the configuration
	client             netip.Addr     // the receiver, as the budget counts it

	mu       sync.Mutex
	pending  []byte // messages, each after its length
	count    int
	reserved int // bytes of pending, and as many of the messages that are being sent
}

// Send queues an encoded message, which it does not keep. It does not block: without room
// the message is lost.
func (t *queue) Send(payload []byte) {
	t.mu.Lock()
	size := len(t.pending) + 4 + len(payload)
	fits := t.count < t.maxCount && size <= t.maxBytes && t.reserve(size)
	if fits {
		t.pending = binary.BigEndian.AppendUint32(t.pending, uint32(len(payload)))
		t.pending = append(t.pending, payload...)
		t.count++
	}
	t.mu.Unlock()
	if !fits {
		t.lost.add(1)
		return
	}
	t.wake.Send()
}

// reserveStep is the least by which the memory of a queue grows: not each message asks for more.
const reserveStep = 64 << 10

// reserve reports whether there is memory for bytes of messages. The caller holds the lock.
func (t *queue) reserve(bytes int) bool {
	if bytes <= t.reserved {
		return true
	}
	more := max(bytes-t.reserved, reserveStep)
	if t.memory.ReserveReply(t.client, 2*int64(more)) != nil {
		return false
	}
	t.reserved += more
	return true
}

// release ends the use of a queue to which nothing is sent any more.
func (t *queue) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memory.ReleaseReply(t.client, 2*int64(t.reserved))
	t.reserved = 0
}

// take returns all messages, and keeps spare for others.
func (t *queue) take(spare []byte) (messages []byte, count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	messages, count = t.pending, t.count
	t.pending, t.count = spare[:0], 0
	return messages, count
}

// loseRest counts the messages that wait as lost.
func (t *queue) loseRest() {
	if _, count := t.take(nil); count > 0 {
		t.lost.add(count)
	}
}

// stream sends messages over a connection until it fails or ctx ends. When ctx ends, it
// has stopTimeout to send the messages that wait and to close the stream.
func (t *queue) stream(ctx context.Context, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, func() { _ = conn.Close() }) })()
	w, err := framestream.NewWriter(conn, &framestream.WriterOptions{
		ContentTypes: [][]byte{[]byte(contentType)}, Bidirectional: true, Timeout: timeout,
	})
	if err != nil {
		return err
	}

	var spare []byte
	for {
		ended := false
		select {
		case <-t.wake:
		case <-ctx.Done():
			ended = true
		}

		messages, count := t.take(spare)
		spare = messages
		if err := writeFrames(w, messages); err != nil {
			t.lost.add(count) // the receiver may have got some of them
			return err
		}
		if ended {
			return w.Close()
		}
	}
}

// writeFrames sends messages, each after its length.
func writeFrames(w *framestream.Writer, messages []byte) error {
	for len(messages) > 0 {
		n := 4 + binary.BigEndian.Uint32(messages)
		if _, err := w.WriteFrame(messages[4:n]); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return w.Flush()
}

// Lost counts and logs messages that no receiver got.
type Lost struct {
	counter *metrics.Counter
	log     *slog.Logger
	socket  string

	mu     sync.Mutex
	count  int       // since logged
	logged time.Time // the last log message
}

// NewLost returns a Lost for a socket.
func NewLost(counter *metrics.Counter, log *slog.Logger, s Socket) *Lost {
	return &Lost{counter: counter, log: log, socket: s.Text}
}

func (l *Lost) add(n int) {
	l.counter.Add(uint64(n))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += n
	if now := time.Now(); now.Sub(l.logged) >= logInterval {
		l.log.Warn("dnstap: Lost messages", "address", l.socket, "count", l.count)
		l.count, l.logged = 0, now
	}
}

// A Sender sends messages to a receiver that it connects to.
type Sender struct {
	*queue
	socket Socket
	task   *follow.Task
}

// NewSender starts a Sender. It queues up to queueSize times 10,000 messages, of together
// at most queueSize times 4 MB, and sets the size of the send buffer of a TCP connection.
func NewSender(s Socket, queueSize, writeBuffer int, lost *Lost) *Sender {
	t := &Sender{queue: newQueue(queueSize, lost), socket: s}
	t.task = follow.Go(func(ctx context.Context) { t.run(ctx, writeBuffer) })
	return t
}

func newQueue(size int, lost *Lost) *queue {
	return &queue{maxCount: size * queueCount, maxBytes: size * queueBytes, lost: lost, wake: follow.NewSignal()}
}

// Stop implements config.Stopper. It sends the messages that wait.
func (t *Sender) Stop() { t.task.Stop() }

// run connects to the receiver, again after each failure.
func (t *Sender) run(ctx context.Context, writeBuffer int) {
	delay := minDelay
	failed := false
	for {
		conn, err := t.socket.dial(ctx)
		if err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(writeBuffer)
			}
			if failed {
				t.lost.log.Info("dnstap: Connected to receiver", "address", t.socket.Text)
			}

			connected := time.Now()
			err = t.stream(ctx, conn)
			_ = conn.Close()
			if time.Since(connected) > maxDelay {
				delay, failed = minDelay, false
			}
		}
		if ctx.Err() != nil {
			t.loseRest()
			return
		}

		if !failed {
			t.lost.log.Error("dnstap: Failed to send messages to receiver", "address", t.socket.Text, "error", err)
		}
		failed = true
		clock.Sleep(ctx, delay)
		delay = min(2*delay, maxDelay)
	}
}

// A Socket is an address of a receiver, or one that receivers connect to.
type Socket struct {
	Text             string // as in the configuration
	Network, Address string // of package net
	TLS              bool
	SkipVerify       bool // do not verify the receiver's certificate
}

func (s Socket) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if s.TLS {
		d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.SkipVerify}}
		return d.DialContext(ctx, s.Network, s.Address)
	}
	var d net.Dialer
	return d.DialContext(ctx, s.Network, s.Address)
}

// maxReceivers is the number of receivers that may be connected to a Listener. At the limit a new
// one takes the place of the last one of the client that has most, if that has more.
const maxReceivers = 8

// A Listener sends messages to receivers that connect to it. It implements config.Socket.
type Listener struct {
	address    string // of config.Start.Listen
	socket     net.Listener
	limited    net.Listener // socket, with the limits of receivers
	conns      *transport.ConnTable
	crypto     *slots.Pool
	encryption atomic.Pointer[tls.Config] // nil without TLS
	memory     *memory.Budget             // messages that wait are replies that clients have not read; may be nil
	lost       *Lost
	task       follow.Task

	mu        sync.Mutex
	terms     any // of the last call of Serve; nil before the first
	receivers map[*queue]net.Conn
}

// NewListener opens the address at. The first call of Serve begins to accept receivers.
func NewListener(s *config.Start, at Socket, lost *Lost, budget *memory.Budget) (*Listener, error) {
	address := at.Address
	if at.Network == "unix" {
		address = "unix:" + address
	}
	l, _, err := s.Listen(address)
	if err != nil {
		return nil, err
	}

	conns := transport.NewConnTable(transport.ConnLimits{
		Most: func() int { return maxReceivers }, Descriptors: s.Descriptors, Metrics: s.Metrics,
	})
	return &Listener{
		address: address, socket: l, limited: transport.LimitListener(l, conns), conns: conns, crypto: s.Crypto,
		memory: budget, lost: lost, receivers: map[*queue]net.Conn{},
	}, nil
}

// Serve begins to accept receivers. They use TLS unless config, which returns the present configuration, is nil.
// A later call with other terms, a comparable value that identifies config, disconnects the receivers, which may
// connect again; one with the same terms does nothing.
func (t *Listener) Serve(terms any, config func() *tls.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.terms == terms {
		return
	}

	var encryption *tls.Config
	if config != nil {
		encryption = &tls.Config{
			MinVersion: tls.VersionTLS12, GetConfigForClient: transport.LimitHandshakes(t.crypto, config),
		}
	}
	t.encryption.Store(encryption)
	if t.terms == nil {
		t.task.Go(t.accept)
	}
	for _, conn := range t.receivers {
		_ = conn.Close()
	}
	t.terms = terms
}

// Socket implements config.Socket.
func (t *Listener) Socket() (address string, f *os.File, err error) {
	f, err = t.socket.(interface{ File() (*os.File, error) }).File()
	return t.address, f, err
}

// Stop implements config.Stopper. It sends the messages that wait.
func (t *Listener) Stop() {
	t.task.Cancel()
	_ = t.socket.Close()
	t.task.Wait()
	t.conns.Stop()
	config.RemoveSocket(t.address)
}

func (t *Listener) accept(ctx context.Context) {
	for {
		conn, err := t.limited.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(minDelay) // for example too many open files
			continue
		}
		encryption := t.encryption.Load()
		if encryption != nil {
			conn = tls.Server(conn, encryption)
		}
		t.task.Go(func(context.Context) {
			defer conn.Close()
			t.serve(ctx, conn, encryption)
		})
	}
}

func (t *Listener) serve(ctx context.Context, conn net.Conn, encryption *tls.Config) {
	q := newQueue(1, t.lost)
	q.memory, q.client = t.memory, slots.Client(transport.AddrPort(conn.RemoteAddr()).Addr())
	t.mu.Lock()
	if t.encryption.Load() != encryption { // it was accepted on other terms
		t.mu.Unlock()
		return
	}
	t.receivers[q] = conn
	t.mu.Unlock()

	transport.SetBusy(conn, true) // a new one of the same client does not take its place
	err := q.stream(ctx, conn)
	t.mu.Lock()
	delete(t.receivers, q)
	t.mu.Unlock()
	q.release()
	if ctx.Err() == nil {
		q.loseRest()
		t.lost.log.Info("dnstap: Receiver disconnected",
			"address", t.lost.socket, "client", conn.RemoteAddr(), "error", err)
	}
}

// Send queues a message for each receiver that is connected.
func (t *Listener) Send(payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.receivers {
		r.Send(payload)
	}
}
