package secondary

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/internal/tsig"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

const (
	// stallTimeout bounds the time without a message of a primary.
	stallTimeout = 30 * time.Second
	// transferTimeout bounds the time of a transfer.
	transferTimeout = 30 * time.Minute
	dialTimeout     = 5 * time.Second
)

// A client transfers zones from one primary.
type client struct {
	addr netip.AddrPort
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	key  atomic.Pointer[tsig.Ref] // of the plan that answers queries
}

// fetch returns the primary's version of a zone if it is newer than old, and otherwise
// errUnchanged. Without old it returns any version. The records are reserved in a share, if
// it is not nil.
func (c *client) fetch(ctx context.Context, origin wire.Name, old *zone.Zone, of *share) (*zone.Zone, *incoming, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	dialing, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	conn, err := c.dial(dialing, "tcp", c.addr.String())
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if old != nil {
		if err := c.newer(conn, origin, old); err != nil {
			return nil, nil, err
		}
		z, in, err := c.transfer(conn, origin, old, of)
		if err == nil || errors.Is(err, errUnchanged) || !errors.Is(err, errWholeZone) && !errors.As(err, new(refusal)) {
			return z, in, err
		}
	}
	return c.transfer(conn, origin, nil, of)
}

// A refusal is a reply with a response code other than NOERROR.
type refusal wire.RCode

func (r refusal) Error() string { return fmt.Sprintf("the primary replied %s", wire.RCode(r)) }

// newer queries the SOA record. It returns errUnchanged unless its serial number is newer
// than that of old.
func (c *client) newer(conn net.Conn, origin wire.Name, old *zone.Zone) error {
	id := uint16(rand.Uint32())
	session, err := c.send(conn, wire.AppendRequest(nil, id, 0, []byte(origin), wire.TypeSOA))
	if err != nil {
		return err
	}
	packet, err := receive(conn, nil)
	if err != nil {
		return err
	}
	if err := verify(session, packet, true); err != nil {
		return err
	}
	in := newIncoming(origin, nil)
	if _, err := in.message(packet, id, wire.TypeSOA); err != nil && in.soa == "" {
		return err
	}
	serial, _ := old.Serial()
	if !zone.SerialLess(serial, in.serial) {
		if zone.SerialLess(in.serial, serial) {
			return backwards{serial, in.serial}
		}
		return errUnchanged
	}
	return nil
}

// A backwards is the error for a serial number that is older than before.
type backwards struct{ has, got uint32 }

func (b backwards) Error() string {
	return fmt.Sprintf("the primary's serial number %d is older than %d", b.got, b.has)
}

func (b backwards) Unwrap() error { return errUnchanged }

// transfer sends an IXFR query, or an AXFR query without old, and reads the reply.
func (c *client) transfer(conn net.Conn, origin wire.Name, old *zone.Zone, of *share) (*zone.Zone, *incoming, error) {
	id, qtype := uint16(rand.Uint32()), wire.TypeAXFR
	var soa []byte
	if old != nil {
		qtype = wire.TypeIXFR
		for r := range old.Records {
			soa = r
			break
		}
	}
	query := wire.AppendRequest(nil, id, 0, []byte(origin), qtype)
	if soa != nil {
		query[9] = 1 // the authority section
		query = append(query, soa...)
	}
	session, err := c.send(conn, query)
	if err != nil {
		return nil, nil, err
	}
	in := newIncoming(origin, old)
	in.share = of
	var buf []byte
	for {
		var err error
		if buf, err = receive(conn, buf); err != nil {
			return nil, nil, err
		}
		done, err := in.message(buf, id, qtype)
		unchanged := errors.Is(err, errUnchanged) || errors.Is(err, errWholeZone)
		if err := verify(session, buf, done || unchanged); err != nil {
			return nil, nil, err
		}
		if err != nil {
			return nil, nil, err
		}
		if done {
			z, err := in.zone()
			return z, in, err
		}
	}
}

// send signs and sends a query. The session verifies the reply; it is nil without a key.
func (c *client) send(conn net.Conn, message []byte) (*tsig.Session, error) {
	key, err := c.key.Load().Key()
	if err != nil {
		return nil, err
	}
	var session *tsig.Session
	if key != nil {
		session, message = tsig.Start(key, message, time.Now())
	}
	return session, send(conn, message)
}

// verify verifies the next message of a reply.
func verify(s *tsig.Session, message []byte, last bool) error {
	if s == nil {
		return nil
	}
	return s.Verify(message, last, time.Now())
}

func send(conn net.Conn, message []byte) error {
	_ = conn.SetWriteDeadline(time.Now().Add(stallTimeout))
	_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// receive reads a message into buf's memory.
func receive(conn net.Conn, buf []byte) ([]byte, error) {
	_ = conn.SetReadDeadline(time.Now().Add(stallTimeout))
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, fmt.Errorf("the connection ended before the zone: %w", err)
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if cap(buf) < n {
		buf = make([]byte, n, wire.MaxMessage)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, fmt.Errorf("the connection ended before the zone: %w", err)
	}
	return buf, nil
}
