package dnstap

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	framestream "github.com/farsightsec/golang-framestream"

	"github.com/seamark/seamark/metrics"
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
	wake               chan struct{} // capacity 1

	mu      sync.Mutex
	pending []byte // messages, each after its length
	count   int
}

// Send queues an encoded message, which it does not keep. It does not block: without room
// the message is lost.
func (t *queue) Send(payload []byte) {
	t.mu.Lock()
	fits := t.count < t.maxCount && len(t.pending)+4+len(payload) <= t.maxBytes
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
	select {
	case t.wake <- struct{}{}:
	default:
	}
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
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, func() { _ = conn.Close() }) })
	defer stop()
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
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewSender starts a Sender. It queues up to queueSize times 10,000 messages, of together
// at most queueSize times 4 MB, and sets the size of the send buffer of a TCP connection.
func NewSender(s Socket, queueSize, writeBuffer int, lost *Lost) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Sender{
		queue:  newQueue(queueSize, lost),
		socket: s,
		cancel: cancel,
		ended:  make(chan struct{}),
	}
	go t.run(ctx, writeBuffer)
	return t
}

func newQueue(size int, lost *Lost) *queue {
	return &queue{maxCount: size * queueCount, maxBytes: size * queueBytes, lost: lost, wake: make(chan struct{}, 1)}
}

// Stop implements config.Stopper. It sends the messages that wait.
func (t *Sender) Stop() {
	t.cancel()
	<-t.ended
}

// run connects to the receiver, again after each failure.
func (t *Sender) run(ctx context.Context, writeBuffer int) {
	defer close(t.ended)
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
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
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

// maxReceivers is the number of receivers that may be connected to a Listener.
const maxReceivers = 8

// A Listener sends messages to receivers that connect to it.
type Listener struct {
	listener net.Listener
	lost     *Lost
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu        sync.Mutex
	receivers map[*queue]bool
}

// NewListener listens on s. config is nil without TLS.
func NewListener(s Socket, config *tls.Config, lost *Lost) (*Listener, error) {
	l, err := net.Listen(s.Network, s.Address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Listener{listener: l, lost: lost, cancel: cancel, receivers: map[*queue]bool{}}
	t.tasks.Go(func() { t.accept(ctx) })
	return t, nil
}

// Stop implements config.Stopper. It sends the messages that wait.
func (t *Listener) Stop() {
	t.cancel()
	_ = t.listener.Close()
	t.tasks.Wait()
}

func (t *Listener) accept(ctx context.Context) {
	for {
		conn, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(minDelay) // for example too many open files
			continue
		}
		t.tasks.Go(func() {
			defer conn.Close()
			t.serve(ctx, conn)
		})
	}
}

func (t *Listener) serve(ctx context.Context, conn net.Conn) {
	q := newQueue(1, t.lost)
	t.mu.Lock()
	full := len(t.receivers) == maxReceivers
	if !full {
		t.receivers[q] = true
	}
	t.mu.Unlock()
	if full {
		t.lost.log.Warn("dnstap: Rejected receiver",
			"address", t.lost.socket, "client", conn.RemoteAddr(), "count", maxReceivers)
		return
	}

	err := q.stream(ctx, conn)
	t.mu.Lock()
	delete(t.receivers, q)
	t.mu.Unlock()
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
