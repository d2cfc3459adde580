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

// maySendOverTCP reports whether x may ask u over TCP as well, which has not answered over UDP: once in
// an exchange, and never while connections fail, so that a host that is down gets few packets.
func (x *exchange) maySendOverTCP(u *upstream) bool {
	return u.scheme == schemeDNS && !x.useStream && !u.options().forceTCP &&
		u.noTCPUntil.Load() < int64(clock.Now()) && !x.historyOf(u).overTCP
}

// asksOverTCP reports whether x asks a's upstream over TCP besides a: when it is asked again if UDP has
// failed before or has never worked, and one round later otherwise, since most late replies are slow.
func (x *exchange) asksOverTCP(a *attempt) bool {
	round, m := 2, &a.upstream.udp
	if m.silent.isKnown() || m.lastReply.Load() == 0 {
		round = 1
	}
	return a.fresh && !a.useStream && x.nextIndex > round*len(x.candidates) && x.maySendOverTCP(a.upstream)
}

// sendOverTCP asks u over TCP, beside the attempts over UDP: it takes no time of theirs, is no
// attempt of the option attempts, and its failure is none of u.
func (x *exchange) sendOverTCP(u *upstream) {
	x.history(u).overTCP = true
	x.inFlight++
	a := x.newAttempt(u)
	a.useStream, a.udpSilent = true, x.began
	a.fresh = u.udp.silent.active() // the first attempt was over TCP, perhaps over a dead connection
	u.send(a)
}

// repairSilence asks the upstreams that get no more attempts of the option attempts in the ways that
// have not been tried, unless they have replied. It reports whether there were any.
func (x *exchange) repairSilence() bool {
	waiting := x.inFlight
	for _, u := range x.candidates[:min(x.nextIndex, len(x.candidates))] {
		if x.historyOf(u).replied {
			continue
		}
		due := !u.edns.works.Load() || x.hasReply() // which ended the rounds, of which a later one is without EDNS
		if u.scheme == schemeDNS && due && x.maySendWithoutEDNS() && !x.historyOf(u).plain {
			a := x.newAttempt(u)
			a.noEDNS = true
			x.send(a)
		}
		if x.maySendOverTCP(u) {
			x.sendOverTCP(u)
		}
	}
	return x.inFlight > waiting
}

// verify sends a health check to u, whose reply shows that what is avoided from now on works: the
// failure of a name, which an attacker may own, must not change how others are sent for long.
func (u *upstream) verify(a *attempt) {
	a.request, a.probe, a.fresh, a.requester = u.options().check.request(), true, true, make(checkOutcomes, 2)
	u.send(a)
}
