package forward

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// An upstream is a server to which queries are sent.
type upstream struct {
	upstreamID
	set     *upstreamSet
	latency latencyHistogram
	metrics *upstreamMetrics

	waiting      atomic.Int64 // attempts that have not ended, without health checks
	lastReply    atomic.Int64 // of package clock
	overdue      atomic.Int32 // queries overdue since the last reply in time
	lastOverdue  atomic.Int64 // of package clock
	failedChecks atomic.Int32 // since the last reply
	downSince    atomic.Int64 // of package clock
	checking     atomic.Bool
	lastTrial    atomic.Int64            // when a query was last sent although the upstream was down
	noTCPUntil   atomic.Int64            // of package clock: where TCP is preferred
	failed       atomic.Pointer[failure] // the last one; nil before the first
	edns         ednsMemory
	udp          udpMemory
	letterCase   caseMemory
	held         slots.Counter // attempts of a multiplexed upstream
	httpConns    atomic.Int32

	mu         sync.Mutex
	sockets    []*socket
	streams    []*stream
	client     *http.Client // for DNS over HTTPS and gRPC
	quic       *quicConn    // the connection for the next query; nil if there is none
	unregister []func()
	retired    bool // removed from the set: no more health checks
}

const (
	// An upstream is suspect after suspectAfter overdue queries, for suspectFor
	// after the last of them.
	suspectAfter = 3
	suspectFor   = 2 * time.Second
	// noTCPFor is how long queries are sent over UDP to an upstream that could not be
	// connected to, where TCP is preferred.
	noTCPFor = 10 * time.Second
)

func newUpstream(s *upstreamSet, id upstreamID) *upstream {
	u := &upstream{upstreamID: id, set: s, metrics: newUpstreamMetrics(s.registry, id)}
	// Several forwards with other options may have the same upstream.
	gauge := func(name, help string, combine func(a, b float64) float64, value func() float64) {
		u.unregister = append(u.unregister, s.registry.SharedGauge(name, help, combine, value, "to", id.String()))
	}

	gauge("seamark_forward_upstream_up", "1 if the upstream is up, 0 if it has failed its health checks.",
		math.Min, func() float64 {
			if u.down() {
				return 0
			}
			return 1
		})
	gauge("seamark_forward_waiting_queries", "Queries sent to the upstream that it has not answered yet.",
		func(a, b float64) float64 { return a + b },
		func() float64 { return float64(u.waiting.Load()) })
	return u
}

func (u *upstream) options() *upstreamOptions { return &u.set.options }

// down reports whether the upstream has failed its health checks.
func (u *upstream) down() bool {
	limit := u.options().maxFails
	return limit > 0 && int(u.failedChecks.Load()) >= limit
}

// suspect reports whether recent queries have been overdue.
func (u *upstream) suspect(now time.Time) bool {
	return u.overdue.Load() >= suspectAfter && int64(clock.At(now))-u.lastOverdue.Load() < int64(suspectFor)
}

// allowTrial reports whether a query may be sent although the upstream is down. Few
// queries should wait for it, so at most a hundred a second may.
func (u *upstream) allowTrial(now time.Time) bool {
	last, at := u.lastTrial.Load(), int64(clock.At(now))
	return at-last > int64(10*time.Millisecond) && u.lastTrial.CompareAndSwap(last, at)
}

// latency95 returns how long to wait for the upstream before trying another.
func (u *upstream) latency95() time.Duration { return u.latency.percentile95(u.options().readTimeout) }

// countOverdue counts a query that has waited longer than latency95.
func (u *upstream) countOverdue() {
	u.lastOverdue.Store(int64(clock.Now()))
	if u.overdue.Add(1) >= suspectAfter {
		u.startChecks()
	}
}

// send sends a without blocking. The outcome is reported to its requester.
func (u *upstream) send(a *attempt) {
	a.upstream = u
	// A firewall may drop EDNS, which a health check does not need; a request with DO does.
	plainProbe := a.probe && u.scheme == schemeDNS
	a.edns = a.edns || !plainProbe && !a.noEDNS && (a.request.do || !u.edns.fails.active())
	if !a.probe {
		u.waiting.Add(1)
		u.metrics.requests.Add(1)
	}

	work := u.sendStream
	switch {
	case u.multiplexed() && !a.probe && !a.hold():
		u.fail(a, errBusy)
		return
	case u.multiplexed():
		a.useStream, work = true, u.sendMultiplexed
	case u.scheme == schemeTLS || u.options().forceTCP || a.useStream:
		a.useStream = true
	case (u.options().preferTCP || u.udp.silent.active()) && !a.fresh && u.noTCPUntil.Load() < int64(clock.Now()):
		a.useStream, a.mayUseUDP = true, true
	default:
		u.sendUDP(a)
		return
	}

	if !u.set.spawn(func() { work(a) }) {
		u.fail(a, errStopped)
	}
}

