// Package query sends DNS queries, for the commands that look at servers: Exchange sends a single
// one, as probes do, and a Client sends many to one server.
package query

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/corefile"
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

	reply, stray, err := exchange(ctx, "udp", server, m)
	if err == nil && reply.Truncated {
		reply, stray, err = exchange(ctx, "tcp", server, m)
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

// exchange waits for a valid reply, over TCP for one message. stray describes the last
// invalid datagram.
func exchange(ctx context.Context, network, server string, m *dns.Msg) (reply *dns.Msg, stray, err error) {
	socket, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, nil, err
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })()

	conn := dns.Conn{Conn: socket, UDPSize: 4096} // more than the 512 bytes of a reply without EDNS
	if err := conn.WriteMsg(m); err != nil {
		return nil, nil, err
	}

	for {
		packet, err := conn.ReadMsgHeader(nil)
		if err != nil && !errors.Is(err, dns.ErrShortRead) {
			if network == "tcp" {
				err = fmt.Errorf("reading from a TCP connection: %w", err)
			}
			return nil, stray, err
		}
		reply, err := Accept(m, packet)
		if err == nil || network == "tcp" {
			return reply, nil, err
		}
		stray = err
	}
}

// Accept parses packet and returns an error if it is not a reply to m. A truncated
// reply may end anywhere: only its header counts.
func Accept(m *dns.Msg, packet []byte) (*dns.Msg, error) {
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
// brackets, and may have a zone.
func WithPort(server string) string {
	if _, err := netip.ParseAddrPort(server); err == nil {
		return server // "]:53" at the end would be a valid zone
	}
	bare := corefile.Unbracketed(server)
	if _, err := netip.ParseAddr(bare); err == nil {
		return net.JoinHostPort(bare, "53")
	}
	if !strings.Contains(server, ":") {
		return server + ":53"
	}
	return server
}
