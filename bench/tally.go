//go:build linux

package main

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// How a load is carried.
const (
	overUDP = "udp"
	overTCP = "tcp"
	perTCP  = "tcp, a connection for each query"
	dnsperf = "udp, dnsperf"
)

// A load is what a generator sends.
type load struct {
	to        netip.AddrPort
	questions []*question
	transport string
	sockets   int           // sockets or connections
	window    int           // queries outstanding on all of them; with a rate, no limit
	rate      float64       // queries in a second, whatever comes back; 0: as fast as the window allows
	time      time.Duration // for how long
	cpu       int           // to run on; negative: any
}

// run sends the load and returns what came back.
func (l load) run(ctx context.Context) (*tally, error) {
	switch l.transport {
	case overTCP:
		return l.runTCP(ctx, l.streams)
	case dnsperf:
		return l.runDnsperf(ctx)
	case perTCP:
		return l.runTCP(ctx, l.connections)
	}
	return l.runUDP(ctx)
}

// checkEvery is how many answers are between two whose records are all looked
// at.
const checkEvery = 64

// patience is how long an answer may take before it counts as lost.
const patience = time.Second

// A tally is what came of a load.
type tally struct {
	sent, answered, lost, wrong int
	bytes                       int // of all answers
	elapsed                     time.Duration
	latencies                   []float64 // seconds; of UDP only
	example                     string    // of a wrong answer
}

// got counts an answer and checks it.
func (t *tally) got(q *question, packet []byte) {
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

// A clock reads nanoseconds of no particular beginning, the same in every
// process of the machine.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(t.Nano())
}
