package forward

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// An attempt is one request sent to one upstream. It ends with one outcome,
// which the goroutine that removes it from its table reports.
type attempt struct {
	request    *request
	upstream   *upstream
	socket     *socket // nil over a connection
	requester  requester
	sent       time.Duration // of package clock
	udpSilent  time.Duration // since when, if useStream is set for want of a reply over UDP
	id         uint16
	edns       bool
	noEDNS     bool   // send without EDNS, because the upstream rejected it
	useStream  bool   // send over a connection instead of UDP
	mayUseUDP  bool   // useStream is set since TCP is preferred
	fresh      bool   // use another socket or connection than the previous attempt
	randomCase []byte // the question as it is sent, in random letter case; nil if it is not
	exactCase  bool   // the upstream is known to repeat it
	probe      bool   // a health check
	reused     bool   // sent over a connection that existed before
	resent     int8   // the number of connections that were closed while it waited
	sawInvalid bool   // an invalid reply has been reported
	closed     bool   // its connection or stream was closed, and no other attempt waited on it
	abandoned  bool   // the exchange does not wait for it; used by the exchange
	held       bool   // it is counted for client
	client     netip.Addr
}

// A requester is the exchange or the health check that an attempt is sent for.
type requester interface {
	// report does not block.
	report(o outcome)
	// isFinished reports whether outcomes are ignored.
	isFinished() bool
}

// packet returns the request as a message.
func (a *attempt) packet() []byte {
	packet := a.request.packet(a.id, a.edns)
	copy(packet[wire.HeaderLen:], a.randomCase)
	return packet
}

// An outcome is the end of an attempt: a reply or an error. With neither there was a reply with
// a fault, perhaps a forged one: over UDP the right one may still arrive.
type outcome struct {
	*attempt
	reply *reply
	err   error
	fault fault
}

// An attemptTable holds the attempts that wait on one socket or connection, by ID.
type attemptTable struct {
	mu      sync.Mutex
	waiting map[uint16]*attempt
	used    [1 << 10]uint64 // a bit for each ID that has been used
	closed  error           // the reason, once no more can be added
	rests   bool            // the reader waits for longer than sweepInterval
}

// maxWaiting leaves most IDs unused, so that a random ID is usually free, and a
// guessed ID is unlikely to be in use.
const maxWaiting = 4096

// add assigns an unpredictable ID to a and adds it. It returns an error if the table is full, or
// the reason if it is closed. The caller calls wake after it.
func (t *attemptTable) add(a *attempt) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed != nil:
		return t.closed
	case len(t.waiting) >= maxWaiting:
		return errBusy
	}
	if t.waiting == nil {
		t.waiting = map[uint16]*attempt{}
	}

	for {
		var id [2]byte
		_, _ = rand.Read(id[:]) // never returns an error
		a.id = binary.BigEndian.Uint16(id[:])
		if _, taken := t.waiting[a.id]; !taken {
			a.sent = clock.Now()
			t.waiting[a.id] = a
			t.used[a.id>>6] |= 1 << (a.id & 63)
			return nil
		}
	}
}

// sweepLater sets the time until which the reader of conn waits for data: sweepInterval, or a longer time if no
// attempt waits.
func (t *attemptTable) sweepLater(u *upstream, conn net.Conn, now time.Time) {
	_ = conn.SetReadDeadline(now.Add(u.restInterval()))

	// An attempt that is added from now on wakes the reader.
	t.mu.Lock()
	t.rests = len(t.waiting) == 0
	rests := t.rests
	t.mu.Unlock()
	if !rests {
		_ = conn.SetReadDeadline(now.Add(u.sweepInterval()))
	}
}

// wake makes the reader of conn wait for sweepInterval, if it waits for longer.
func (t *attemptTable) wake(u *upstream, conn net.Conn) {
	t.mu.Lock()
	rested := t.rests
	t.rests = false
	t.mu.Unlock()
	if rested {
		_ = conn.SetReadDeadline(time.Now().Add(u.sweepInterval()))
	}
}

// find returns the attempt with an ID; nil if there is none. used reports whether the ID
// has ever been used.
func (t *attemptTable) find(id uint16) (a *attempt, used bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[id], t.used[id>>6]&(1<<(id&63)) != 0
}

// take removes a. It returns false if a has been removed before.
func (t *attemptTable) take(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[a.id] != a {
		return false
	}
	delete(t.waiting, a.id)
	return true
}

// takeOnly removes the only attempt that waits; nil if there are none or several.
func (t *attemptTable) takeOnly() *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) != 1 {
		return nil
	}
	for id, a := range t.waiting {
		delete(t.waiting, id)
		return a
	}
	return nil
}

// restart marks all attempts as sent now, and returns them.
func (t *attemptTable) restart() []*attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	for _, a := range t.waiting {
		a.sent = now
	}
	return slices.Collect(maps.Values(t.waiting))
}

// expire removes and returns the attempts that were sent before limit.
func (t *attemptTable) expire(limit time.Duration) (old []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, a := range t.waiting {
		if a.sent < limit {
			delete(t.waiting, id)
			old = append(old, a)
		}
	}
	return old
}

// close removes and returns all attempts. No more can be added: for the reason of the first call.
func (t *attemptTable) close(reason error) []*attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = reason
	}
	all := slices.Collect(maps.Values(t.waiting))
	t.waiting = nil
	return all
}

// closeUnused closes the table if no attempt waits. It reports whether it has closed it.
func (t *attemptTable) closeUnused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.closed = errClosed
	}
	return t.closed != nil
}

// load returns the number of waiting attempts.
func (t *attemptTable) load() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// timeoutError returns the error of an attempt that timed out.
func (a *attempt) timeoutError() error {
	network := "udp"
	if a.useStream && a.upstream.scheme != schemeQUIC {
		network = "tcp"
	}

	if !a.upstream.addr.IsValid() {
		return timeoutError(network, nil, nil)
	}

	var from net.Addr
	if a.socket != nil {
		from = a.socket.conn.LocalAddr()
	}
	return timeoutError(network, from, net.UDPAddrFromAddrPort(a.upstream.addr))
}
