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
	// maxReading bounds the requests of all connections whose bodies are being received; one client has
	// half of it at most.
	maxReading = 2048
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
	large   *slots.Pool    // for large queries
	reading slots.Counter  // requests whose bodies are being received
	memory  *memory.Budget // for replies, of which it gives each client a share
}

// readBody reads the body of a request with at most most bytes. The error is an
// *http.MaxBytesError if there are more, and errBusy if a bound of all requests is reached.
func (l *listener) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	client := origin(r).Peer.Addr()
	if !l.load.reading.TryAdd(client, l.requestsIn(maxReading, memory.HTTPS)) {
		return nil, errBusy
	}
	defer l.load.reading.Done(client)

	body := http.MaxBytesReader(w, r.Body, most)
	var b bytes.Buffer
	if n, err := b.ReadFrom(io.LimitReader(body, smallMessage)); err != nil || n < smallMessage {
		return b.Bytes(), err
	}

	// The rest of a large query waits for one of the places.
	ctx, cancel := context.WithTimeout(r.Context(), l.o.MessageTimeout)
	defer cancel()
	if l.load.large.Acquire(ctx, client) != nil {
		return nil, cmp.Or(r.Context().Err(), errBusy)
	}
	defer l.load.large.Release(client)
	_, err := b.ReadFrom(body)
	return b.Bytes(), err
}

// enqueue counts a reply that waits for its client. It reports whether the large replies of all
// connections, and of the client, are within their bounds. The caller must call dequeue with the
// bytes that it returns.
func (l *load) enqueue(client netip.Addr, reply []byte) (reserved int64, ok bool) {
	size := int64(len(reply))
	if l.memory.ReserveReply(slots.Client(client), size) != nil {
		return 0, size <= smallMessage
	}
	return size, true
}

func (l *load) dequeue(client netip.Addr, reserved int64) {
	l.memory.ReleaseReply(slots.Client(client), reserved)
}