// hold reports whether the client of a may have another query wait for a multiplexed upstream.
func (a *attempt) hold() bool {
	x, ok := a.requester.(*exchange)
	if !ok {
		return true
	}
	if a.held = a.upstream.held.TryAdd(x.client, maxMultiplexed); a.held {
		a.client = x.client
	}
	return a.held
}

// endWaiting is called once for each attempt that is no probe.
func (u *upstream) endWaiting(a *attempt) {
	u.waiting.Add(-1)
	if a.held {
		u.held.Done(a.client)
	}
}

// finish ends a with a reply.
func (u *upstream) finish(a *attempt, r *reply) {
	now, finished := time.Now(), a.requester.isFinished()
	if !finished && !a.probe {
		u.overdue.Store(0)
	}
	if !a.probe {
		u.endWaiting(a)
		u.latency.add(clock.At(now) - a.sent)
		u.metrics.countReply(r.code, clock.At(now)-a.sent)
		if r.code == wire.ServFail || r.code == wire.Refused {
			u.remember(errorReply(r.code))
		}
	}

	if u.edns.learn(a, r) {
		u.verify(&attempt{edns: true})
	}
	if u.udp.learn(a) {
		if wait := time.Duration(u.udp.silent.wait.Load()); wait > minAvoided {
			u.set.log.Warn("forward: No replies over UDP, using TCP", "upstream", u.String(), "duration", wait)
		}
		u.verify(&attempt{})
	}
	// Queries are sent to an upstream that is up, and then have to know what works.
	u.lastReply.Store(int64(clock.At(now)))
	u.countSuccess()

	if finished {
		u.metrics.discard(late)
	}
	if r.dropped > 0 && !a.probe {
		u.metrics.discard(extraRecord)
	}
	a.requester.report(outcome{attempt: a, reply: r})
}

// fail ends a with an error.
func (u *upstream) fail(a *attempt, err error) {
	if err != errStopped && a.udpSilent == 0 { // else the silence over UDP says more
		u.remember(err)
	}
	if !a.probe {
		u.endWaiting(a)
		// An upstream that is asked over TCP for want of replies over UDP may well have none.
		if err != errStopped && err != errSpoofed && err != errBusy && !isLocal(err) && a.udpSilent == 0 {
			u.countFailure(err)
		}
	}
	a.requester.report(outcome{attempt: a, err: err})
}

// countFailure counts a query that was not answered, and starts health checks.
func (u *upstream) countFailure(err error) {
	u.metrics.failed.Add(1)
	if !isTimeout(err) { // refused or closed: prefer other upstreams
		u.overdue.Store(suspectAfter)
		u.lastOverdue.Store(int64(clock.Now()))
	}
	u.startChecks()
}

// discard counts a datagram that is not used. If a is not nil, the datagram is a reply to a
// with a fault. It may be forged, so a keeps waiting.
func (u *upstream) discard(a *attempt, f fault) {
	u.metrics.discard(f)
	if a == nil || a.sawInvalid {
		return
	}
	a.sawInvalid = true
	a.requester.report(outcome{attempt: a, fault: f})
}

// reject ends a, whose reply over a connection has a fault.
func (u *upstream) reject(a *attempt, f fault) {
	u.metrics.discard(f)
	u.endFaulty(a, f)
}

// endFaulty ends a with a fault that has been counted.
func (u *upstream) endFaulty(a *attempt, f fault) {
	u.remember(&faultError{u, f})
	u.lastReply.Store(int64(clock.Now()))
	u.countSuccess()
	if !a.probe {
		u.endWaiting(a)
		u.metrics.failed.Add(1)
	}
	a.requester.report(outcome{attempt: a, fault: f})
}

