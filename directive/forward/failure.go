package forward

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/wire"
)

// A failure is the last error of an upstream.
type failure struct {
	err error
	at  time.Time
}

// An errorReply is a reply with a response code that says that the upstream cannot answer.
type errorReply wire.RCode

func (c errorReply) Error() string { return "reply " + wire.RCode(c).String() }

func (u *upstream) remember(err error) { u.failed.Store(&failure{err, time.Now()}) }

// reportTo makes the last errors of the upstreams appear on a board until s is stopped.
func (s *upstreamSet) reportTo(board *health.Board) {
	s.health = board
	board.SetFailures(s, s.failures)
}

// failures returns the last error of each upstream that has had one.
func (s *upstreamSet) failures() (all []health.Failure) {
	for _, u := range s.current.Load().all {
		if f := u.failed.Load(); f != nil {
			text := strings.TrimPrefix(describe(f.err), u.String()+": ")
			all = append(all, health.Failure{Object: u.String(), Error: text, At: f.at})
		}
	}
	return all
}

// describe returns an error of a query for people, without the addresses of sockets.
func describe(err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok && isTimeout(err):
		return "no reply in time"
	case !ok || op.Net == "": // such as an alert of TLS
		return err.Error()
	}

	network := strings.ToUpper(strings.TrimRight(op.Net, "46"))
	number, _ := errors.AsType[syscall.Errno](op.Err)
	text := op.Err.Error()
	switch {
	case op.Timeout() && op.Op == "dial":
		text = "no connection in time"
	case op.Timeout():
		text = "no reply in time"
	case number == syscall.ECONNREFUSED && network == "UDP": // RFC 1122 §4.1.3.3
		return "connection refused over UDP (ICMP port unreachable)"
	case number != 0:
		text = number.Error()
	}
	return text + " over " + network
}
