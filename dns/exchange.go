package dns

import (
	"net/netip"
	"time"
)

// An Exchange is a query that a handler has sent to another server, and the reply.
type Exchange struct {
	Upstream, Local netip.AddrPort // zero if unknown
	Proto           Proto
	Sent, Received  time.Time // Received is zero without a reply
	// Query and Reply are messages in wire form. A Trace gets no Reply if the query that
	// began the exchange is not followed.
	Query, Reply []byte
}

// An ExchangeObserver sees the queries that handlers of its chain send to other servers.
type ExchangeObserver interface {
	// ObserveExchange is called by the goroutine that has q, a query that the exchange
	// was for. It must not keep q or the messages.
	ObserveExchange(q *Query, e *Exchange)
}
