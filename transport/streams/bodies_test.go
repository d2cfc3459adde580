package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/transport"
)

// bodyListener returns a listener that reads bodies.
func bodyListener(timeout time.Duration) *listener {
	l := &listener{o: Options{Options: transport.Options{Limits: transport.Limits{MessageTimeout: timeout}}}}
	l.load.large = slots.New(maxLarge, maxLarge/4)
	return l
}

func (l *listener) readFrom(body io.Reader) ([]byte, error) { return l.readOf("192.0.2.1", body) }

// readOf is readFrom for a client at an address.
func (l *listener) readOf(client string, body io.Reader) ([]byte, error) {
	return l.readLength(client, body, -1)
}

// readLength is readOf for a body with a declared length; -1 is none.
func (l *listener) readLength(client string, body io.Reader, length int64) ([]byte, error) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = io.NopCloser(body), length
	return l.readBody(httptest.NewRecorder(), r, netip.MustParseAddr(client), 65535)
}

// Incomplete large bodies keep a bounded number of buffers, and do not delay small ones.
func TestBodiesLargeIncomplete(t *testing.T) {
	l := bodyListener(50 * time.Millisecond)
	const most = maxLarge / 4 // of one client
	ended := make(chan error, most)
	var writers []*io.PipeWriter
	for range most {
		body, w := io.Pipe()
		writers = append(writers, w)
		go func() {
			b, err := l.readFrom(body)
			if err == nil && len(b) != 60001 {
				err = errors.New("another length than 60001")
			}
			ended <- err
		}()
		if _, err := w.Write(make([]byte, 60000)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.readFrom(bytes.NewReader(make([]byte, 60000))); err != errBusy {
		t.Errorf("large body beside %d others: got error %v, want %v", most, err, errBusy)
	}
	if b, err := l.readOf("192.0.2.2", bytes.NewReader(make([]byte, 60000))); err != nil || len(b) != 60000 {
		t.Errorf("large body of another client: got %d bytes, error %v; want 60000", len(b), err)
	}
	if b, err := l.readFrom(bytes.NewReader(make([]byte, 200))); err != nil || len(b) != 200 {
		t.Errorf("small body: got %d bytes, error %v; want 200", len(b), err)
	}
	for _, w := range writers {
		_, _ = w.Write([]byte{0})
		_ = w.Close()
	}
	for range writers {
		if err := <-ended; err != nil {
			t.Errorf("body that is completed: got error %v", err)
		}
	}
	if b, err := l.readFrom(bytes.NewReader(make([]byte, 65535))); err != nil || len(b) != 65535 {
		t.Errorf("large body after them: got %d bytes, error %v; want 65535", len(b), err)
	}
}

func TestBodiesErrors(t *testing.T) {
	l := bodyListener(time.Second)
	var tooLarge *http.MaxBytesError
	if _, err := l.readFrom(bytes.NewReader(make([]byte, 65536))); !errors.As(err, &tooLarge) {
		t.Errorf("65,536 bytes: got error %v, want a MaxBytesError", err)
	}
	for _, size := range []int{0, smallMessage - 1, smallMessage, smallMessage + 1, 65535} {
		for _, length := range []int{-1, size} {
			b, err := l.readLength("192.0.2.1", bytes.NewReader(make([]byte, size)), int64(length))
			if err != nil || len(b) != size {
				t.Errorf("%d bytes, length %d: got %d, error %v", size, length, len(b), err)
			}
		}
		cut := io.MultiReader(bytes.NewReader(make([]byte, size)), errReader{})
		if _, err := l.readFrom(cut); err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes of a longer body: got error %v, want %v", size, err, io.ErrUnexpectedEOF)
		}
	}
}

// An errReader is the body of a request that ends too early.
type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Large replies are bounded, small ones always sent, and one client leaves half of the memory.
func TestRepliesQueued(t *testing.T) {
	l := load{memory: memory.New(1<<30, memory.FromGroup)}
	large, small := make([]byte, 65535), make([]byte, 500)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	fill := func(client netip.Addr) (n int) {
		for ; n < 1000; n++ {
			if _, ok := l.enqueue(client, large); !ok {
				return n
			}
		}
		return n
	}
	first, second := fill(a), fill(b)
	if want := (16 << 20) / len(large); first != want/2 || second != want/4 {
		t.Errorf("got %d and %d large replies, want %d and %d", first, second, want/2, want/4)
	}
	if _, ok := l.enqueue(a, small); !ok {
		t.Error("a small reply is refused")
	}
	for range first {
		l.dequeue(a, int64(len(large)))
	}
	if fill(a) == 0 {
		t.Error("a large reply is refused after the others were sent")
	}
}

// Streams that the client resets before their turn are not answered.
func TestRequestsResetEarly(t *testing.T) {
	l := bodyListener(time.Second)
	responses := newStatusCounter(new(metrics.Registry), "responses", "Replies.", "test")
	for name, h := range map[string]http.Handler{"HTTPS": &queries{l, responses}, "gRPC": grpcQueries{l}} {
		for _, reset := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			if reset {
				cancel()
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPut, "/dns-query", nil))
			cancel()
			if answered := w.Body.Len() > 0; answered == reset {
				t.Errorf("%s: with a reset %v the request is answered: %v", name, reset, answered)
			}
		}
	}
}
