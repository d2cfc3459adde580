package streams

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// smallMessage is the size, with the length, up to which a message does not count as
	// large. quic-go copies a reply of this size, so that writing it does not wait.
	smallMessage = 1400
	// maxLarge bounds the large queries of all connections that are being received.
	maxLarge = 64
	// maxQueued bounds the bytes of all large replies that wait for their clients.
	maxQueued = 16 << 20
	// maxReading bounds the requests of all connections whose bodies are being received.
	maxReading = 2048
)

var errBusy = errors.New("too many queries of other clients are being received")

// load counts what clients of a listener have it keep while they send and read slowly.
type load struct {
	large   chan struct{} // holds an element for each large query
	reading atomic.Int64  // requests whose bodies are being received
	queued  atomic.Int64  // bytes of large replies
}

// readBody reads the body of a request with at most most bytes. The error is an
// *http.MaxBytesError if there are more, and errBusy if a bound of all requests is reached.
func (l *listener) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	defer l.load.reading.Add(-1)
	if l.load.reading.Add(1) > maxReading {
		return nil, errBusy
	}
	body := http.MaxBytesReader(w, r.Body, most)
	var b bytes.Buffer
	if n, err := b.ReadFrom(io.LimitReader(body, smallMessage)); err != nil || n < smallMessage {
		return b.Bytes(), err
	}

	// The rest of a large query waits for one of the places.
	select {
	case l.load.large <- struct{}{}:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(l.o.MessageTimeout):
		return nil, errBusy
	}
	defer func() { <-l.load.large }()
	_, err := b.ReadFrom(body)
	return b.Bytes(), err
}

// enqueue counts a reply that waits for its client. The caller must call dequeue. It reports
// whether the large replies of all connections are within their bound.
func (l *load) enqueue(reply []byte) bool {
	return l.queued.Add(int64(len(reply))) <= maxQueued || len(reply) <= smallMessage
}

func (l *load) dequeue(reply []byte) { l.queued.Add(-int64(len(reply))) }