// receive processes a packet from a socket or connection to u. It reports whether the
// packet belongs to no attempt, or perhaps is spoofed: no attempt has had its ID, or not with
// its question or letter case.
func (u *upstream) receive(t *attemptTable, packet []byte, p *parser, limit int) (stray bool) {
	var a *attempt
	used := false
	if len(packet) >= 2 {
		a, used = t.find(uint16(packet[0])<<8 | uint16(packet[1]))
	}

	r, f := (*reply)(nil), malformed
	switch {
	case a == nil && used:
		u.discard(nil, late) // the attempt timed out, or this is a duplicate
		return false
	case a == nil && len(packet) >= wire.HeaderLen:
		u.discard(nil, unknownID)
		return true
	case a == nil:
		u.discard(nil, malformed)
		return true
	case len(packet) >= wire.HeaderLen:
		r, f = u.parse(a, packet, p, limit)
	}

	switch {
	case f == wrongQuestion && !a.useStream:
		u.discard(nil, f)
		return true
	case f != valid && !a.useStream:
		u.discard(a, f)
		return f == wrongCase
	case !t.take(a):
	case f != valid:
		u.reject(a, f)
	default:
		u.finish(a, r)
	}
	return false
}

// parse validates a packet that has a's ID.
func (u *upstream) parse(a *attempt, packet []byte, p *parser, limit int) (*reply, fault) {
	randomized := a.randomCase != nil && hasQuestion(packet)
	exact := randomized && restoreCase(packet, a.randomCase, a.request.question)
	if a.useStream && hasQuestion(packet) { // over a connection nobody else can send a reply
		restoreCase(packet, a.request.question, a.request.question)
	}

	switch {
	case isCutInQuestion(packet, a.request.question):
		return nil, malformed
	case !echoesQuestion(packet, a.request.question):
		if isResponse(packet) && binary.BigEndian.Uint16(packet[4:]) != 1 {
			return nil, malformed // which a query never has (RFC 9619)
		}
		return nil, questionFault(packet, a.request.question)
	case randomized && !u.letterCase.accepts(a, exact):
		return nil, wrongCase
	case len(packet) > limit:
		u.metrics.discard(oversize)
		return &reply{flags: wire.FlagTC, truncated: true, edns: true}, valid
	}

	p.ownZones, p.memory, p.kept = a.request.ownZones, u.set.memory, 0
	if a.request.observed {
		p.kept = len(packet)
	}
	r, f := p.parse(packet, a.request.question, a.request.do)
	if f != valid {
		return nil, f
	}
	if a.request.flags&wire.FlagRD == 0 {
		r.allowReferral()
	}
	if r.edns && u.edns.mayBeSentBack(r) && a.isSentBack(packet) {
		r.edns = false
	}
	if a.request.observed && r.err == nil {
		r.packet, r.received = bytes.Clone(packet), clock.Now()
	}
	return r, valid
}

// timeoutError returns the error of a read that timed out, in the wording of
// package net, which users' log filters match.
func timeoutError(network string, from, to net.Addr) error {
	return &net.OpError{Op: "read", Net: network, Source: from, Addr: to, Err: os.ErrDeadlineExceeded}
}

// sweepInterval returns how often sockets and connections check for attempts that
// timed out.
func (u *upstream) sweepInterval() time.Duration {
	return min(max(u.options().readTimeout/8, 5*time.Millisecond), 250*time.Millisecond)
}

// restInterval returns the same for those on which no attempt waits: they are only closed some time, and each check
// wakes a processor.
func (u *upstream) restInterval() time.Duration {
	return max(u.sweepInterval(), min(u.options().expire/10, time.Second))
}

// dialer returns a dialer that uses source_address for upstreams of its family.
func (o *upstreamOptions) dialer(network string, to netip.Addr) *net.Dialer {
	d := &net.Dialer{}
	if o.sourceAddress.IsValid() && o.sourceAddress.Is4() == to.Is4() {
		if strings.HasPrefix(network, "udp") {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.sourceAddress, 0))
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.sourceAddress, 0))
		}
	}
	return d
}

// retire is called when u is removed from the set. No more queries are sent over its
// sockets and connections, which are closed when their waiting queries have ended.
func (u *upstream) retire() {
	u.mu.Lock()
	u.retired = true
	for _, unregister := range u.unregister {
		unregister()
	}
	sockets, streams, client := u.sockets, u.streams, u.client
	u.sockets, u.streams = nil, nil
	if u.quic != nil {
		u.quic.retire()
	}
	u.mu.Unlock()

	retire(sockets)
	for _, s := range streams {
		s.retired.Store(true)
	}
	if client != nil {
		client.CloseIdleConnections()
	}
}
