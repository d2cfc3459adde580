package shadow

import (
	"context"
	"io"
	"net/netip"

	"github.com/seamark/seamark/observe/dnstap"
)

// A DnstapFile is a Frame Streams file of dnstap messages.
type DnstapFile struct {
	Reader    io.Reader
	Interrupt func() // as the field of Pcap
}

// Messages implements Source.
func (f DnstapFile) Messages(ctx context.Context, counts *Counts, yield func(*Message) bool) error {
	return interruptible(ctx, f.Interrupt, func() error {
		return dnstap.Read(f.Reader, func(payload []byte) bool {
			return ctx.Err() == nil && tapped(payload, counts, yield)
		})
	})
}

// A DnstapStream is a socket to which servers send dnstap messages.
type DnstapStream struct{ Receiver *dnstap.Receiver }

// Messages implements Source. It returns nil when ctx ends.
func (s DnstapStream) Messages(ctx context.Context, counts *Counts, yield func(*Message) bool) error {
	return s.Receiver.Receive(ctx, func(payload []byte) bool { return tapped(payload, counts, yield) })
}

// tapped passes the DNS message of a dnstap message to yield. It returns false if yield does.
func tapped(payload []byte, counts *Counts, yield func(*Message) bool) bool {
	counts.Packets++
	if payload == nil {
		counts.Skipped[SkippedLarge]++
		return true
	}
	var t dnstap.Message
	if err := t.Parse(payload); err != nil {
		counts.Skipped[SkippedMalformed]++
		return true
	}

	m := Message{Time: t.Query, Client: t.Client, Proto: t.Proto, Data: t.Packet}
	switch t.Kind {
	case dnstap.ClientQuery, dnstap.AuthQuery:
	case dnstap.ClientResponse, dnstap.AuthResponse:
		m.Response, m.Time = true, t.Response
	default: // queries of the server itself
		counts.Skipped[SkippedKind]++
		return true
	}

	switch {
	case m.Data == nil:
		counts.Skipped[SkippedNoPacket]++
		return true
	case m.Time.IsZero() || !m.Client.Addr().IsValid():
		counts.Skipped[SkippedMalformed]++
		return true
	case len(m.Data) > 2 && m.Data[2]&0x80 != 0 != m.Response:
		counts.Skipped[SkippedDirection]++
		return true
	}

	m.Server = netip.AddrPort{} // some servers set it in one of the two messages only
	return yield(&m)
}
