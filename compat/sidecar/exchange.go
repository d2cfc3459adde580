package sidecar

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

// exchange puts m to server by UDP, and by TCP if the answer was truncated. It ends
// with ctx, and after patience at the latest. The library's own client is not used:
// it takes the first datagram that it cannot read for the end, so that one stray
// packet would be a failure.
func exchange(ctx context.Context, server string, m *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	deadline, _ := ctx.Deadline()
	limit := time.Until(deadline).Round(time.Millisecond)

	request, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("packing a question: %w", err)
	}
	reply, stray, err := byUDP(ctx, server, m, request)
	if err == nil && reply.Truncated {
		stray = nil
		reply, err = byTCP(ctx, server, m, request)
	}
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() == nil:
		return nil, fmt.Errorf("asking %s: %w", server, err)
	case stray != nil:
		return nil, fmt.Errorf("no answer from %s within %v, but %w", server, limit, stray)
	}
	return nil, fmt.Errorf("no answer from %s within %v", server, limit)
}

// dial opens a socket that is of no use once ctx has ended.
func dial(ctx context.Context, network, server string) (conn net.Conn, end func(), err error) {
	conn, err = new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() { stop(); _ = conn.Close() }, nil
}

// byUDP waits for the datagram that answers; stray is what was wrong with the last
// one that does not.
func byUDP(ctx context.Context, server string, m *dns.Msg, request []byte) (reply *dns.Msg, stray, err error) {
	conn, end, err := dial(ctx, "udp", server)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	if _, err := conn.Write(request); err != nil {
		return nil, nil, err
	}
	packet := make([]byte, 4096) // 512 are allowed without EDNS
	for {
		n, err := conn.Read(packet)
		if err != nil {
			return nil, stray, err
		}
		reply, wrong := accept(m, packet[:n])
		if wrong == nil {
			return reply, nil, nil
		}
		stray = wrong
	}
}

func byTCP(ctx context.Context, server string, m *dns.Msg, request []byte) (*dns.Msg, error) {
	conn, end, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer end()
	request = append(binary.BigEndian.AppendUint16(nil, uint16(len(request))), request...)
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("reading from TCP: %w", err)
	}
	packet := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return nil, fmt.Errorf("reading from TCP: %w", err)
	}
	return accept(m, packet)
}

// accept reads a reply to m. One that is truncated may end anywhere: what matters is
// its header.
func accept(m *dns.Msg, packet []byte) (*dns.Msg, error) {
	const header, response, truncated = 12, 0x80, 0x02 // of the third byte: RFC 1035 §4.1.1
	switch {
	case len(packet) < header:
		return nil, errors.New("a packet that is too short for a message")
	case binary.BigEndian.Uint16(packet) != m.Id:
		return nil, errors.New("a message with another id")
	case packet[2]&response == 0:
		return nil, errors.New("a message that is no reply")
	}
	reply := new(dns.Msg)
	if err := reply.Unpack(packet); err != nil && packet[2]&truncated == 0 {
		return nil, fmt.Errorf("a message that cannot be read: %w", err)
	} else if err != nil {
		return &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Truncated: true}}, nil
	}
	// Who does not understand a request may leave the question out of an error.
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

// rcode is a reply's, as dig writes it.
func rcode(m *dns.Msg) string {
	if text, ok := dns.RcodeToString[m.Rcode]; ok {
		return text
	}
	return fmt.Sprintf("RCODE%d", m.Rcode)
}
