package forward

import (
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

const (
	// minAvoided is how long something is avoided at first, since a lost packet looks the same. Each
	// time the failure is confirmed the time is four times as long, up to maxAvoided.
	minAvoided = 10 * time.Second
	maxAvoided = 10 * time.Minute
)

// An avoidance is the time in which something that an upstream has failed to support is not used.
// Until it works again the failure is known.
type avoidance struct{ until, wait atomic.Int64 } // of package clock

// active reports whether it is avoided at present.
func (v *avoidance) active() bool { return v.isKnown() && v.until.Load() >= int64(clock.Now()) }

// isKnown reports whether it has failed, and not worked since.
func (v *avoidance) isKnown() bool { return v.wait.Load() != 0 }

// extend is called after a failure. It reports whether another time begins: failures of queries
// that were sent before the last one began confirm nothing.
func (v *avoidance) extend() bool {
	until, wait := v.until.Load(), min(max(int64(minAvoided), 4*v.wait.Load()), int64(maxAvoided))
	if v.active() || !v.until.CompareAndSwap(until, int64(clock.Now())+wait) {
		return false
	}
	v.wait.Store(wait)
	return true
}

// end is called when it works.
func (v *avoidance) end() {
	if v.isKnown() {
		v.until.Store(0)
		v.wait.Store(0)
	}
}

// A udpMemory knows whether an upstream answers over UDP: a firewall may drop it, or let only small
// replies pass.
type udpMemory struct {
	lastReply atomic.Int64 // of package clock
	silent    avoidance
}

// learn processes the reply to a. It reports whether UDP is avoided from now on.
func (m *udpMemory) learn(a *attempt) bool {
	if !a.useStream {
		m.lastReply.Store(int64(clock.Now()))
		m.silent.end()
		return false
	}
	last := m.lastReply.Load()
	return a.udpSilent != 0 && (last == 0 || last < int64(a.udpSilent)) && m.silent.extend()
}

// asksOverTCP reports whether the next attempt at u, which has not answered over UDP, is sent over
// TCP: once in an exchange, and sooner where UDP is less likely to work. It takes the place of an
// attempt over UDP, so that an upstream that is down does not get more of them.
func (x *exchange) asksOverTCP(u *upstream) bool {
	if u.scheme != schemeDNS || x.useStream || u.options().forceTCP {
		return false
	}

	round, due := x.nextIndex/len(x.candidates), 3
	switch {
	case u.udp.silent.isKnown():
		due = 1
	case u.udp.lastReply.Load() == 0:
		due = 2
	case x.sent+1 == x.set.options.maxSends:
		due = 2
	}

	return round == due
}

// verify sends a health check to u, whose reply shows that what is avoided from now on works: the
// failure of a name, which an attacker may own, must not change how others are sent for long.
func (u *upstream) verify(a *attempt) {
	a.request, a.probe, a.fresh, a.requester = u.options().check.request(), true, true, make(checkOutcomes, 2)
	u.send(a)
}
