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
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

const (
	// stallTimeout bounds the time without a message of a primary.
	stallTimeout = 30 * time.Second
	// minRate is the rate in bytes per second that a transfer must have after stallTimeout,
	// on average from its start.
	minRate = 1024
	// transferTimeout bounds the time of a transfer.
	transferTimeout = 30 * time.Minute
	dialTimeout     = 5 * time.Second
)

// A client transfers zones from one primary.
type client struct {
	addr  netip.AddrPort
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	key   atomic.Pointer[tsig.Ref] // of the plan that answers queries
	limit atomic.Int64             // of the bytes of a zone, of that plan; 0 is maxBytes
}

// fetch returns the primary's version of a zone if it is newer than that of s, and otherwise
// errUnchanged. Without one it returns any version. ixfrErr is the error of IXFR for which
// the zone was transferred as a whole. The records are reserved in a share, if it is not nil, and
// their memory in a room, which the caller releases.
func (c *client) fetch(
	ctx context.Context, s *schedule, of *share, to *room,
) (z *zone.Zone, in *incoming, ixfrErr, err error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()

	origin, old := s.copy.origin, s.zone
	if old != nil {
		differences := newIncoming(origin, old, true)
		differences.sent = sent{keep: s.copy.sends.Load(), journal: s.journal}
		if s.copy.follows() > 0 {
			in = differences
			z, ixfrErr = s.await(ctx, c, differences, of, to)
		} else {
			z, in, ixfrErr = c.transfer(ctx, differences, of, to)
		}
		// With follow another primary may have the differences if this one cannot serve now.
		isAway := s.copy.follows() > 0 && hasCode(ixfrErr, wire.ServFail, wire.Refused)
		if ixfrErr == nil || !requestsWholeZone(ixfrErr) || isAway {
			return z, in, nil, ixfrErr
		}
	}

	to.release()
	z, in, err = c.transfer(ctx, newIncoming(origin, old, false), of, to)
	if err != nil && ixfrErr != nil && !errors.Is(ixfrErr, errWholeZone) {
		err = fmt.Errorf("IXFR: %w; AXFR: %w", ixfrErr, err)
	}
	return z, in, ixfrErr, err
}

// requestsWholeZone reports whether a zone is transferred as a whole after an error of
// IXFR: the reply was complete, or it was rejected. A reply that was interrupted, that was
// too slow, or that has no valid signature says nothing about the differences.
func requestsWholeZone(err error) bool {
	return errors.As(err, new(rejectedError)) && !errors.Is(err, errUnchanged) && !isRefused(err)
}

// A rejectedError is the error for a reply whose content was rejected.
type rejectedError struct{ error }

func (r rejectedError) Unwrap() error { return r.error }

// An rcodeError is the error for a reply with a response code other than NOERROR.
type rcodeError wire.RCode

func (r rcodeError) Error() string { return fmt.Sprintf("the primary replied %s", wire.RCode(r)) }

// hasCode reports whether an error is that of a reply with one of some response codes.
func hasCode(err error, codes ...wire.RCode) bool {
	code, ok := errors.AsType[rcodeError](err)
	return ok && slices.Contains(codes, wire.RCode(code))
}

// An unansweredError is the error of a primary that did not reply to the first query: it
// cannot be connected to, or closed the connection.
type unansweredError struct{ error }

func (u unansweredError) Unwrap() error { return u.error }

// transfer queries the SOA record if there is an old version, and transfers the zone if the
// primary has a newer one.
func (c *client) transfer(ctx context.Context, in *incoming, of *share, to *room) (*zone.Zone, *incoming, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	if in.old != nil {
		if err := c.newer(conn, in.origin, in.old); err != nil {
			return nil, nil, err
		}
	}

	in.share, in.room = of, to
	in.setLimit(c.limit.Load())
	z, err := c.receive(conn, in)
	return z, in, err
}

// connect opens a connection.
func (c *client) connect(ctx context.Context) (net.Conn, error) {
	dialing, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	conn, err := c.dial(dialing, "tcp", c.addr.String())
	if err != nil {
		return nil, unansweredError{err}
	}
	return conn, nil
}

// newer queries the SOA record. It returns errUnchanged unless its serial number is newer
// than that of old.
func (c *client) newer(conn net.Conn, origin wire.Name, old *zone.Zone) error {
	id := uint16(rand.Uint32())
	session, err := c.send(conn, wire.AppendRequest(nil, id, 0, []byte(origin), wire.TypeSOA))
	if err != nil {
		return err
	}

	packet, err := receive(conn, nil, time.Now().Add(stallTimeout))
	if err != nil {
		return unansweredError{err}
	}
	if err := verify(session, packet, true); err != nil {
		return err
	}

	in := newIncoming(origin, old, false)
	if _, err := in.message(packet, id, wire.TypeSOA); err != nil && (in.soa == "" || errors.Is(err, errUnchanged)) {
		return err
	}
	return nil
}

// receive sends an IXFR or AXFR query, and reads the reply.
func (c *client) receive(conn net.Conn, in *incoming) (*zone.Zone, error) {
	id, qtype := uint16(rand.Uint32()), wire.TypeAXFR
	if in.differences {
		qtype = wire.TypeIXFR
	}
	query := wire.AppendRequest(nil, id, 0, []byte(in.origin), qtype)
	if in.differences {
		query[9] = 1 // the authority section
		query = append(query, in.old.SOA()...)
	}
	if in.wait > 0 {
		query[11] = 1 // the additional section
		query = wire.AppendOPT(query, 0, false, 4+2)
		query = wire.AppendOption(query, wire.OptionFollow, binary.BigEndian.AppendUint16(nil, uint16(in.wait/time.Second)))
	}

	session, err := c.send(conn, query)
	if err != nil {
		return nil, err
	}

	var buf []byte
	in.received = time.Now()
	received := 0
	for {
		// A primary may neither stall nor send a byte now and then.
		deadline := in.received.Add(stallTimeout + time.Duration(received)*time.Second/minRate)
		if stalled := time.Now().Add(stallTimeout); stalled.Before(deadline) {
			deadline = stalled
		}
		if buf, err = receive(conn, buf, deadline); err != nil {
			return nil, err
		}
		if received == 0 {
			in.received = time.Now()
		}
		received += len(buf)

		done, err := in.message(buf, id, qtype)
		complete := done || errors.Is(err, errUnchanged) || errors.Is(err, errWholeZone)
		if err := verify(session, buf, complete); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, rejectedError{err}
		}

		if done {
			z, err := in.zone()
			if err != nil {
				return nil, rejectedError{err}
			}
			return z, nil
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
	if err := send(conn, message); err != nil {
		return nil, unansweredError{err}
	}
	return session, nil
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

// receive reads a message into buf's memory until a deadline.
func receive(conn net.Conn, buf []byte, deadline time.Time) ([]byte, error) {
	_ = conn.SetReadDeadline(deadline)
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, receiveError(err)
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if cap(buf) < n {
		buf = make([]byte, n, wire.MaxMessage)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, receiveError(err)
	}
	return buf, nil
}

// errEnded reports that the primary has closed the connection.
var errEnded = errors.New("the connection ended before the zone")

func receiveError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the primary is too slow: no message for %s, or less than %d bytes per second",
			stallTimeout, minRate)
	}
	return fmt.Errorf("%w: %w", errEnded, err)
}
