//go:build linux

package main

import (
	"context"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The transports of a load.
const (
	overUDP = "udp"
	overTCP = "tcp"
	perTCP  = "tcp, a connection for each query"
	dnsperf = "udp, dnsperf"

	overTLS   = "tls"
	overHTTPS = "https"
	overQUIC  = "quic"
)

// A load describes the queries of a generator.
type load struct {
	to        netip.AddrPort
	lookups   []*lookup
	transport string
	sockets   int           // sockets or connections
	window    int           // outstanding queries on all of them; with a rate there is no limit
	rate      float64       // queries per second, independent of replies; 0: as fast as the window allows
	time      time.Duration // duration
	cpu       int           // CPU to run on; negative is any
	expires   bool          // see comparison

	namespaces []*os.File // network namespaces that the sockets are opened in by turns; ours without any
}

// run sends the load and counts the replies.
func (l load) run(ctx context.Context) (*tally, error) {
	switch l.transport {
	case overTCP, overTLS:
		return l.runTCP(ctx, l.streams)
	case overHTTPS:
		return l.runTCP(ctx, l.requests)
	case overQUIC:
		return l.runTCP(ctx, l.quicStreams)
	case dnsperf:
		return l.runDnsperf(ctx)
	case perTCP:
		return l.runTCP(ctx, l.connections)
	}
	return l.runUDP(ctx)
}

// checkEvery is the interval, in answers, at which all records are validated.
const checkEvery = 64

// patience is the time after which a query counts as lost.
const patience = time.Second

// A tally is the result of a load.
type tally struct {
	sent, answered, lost, wrong int
	bytes                       int // of all answers
	elapsed                     time.Duration
	latencies                   []float64 // seconds; UDP only
	trips                       []float64 // likewise, from the time of sending on
	example                     string    // a wrong answer
}

// got counts an answer and checks it.
func (t *tally) got(q *lookup, packet []byte) {
	t.answered++
	t.bytes += len(packet)
	if why := q.wrong(packet, t.answered%checkEvery == 1); why != "" {
		t.wrong++
		t.example = why
	}
}

func (t *tally) add(o *tally) {
	t.sent += o.sent
	t.answered += o.answered
	t.lost += o.lost
	t.wrong += o.wrong
	t.bytes += o.bytes
	if o.example != "" {
		t.example = o.example
	}
}

// clock returns CLOCK_MONOTONIC, the same in every process of the machine.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}
