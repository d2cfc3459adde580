package shadow

import (
	"context"
	"errors"
	"io"
	"net/netip"

	"github.com/seamark/seamark/dns"
)

// A Source passes captured messages to yield until it ends, until ctx ends, or until yield
// returns false. It counts the packets that it cannot use.
type Source interface {
	Messages(ctx context.Context, counts *Counts, yield func(*Message) bool) error
}

// A Pcap is a capture in the format pcap or pcapng.
type Pcap struct {
	Reader io.Reader
	// Port is the port of the DNS server: 53.
	Port uint16
	// Server is the address of the DNS server; the zero value selects any address.
	Server netip.Addr
	// Interrupt makes a call of Read return that waits; nil for a file.
	Interrupt func()
}

// Messages implements Source. The end of ctx is noticed between two packets.
func (p Pcap) Messages(ctx context.Context, counts *Counts, yield func(*Message) bool) error {
	return interruptible(ctx, p.Interrupt, func() error { return p.messages(ctx, counts, yield) })
}

// interruptible calls read, and interrupt when ctx ends. Then an error of read is no error.
func interruptible(ctx context.Context, interrupt func(), read func() error) error {
	if interrupt == nil {
		return read()
	}
	defer context.AfterFunc(ctx, interrupt)()
	err := read()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p Pcap) messages(ctx context.Context, counts *Counts, yield func(*Message) bool) error {
	c, err := newCaptureReader(p.Reader)
	if err != nil {
		return err
	}

	tcp, parts := newStreams(), newFragments(counts)
	defer parts.close()
	for ctx.Err() == nil {
		packet, err := c.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}

		counts.Packets++
		s, skipped := decode(&packet, parts)
		if skipped != "" {
			counts.Skipped[skipped]++
		}
		if s == nil {
			continue
		}

		m := Message{Time: packet.time, Proto: dns.UDP}
		switch {
		case p.serves(s.destination):
			m.Client, m.Server = s.source, s.destination
		case p.serves(s.source):
			m.Client, m.Server, m.Response = s.destination, s.source, true
		default:
			counts.Skipped[SkippedAddress]++
			continue
		}

		more := true
		pass := func(message []byte) {
			// Both ports may be the server's: a server that forwards from port 53.
			if m.Data = message; len(message) > 2 && message[2]&0x80 != 0 != m.Response {
				if !p.serves(m.Client) {
					counts.Skipped[SkippedDirection]++
					return
				}
				m.Client, m.Server, m.Response = m.Server, m.Client, !m.Response
			}
			more = more && yield(&m)
		}

		if s.tcp {
			m.Proto = dns.TCP
			if skipped := tcp.add(s, pass); skipped != "" {
				counts.Skipped[skipped]++
			}
		} else {
			pass(s.payload)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// serves reports whether a is the address of the server.
func (p Pcap) serves(a netip.AddrPort) bool {
	return a.Port() == p.Port && (!p.Server.IsValid() || a.Addr() == p.Server)
}
