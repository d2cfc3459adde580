package dnstap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	framestream "github.com/farsightsec/golang-framestream"
	"github.com/seamark/seamark/sys/clock"
)

// maxFrame is the size of the largest frame that is read: two DNS messages and more. Larger
// ones are discarded.
const maxFrame = 256 << 10

// maxSenders is the number of servers that may be connected at a time.
const maxSenders = 16

// Read passes the payload of each frame of a file to yield until it returns false. The payload
// is valid during the call; it is nil for a frame that is too large. It returns an error
// unless the stream ends with a STOP frame or between two frames.
func Read(r io.Reader, yield func(payload []byte) bool) error {
	frames, err := framestream.NewReader(r, &framestream.ReaderOptions{ContentTypes: [][]byte{[]byte(contentType)}})
	if err != nil {
		return fmt.Errorf("want a Frame Streams file of dnstap messages: %w", handshakeError(err))
	}
	return readFrames(frames, yield)
}

func handshakeError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, framestream.ErrDecode):
		return errors.New("it does not begin with a control frame")
	case errors.Is(err, framestream.ErrContentTypeMismatch):
		return errors.New("the frames have another content type")
	}
	return err
}

func readFrames(frames *framestream.Reader, yield func(payload []byte) bool) error {
	buf := make([]byte, maxFrame)
	for {
		n, err := frames.ReadFrame(buf)
		payload := buf[:n]
		switch {
		case errors.Is(err, framestream.ErrDataFrameTooLarge):
			payload = nil
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the stream ends within a frame")
		case err != nil:
			return fmt.Errorf("reading frames: %w", err)
		}
		if !yield(payload) {
			return nil
		}
	}
}

// A Receiver receives the messages of servers that connect to it.
type Receiver struct {
	listener net.Listener
	// Connected is called when a server has connected, and Disconnected when its stream has ended,
	// with nil if the server closed it.
	Connected    func(sender string)
	Disconnected func(sender string, err error)
}

// NewReceiver listens on s, without TLS.
func NewReceiver(s Socket) (*Receiver, error) {
	l, err := net.Listen(s.Network, s.Address)
	if err != nil {
		return nil, err
	}
	return &Receiver{listener: l, Connected: func(string) {}, Disconnected: func(string, error) {}}, nil
}

// Address returns the address that r listens on.
func (r *Receiver) Address() net.Addr { return r.listener.Addr() }

// Receive passes the payload of each frame to yield, one at a time, until ctx ends or yield
// returns false. It closes the listener and the connections.
func (r *Receiver) Receive(ctx context.Context, yield func(payload []byte) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = r.listener.Close() })()

	var one sync.Mutex
	ended := false
	pass := func(payload []byte) bool {
		one.Lock()
		defer one.Unlock()
		if ended = ended || ctx.Err() != nil || !yield(payload); ended {
			cancel()
		}
		return !ended
	}

	slots := make(chan struct{}, maxSenders)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer cancel() // before Wait
	for {
		conn, err := r.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			clock.Sleep(ctx, minDelay) // for example too many open files
			continue
		}

		select {
		case slots <- struct{}{}:
		default:
			r.Disconnected(sender(conn), fmt.Errorf("rejected: %d servers are connected", maxSenders))
			_ = conn.Close()
			continue
		}

		senders.Go(func() {
			defer func() { <-slots }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			defer conn.Close()
			if err := r.serve(conn, pass); ctx.Err() == nil {
				r.Disconnected(sender(conn), err)
			}
		})
	}
}

func (r *Receiver) serve(conn net.Conn, yield func(payload []byte) bool) error {
	frames, err := framestream.NewReader(conn, &framestream.ReaderOptions{
		ContentTypes: [][]byte{[]byte(contentType)}, Bidirectional: true, Timeout: timeout,
	})
	if err != nil {
		return fmt.Errorf("no stream of dnstap messages: %w", handshakeError(err))
	}
	r.Connected(sender(conn))
	return readFrames(frames, yield)
}

// sender returns the address of a server that is connected.
func sender(conn net.Conn) string {
	if conn.RemoteAddr().Network() == "unix" {
		return "a server"
	}
	return conn.RemoteAddr().String()
}

// Close closes the listener of a Receiver that does not receive.
func (r *Receiver) Close() error { return r.listener.Close() }
