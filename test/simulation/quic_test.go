package simulation

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
)

// A quicConn is a client's connection over QUIC, with its socket.
type quicConn struct {
	*quic.Conn
	transport *quic.Transport
	socket    *packetSocket
}

// dialQUIC opens a connection. A server that was killed does not close those that it had: the client notices
// that after some seconds without a packet.
func (c *streamClient) dialQUIC(ctx context.Context, config *tls.Config) (*quicConn, error) {
	socket, err := c.world.server.connectPackets(netip.AddrFrom4([4]byte{10, 250, 9, 2}))
	if err != nil {
		return nil, err
	}
	q := &quicConn{transport: &quic.Transport{Conn: socket}, socket: socket}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.world.server.address, c.port))
	for {
		q.Conn, err = q.transport.Dial(ctx, to, config, &quic.Config{
			HandshakeIdleTimeout: 3 * time.Second, MaxIdleTimeout: 3 * time.Second, KeepAlivePeriod: time.Second,
		})
		if err == nil {
			return q, nil
		}
		if !isSilence(err) || ctx.Err() != nil {
			q.close()
			return nil, err
		}
	}
}

// isSilence reports whether no packet has arrived during a handshake. The client begins another one: the reply to
// a packet that waited in the socket of a stopped process for long would be a round-trip time of as long.
func isSilence(err error) bool {
	_, idle := errors.AsType[*quic.IdleTimeoutError](err)
	_, handshake := errors.AsType[*quic.HandshakeTimeoutError](err)
	return idle || handshake
}

func (q *quicConn) close() {
	if q.Conn != nil {
		_ = q.CloseWithError(0, "")
	}
	_ = q.transport.Close()
	_ = q.socket.Close()
}

// dialHTTPS3 is the Dial of the transport of HTTP/3. The socket is closed with the connection.
func (c *streamClient) dialHTTPS3(ctx context.Context, _ string, config *tls.Config, _ *quic.Config) (*quic.Conn, error) {
	own := c.tlsConfig(config.NextProtos...)
	q, err := c.dialQUIC(ctx, own)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(q.Context(), q.close)
	return q.Conn, nil
}

// exchangeQUIC sends a query over QUIC (RFC 9250), where its ID is 0.
func (c *streamClient) exchangeQUIC(ctx context.Context, packet []byte) ([]byte, error) {
	if c.quic == nil {
		q, err := c.dialQUIC(ctx, c.tlsConfig("doq"))
		if err != nil {
			return nil, err
		}
		c.quic = q
	}
	s, err := c.quic.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = s.SetDeadline(deadline)
	query := append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	copy(query[2:], []byte{0, 0})
	if _, err := s.Write(query); err != nil {
		return nil, err
	}
	_ = s.Close()

	reply, err := io.ReadAll(s)
	switch {
	case err != nil:
		return nil, err
	case len(reply) < 4 || int(binary.BigEndian.Uint16(reply)) != len(reply)-2 || !bytes.Equal(reply[2:4], []byte{0, 0}):
		return nil, errors.New("the reply over QUIC is not one message with ID 0")
	}
	copy(reply[2:], packet[:2])
	return reply[2:], nil
}
