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
	out := packet
	if proto == "tcp" {
		out = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	}
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	reply, err := read(conn, proto)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	case len(reply) < wire.HeaderLen || binary.BigEndian.Uint16(reply) != id:
		return nil, fmt.Errorf("a reply without header or to something else: %x", reply)
	}
	reply[0], reply[1] = 0, 0
	return reply, nil
}

func read(conn net.Conn, proto string) ([]byte, error) {
	reply := make([]byte, wire.MaxMessage)
	if proto == "udp" {
		n, err := conn.Read(reply)
		return reply[:n], err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	reply = reply[:binary.BigEndian.Uint16(length[:])]
	_, err := io.ReadFull(conn, reply)
	return reply, err
}
