package streams

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
)

const (
	// smallMessage is the size, with the length, up to which a message does not count as
	// large. quic-go copies a reply of this size, so that writing it does not wait.
	smallMessage = 1400
	// maxLarge bounds the large queries of all connections that are being received. With little
	// memory there may be fewer.
	maxLarge, minLarge = 64, 4
)

var errBusy = errors.New("too many queries of other clients are being received")

// requestsIn returns how many requests the memory for connections of a kind has room for: at most
// most, and some in any case.
func (l *listener) requestsIn(most int, kind memory.Consumer) int64 {
	return min(int64(most), max(fewestRequests, l.o.Memory.Max(kind)/requestBytes))
}

// fewestRequests is more than one client sends at once.
const fewestRequests = 64

// load counts what clients of a listener have it keep while they send and read slowly.
type load struct {
	large  *slots.Pool    // for large queries
	memory *memory.Budget // for large replies, of which it gives each client a share
}

// readBody reads the body of a client's request with at most most bytes. The error is an
// *http.MaxBytesError if there are more, and errBusy if too many large ones are being received.
func (l *listener) readBody(w http.ResponseWriter, r *http.Request, client netip.Addr, most int64) ([]byte, error) {
	size := int64(smallMessage)
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength+1) // of which the last one is not received
	}
	b := make([]byte, size)
	for n := 0; n < len(b); {
		more, err := r.Body.Read(b[n:])
		n += more
		if err == io.EOF {
			return b[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}

	// The rest of a large query waits for one of the places.
	ctx, cancel := context.WithTimeout(r.Context(), l.o.MessageTimeout)
	defer cancel()
	if l.load.large.Acquire(ctx, client) != nil {
		return nil, cmp.Or(r.Context().Err(), errBusy)
	}
	defer l.load.large.Release(client)
	rest := bytes.NewBuffer(b)
	_, err := rest.ReadFrom(http.MaxBytesReader(w, r.Body, most-size))
	return rest.Bytes(), err
}

// enqueue counts a reply that waits for its client, if it is large. It reports whether the large
// replies of all connections, and of the client, are within their bounds. The caller must call
// dequeue with the bytes that it returns.
func (l *load) enqueue(client netip.Addr, reply []byte) (reserved int64, ok bool) {
	size := int64(len(reply))
	if size <= smallMessage {
		return 0, true
	}
	if l.memory.ReserveReply(slots.Client(client), size) != nil {
		return 0, false
	}
	return size, true
}

func (l *load) dequeue(client netip.Addr, reserved int64) {
	if reserved > 0 {
		l.memory.ReleaseReply(slots.Client(client), reserved)
	}
}
