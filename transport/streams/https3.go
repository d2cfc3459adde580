package streams

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/transport"
)

// maxRequests bounds the requests of all connections of an HTTPS3.
const maxRequests = 2048

// HTTPS3 serves DNS over HTTP/3.
type HTTPS3 struct {
	endpoint
	handler  http.Handler
	requests slots.Counter
}

// ListenHTTPS3 opens addr. The caller must call Stop.
func ListenHTTPS3(ctx context.Context, addr netip.AddrPort, o Options) (*HTTPS3, error) {
	l := new(HTTPS3)
	responses := newStatusCounter(o.Metrics, "coredns_dns_https3_responses_total",
		"Replies over HTTP/3, by HTTP status.", o.Name)
	l.handler = &queries{&l.listener, responses}
	h3 := protocol{
		name:     http3.NextProtoH3,
		streams:  8, // HTTP/3 needs three; others are ignored
		none:     closeCode(http3.ErrCodeNoError),
		overload: closeCode(http3.ErrCodeExcessiveLoad),
	}
	return l, l.open(ctx, addr, o, h3, l.answerAll)
}

// answerAll answers the requests of a connection until one side closes it.
func (l *HTTPS3) answerAll(c *connection) {
	server := http3.Server{Handler: pacedHandler{l.handler, c}, MaxHeaderBytes: maxHeaderBytes}
	conn, err := server.NewRawServerConn(c.Conn)
	if err != nil {
		_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeInternalError), "")
		return
	}

	c.running.Go(func() {
		for {
			s, err := c.AcceptUniStream(c.Context())
			if err != nil {
				return
			}
			c.running.Go(func() { conn.HandleUnidirectionalStream(s) })
		}
	})

	client := transport.AddrPort(c.RemoteAddr()).Addr()
	c.acceptStreams(0, func(s *quic.Stream) {
		if !l.requests.TryAdd(client, l.requestsIn(maxRequests, memory.QUIC)) {
			s.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
			s.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
			c.finish()
			return
		}

		now, timeouts := time.Now(), l.timeouts.Load()
		_ = s.SetReadDeadline(now.Add(timeouts.MessageTimeout))
		_ = s.SetWriteDeadline(now.Add(timeouts.MessageTimeout + maxWait + timeouts.WriteTimeout))

		c.running.Go(func() {
			defer c.finish()
			defer l.requests.Done(client)
			conn.HandleRequestStream(s)
		})
	})
}
