package forward

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/wire"
)

// An upstream is one server that questions are sent to.
type upstream struct {
	target
	set     *upstreams
	latency latencies
	counted *series

	heard    atomic.Int64 // when it answered last, in nanoseconds since 1970
	misses   atomic.Int32 // questions, since it answered in time, that it has let wait
	missed   atomic.Int64 // when it did so last
	fails    atomic.Int32 // health checks that failed since it answered
	checking atomic.Bool
	tried    atomic.Int64 // when it was last sent a question although it is down
	noEDNS   atomic.Int64 // until when it is asked without EDNS

	mu      sync.Mutex
	sockets []*socket
	streams []*stream
	web     *http.Client // of DNS over HTTPS
	gone    bool         // it is no upstream any more: no health checks
}

const (
	// suspicion is how many questions an upstream lets wait before others are
	// asked first, and for how long after the last.
	suspicion    = 3
	suspicionEnd = 2 * time.Second
	// withoutEDNS is how long we believe that an upstream does not know EDNS.
	withoutEDNS = 10 * time.Minute
)

func (u *upstream) options() *options { return &u.set.options }

// down says that health checks have failed.
func (u *upstream) down() bool {
	most := u.options().maxFails
	return most > 0 && int(u.fails.Load()) >= most
}

// suspect says that it has been letting questions wait just now.
func (u *upstream) suspect(now time.Time) bool {
	return u.misses.Load() >= suspicion && now.UnixNano()-u.missed.Load() < int64(suspicionEnd)
}

// worthTrying says whether an upstream that is down gets a question all the
// same: a hundred in a second do, so that those which wait for it are few
// however many clients there are.
func (u *upstream) worthTrying(now time.Time) bool {
	last := u.tried.Load()
	return now.UnixNano()-last > int64(10*time.Millisecond) && u.tried.CompareAndSwap(last, now.UnixNano())
}

// tail is how long a question is left to it alone.
func (u *upstream) tail() time.Duration { return u.latency.tail(u.options().readTimeout) }

// waits notes that it has let a question wait for longer than its tail.
func (u *upstream) waits() {
	u.missed.Store(time.Now().UnixNano())
	if u.misses.Add(1) >= suspicion {
		u.check()
	}
}

// send sends a, and never blocks. The outcome comes by a.ended.
func (u *upstream) send(a *attempt) {
	a.to = u
	a.edns = !a.bare && u.noEDNS.Load() < time.Now().UnixNano()
	a.packet = a.request.packet(a.edns)
	if !a.probe {
		u.counted.requests.Add(1)
	}
	work := u.sendStream
	switch {
	case u.scheme == overHTTPS:
		a.stream, work = true, u.sendHTTPS
	case u.scheme == overTLS || u.options().forceTCP || a.stream:
		a.stream = true
	default:
		u.sendUDP(a)
		return
	}
	if !u.set.spawn(func() { work(a) }) {
		u.failed(a, errStopped)
	}
}

// answered ends a with a reply.
func (u *upstream) answered(a *attempt, r *reply) {
	now, tooLate := time.Now(), a.over.Load()
	u.heard.Store(now.UnixNano())
	u.fails.Store(0)
	if !tooLate && !a.probe {
		u.misses.Store(0)
	}
	if !a.probe {
		u.latency.add(now.Sub(a.sent))
		u.counted.answered(r.code, now.Sub(a.sent))
	}
	if a.bare && !r.dislikes() && len(a.request.options) == 0 {
		u.noEDNS.Store(now.Add(withoutEDNS).UnixNano()) // RFC 6891 §7
	}
	if tooLate {
		u.counted.discard(late)
	}
	if r.left > 0 && !a.probe {
		u.counted.discard(scrubbed)
	}
	a.ended <- &outcome{attempt: a, reply: r}
}

// failed ends a with an error.
func (u *upstream) failed(a *attempt, err error) {
	if !a.probe && err != errStopped && err != errGuessed {
		u.counted.failed.Add(1)
		if !isTimeout(err) { // it refuses, or hangs up: others first
			u.misses.Store(suspicion)
			u.missed.Store(time.Now().UnixNano())
		}
		u.check()
	}
	a.ended <- &outcome{attempt: a, err: err}
}

// discard counts a packet that is not a's answer. a goes on waiting: the
// answer may still come.
func (u *upstream) discard(a *attempt, why fault) {
	u.counted.discard(why)
	if a == nil || a.nudged {
		return
	}
	a.nudged = true
	a.ended <- &outcome{attempt: a, nudge: true}
}

// read looks at a packet that came by a socket or connection of u's. p is the
// caller's. A guess is a packet that u has no reason to send: somebody else may
// be trying ids.
func (u *upstream) read(t *table, packet []byte, p *parser, most int) (guess bool) {
	if len(packet) < wire.HeaderLen {
		u.discard(nil, malformed)
		return true
	}
	a, used := t.find(uint16(packet[0])<<8 | uint16(packet[1]))
	switch {
	case a == nil && used:
		u.discard(nil, late) // we had given up, or it comes twice
		return false
	case a == nil:
		u.discard(nil, unasked)
		return true
	}
	r, why := u.parse(a, packet, p, most)
	switch {
	case why == question:
		u.discard(nil, why)
		return true
	case why != sound:
		u.discard(a, why)
	case t.take(a):
		u.answered(a, r)
	}
	return false
}

// parse checks a packet that has a's id.
func (u *upstream) parse(a *attempt, packet []byte, p *parser, most int) (*reply, fault) {
	switch {
	case !echoes(packet, a.request.question):
		return nil, question
	case len(packet) > most:
		u.counted.discard(oversize)
		return &reply{flags: wire.FlagTC, cut: true, edns: true}, sound
	}
	r, why := p.parse(packet, a.request.question, a.request.do)
	if why == sound && r.cut && a.stream {
		return nil, malformed // there is no other way left to ask
	}
	return r, why
}

// timedOut is the error of a read that waited in vain, in the words of package
// net: people's configurations look for them.
func timedOut(network string, from, to net.Addr) error {
	return &net.OpError{Op: "read", Net: network, Source: from, Addr: to, Err: os.ErrDeadlineExceeded}
}

// tick is how often sockets and connections look for what has waited too long.
func (u *upstream) tick() time.Duration {
	return min(max(u.options().readTimeout/8, 5*time.Millisecond), 250*time.Millisecond)
}

// dialer makes connections from the address that was asked for, to upstreams
// of its family.
func (o *options) dialer(network string, to netip.Addr) *net.Dialer {
	d := &net.Dialer{}
	if o.source.IsValid() && o.source.Is4() == to.Is4() {
		if strings.HasPrefix(network, "udp") {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.source, 0))
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.source, 0))
		}
	}
	return d
}

// retire is for an upstream that is nobody's any more: what is open takes no
// more questions, and closes when those under way have ended.
func (u *upstream) retire() {
	u.mu.Lock()
	u.gone = true
	sockets, streams, web := u.sockets, u.streams, u.web
	u.sockets, u.streams = nil, nil
	u.mu.Unlock()
	for _, s := range sockets {
		s.retired.Store(true)
	}
	for _, s := range streams {
		s.retired.Store(true)
	}
	if web != nil {
		web.CloseIdleConnections()
	}
}
