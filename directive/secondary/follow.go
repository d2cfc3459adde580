package secondary

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A copy with the option follow asks for the next version on a connection that stays open, with an IXFR
// query that the primary answers when there is one (wire.OptionFollow). So it learns of changes without a
// NOTIFY message, and any number of copies can follow a primary that does not know their addresses.

const (
	// followWait is how long a primary may wait for the next version. It is shorter than stallTimeout, and
	// bounds the time until a copy notices that its primary has gone.
	followWait = 20 * time.Second
	// defaultFollow is the least time between two versions, and so the most that a change waits for others.
	defaultFollow = 200 * time.Millisecond
	// sessionTime is how long a connection is used. Then another primary is chosen at random, so that copies
	// spread over primaries that have been started later.
	sessionTime = 5 * time.Minute
)

// followOption sets the least time between two versions, zero without the option.
func followOption(interval *time.Duration) corefile.Option {
	return corefile.Option{Usage: "follow [INTERVAL]", Once: true, Set: func(o corefile.Directive) error {
		if len(o.Args) == 0 {
			*interval = defaultFollow
			return nil
		}
		return corefile.Duration(interval, 10*time.Millisecond, time.Minute)(o)
	}}
}

// follows returns the least time between two versions of a copy that follows its primary, else zero.
func (c *zoneCopy) follows() time.Duration { return time.Duration(c.interval.Load()) }

// A session is the connection to the primary that a copy follows. The zero session has none.
type session struct {
	conn    net.Conn
	primary int  // index in clients
	plain   bool // the primary knows no EDNS (RFC 6891 §7)
	until   time.Time
	idle    time.Duration // how long to wait after a primary that has not waited
}

// order returns the primaries in the order in which they are asked: one of them, and then those after it.
func (s *schedule) order() (clients []*client) {
	all, first := s.copy.clients, 0
	if s.copy.follows() > 0 {
		if at := &s.session; at.conn == nil || !time.Now().Before(at.until) {
			s.disconnect()
			at.primary = rand.N(len(all))
		}
		first = s.session.primary
	}
	return append(append(clients, all[first:]...), all[:first]...)
}

// await waits for the version after the present one at a primary, and receives the differences. It does not wait
// after an attempt at which all primaries have failed: they may have no more room for followers.
func (s *schedule) await(ctx context.Context, from *client, in *incoming, of *share, to *room) (*zone.Zone, error) {
	if s.retry == firstRetry && !s.session.plain {
		in.wait = min(followWait, s.copy.expiresAfter(s.zone)/4).Truncate(time.Second)
	}
	in.share, in.room = of, to
	in.setLimit(from.limit.Load())

	for {
		reused, err := s.connect(ctx, from)
		if err != nil {
			return nil, err
		}
		conn := s.session.conn // the function below may run when the session has another one, or none
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		z, err := from.receive(conn, in)
		stop()
		if err == nil || errors.Is(err, errUnchanged) {
			return z, err
		}
		if in.wait > 0 && hasCode(err, wire.FormErr, wire.NotImp) { // of a primary without EDNS
			in.wait, s.session.plain = 0, true
			continue
		}

		// The primary may have closed the connection before the query.
		s.disconnect()
		if !reused || in.messages > 0 || !errors.Is(err, errEnded) {
			return nil, err
		}
	}
}

// connect opens a connection to a primary, unless there is one. reused reports that there was.
func (s *schedule) connect(ctx context.Context, from *client) (reused bool, err error) {
	if at := &s.session; at.conn != nil && s.copy.clients[at.primary] == from {
		return true, nil
	}
	s.disconnect()
	conn, err := from.connect(ctx)
	if err != nil {
		return false, err
	}
	s.session.primary = slices.Index(s.copy.clients, from)
	s.session.conn, s.session.until = conn, time.Now().Add(sessionTime/2+rand.N(sessionTime))
	s.copy.followed.Store(&from.addr)
	return false, nil
}

func (s *schedule) disconnect() {
	if s.session.conn != nil {
		_ = s.session.conn.Close()
		s.session.conn, s.session.plain = nil, false
		s.copy.followed.Store(nil)
	}
}

// pause returns how long to wait before the next query to the primary that has answered. A primary that does
// not wait, or is stopping, is asked less and less often, up to REFRESH, and may send NOTIFY messages.
func (s *schedule) pause(changed bool) time.Duration {
	refresh, interval := jitter(s.copy.timer(s.zone, soaRefresh)), s.copy.follows()
	switch {
	case interval == 0:
		return refresh
	case changed || time.Since(s.asked) > time.Second:
		s.session.idle = firstRetry
		return min(jitter(interval), refresh)
	}
	wait := max(s.session.idle, firstRetry)
	s.session.idle = 2 * wait
	return min(jitter(wait), refresh)
}

// isFollowing reports whether the primary is asked soon, and so without a NOTIFY message.
func (s *schedule) isFollowing() bool {
	interval := s.copy.follows()
	return interval > 0 && s.session.conn != nil && time.Until(s.next) <= interval
}

// expiresAfter returns the time after which a version expires without an answer of a primary.
func (c *zoneCopy) expiresAfter(z *zone.Zone) time.Duration {
	after := timer(z, soaExpire)
	if limit := time.Duration(c.expires.Load()); limit > 0 {
		after = min(after, limit)
	}
	return after
}

// timer returns one of the times of the SOA record. With the option expire it is so short that a primary is asked
// several times before a version expires.
func (c *zoneCopy) timer(z *zone.Zone, fromEnd int) time.Duration {
	d := timer(z, fromEnd)
	if limit := time.Duration(c.expires.Load()); limit > 0 {
		d = min(d, limit/4)
	}
	return d
}
