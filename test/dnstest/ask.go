package dnstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

const (
	// patience is the timeout of a query. It is long for busy machines and the
	// race detector.
	patience = 3 * time.Second
	// silence is how long ask waits before it reports that there is no reply.
	silence = 150 * time.Millisecond
)

// ask sends a query with a random-looking ID and returns the reply with ID 0, or
// nil if there is none.
func ask(at netip.AddrPort, proto string, packet []byte, wait time.Duration) ([]byte, error) {
	conn, err := net.Dial(proto, at.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}

	packet = slices.Clone(packet)
	const id = 0x5EA3
	binary.BigEndian.PutUint16(packet, id)
	framed := &dns.Conn{Conn: conn, UDPSize: wire.MaxMessage}
	if _, err := framed.Write(packet); err != nil {
		return nil, err
	}

	reply, err := framed.ReadMsgHeader(nil)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	case binary.BigEndian.Uint16(reply) != id:
		return nil, fmt.Errorf("reply with another ID than %x: %x", id, reply)
	}

	reply[0], reply[1] = 0, 0
	return reply, nil
}
