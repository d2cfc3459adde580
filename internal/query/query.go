// Package query sends single DNS queries. The commands sidecar and exec-healthz call
// it to probe servers.
package query

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Timeout limits an exchange.
const Timeout = 2 * time.Second

// Exchange sends m to server over UDP, and over TCP if the reply is truncated. It
// returns when ctx ends, and after Timeout at the latest. The client of the DNS
// library returns an error at the first malformed datagram, so that one stray packet
// would fail a probe.
func Exchange(ctx context.Context, server string, m *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	limit := time.Until(deadline).Round(time.Millisecond)

	request, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("packing the query: %w", err)
	}
	reply, stray, err := exchangeUDP(ctx, server, m, request)
	if err == nil && reply.Truncated {
		stray = nil
		reply, err = exchangeTCP(ctx, server, m, request)
	}
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() == nil:
		return nil, fmt.Errorf("querying %s: %w", server, err)
	case stray != nil:
		return nil, fmt.Errorf("querying %s: no reply within %v, but %w", server, limit, stray)
	}
	return nil, fmt.Errorf("querying %s: no reply within %v", server, limit)
}

// dial opens a socket whose operations fail once ctx has ended.
func dial(ctx context.Context, network, server string) (conn net.Conn, closeConn func(), err error) {
	conn, err = new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() { stop(); _ = conn.Close() }, nil
}

// exchangeUDP waits for a valid reply; stray describes the last invalid datagram.
func exchangeUDP(ctx context.Context, server string, m *dns.Msg, request []byte) (reply *dns.Msg, stray, err error) {
	conn, closeConn, err := dial(ctx, "udp", server)
	if err != nil {
		return nil, nil, err
	}
	defer closeConn()
	if _, err := conn.Write(request); err != nil {
		return nil, nil, err
	}
	packet := make([]byte, 4096) // more than the 512 bytes of a reply without EDNS
	for {
		n, err := conn.Read(packet)
		if err != nil {
			return nil, stray, err
		}
		reply, err := accept(m, packet[:n])
		if err == nil {
			return reply, nil, nil
		}
		stray = err
	}
}

func exchangeTCP(ctx context.Context, server string, m *dns.Msg, request []byte) (*dns.Msg, error) {
	conn, closeConn, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	request = append(binary.BigEndian.AppendUint16(nil, uint16(len(request))), request...)
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("reading from a TCP connection: %w", err)
	}
	packet := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return nil, fmt.Errorf("reading from a TCP connection: %w", err)
	}
	return accept(m, packet)
}

// accept parses packet and returns an error if it is not a reply to m. A truncated
// reply may end anywhere: only its header counts.
func accept(m *dns.Msg, packet []byte) (*dns.Msg, error) {
	const header, response, truncated = 12, 0x80, 0x02 // of the third byte: RFC 1035 §4.1.1
	switch {
	case len(packet) < header:
		return nil, errors.New("a packet shorter than a message header")
	case binary.BigEndian.Uint16(packet) != m.Id:
		return nil, errors.New("a message with another ID")
	case packet[2]&response == 0:
		return nil, errors.New("a message that is not a reply")
	}
	reply := new(dns.Msg)
	if err := reply.Unpack(packet); err != nil && packet[2]&truncated == 0 {
		return nil, fmt.Errorf("a malformed message: %w", err)
	} else if err != nil {
		return &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Truncated: true}}, nil
	}
	// A server that cannot parse a request may omit the question from its error.
	if len(reply.Question) == 0 && len(reply.Answer) == 0 {
		return reply, nil
	}
	want := m.Question[0]
	if len(reply.Question) != 1 || reply.Question[0].Qtype != want.Qtype || reply.Question[0].Qclass != want.Qclass ||
		!strings.EqualFold(reply.Question[0].Name, want.Name) {
		return nil, errors.New("a reply to another question")
	}
	return reply, nil
}

// RCode returns the name of a reply's response code as dig writes it.
func RCode(m *dns.Msg) string {
	if text, ok := dns.RcodeToString[m.Rcode]; ok {
		return text
	}
	return fmt.Sprintf("RCODE%d", m.Rcode)
}

// WithPort returns server with port 53 if it has none. An IPv6 address may lack
// brackets.
func WithPort(server string) string {
	if bare := strings.Trim(server, "[]"); net.ParseIP(bare) != nil {
		return net.JoinHostPort(bare, "53")
	}
	if !strings.Contains(server, ":") {
		return server + ":53"
	}
	return server
}
