package directive

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An Erratic is a server on which others can try how they cope with a bad one:
// the erratic directive.
//
//	erratic {
//	    drop [AMOUNT]
//	    truncate [AMOUNT]
//	    delay [AMOUNT [DURATION]]
//	    large
//	}
//
// Every name has A 192.0.2.53 and AAAA 2001:db8::53, with a TTL of 0. AXFR over
// TCP gets a zone of one address; other types are answered SERVFAIL.
//
// drop, truncate and delay do so to one query in AMOUNT, the first and then
// each AMOUNT-th, 2 unless given; 0 is none. drop does not answer. truncate sets
// TC over UDP, and leaves the last SOA record of a transfer out. delay waits for
// DURATION, 1ms to 5s, 100ms unless given. Without any of the three, one query in
// two is dropped. large gives each answer its record 30 times.
//
// It is ready, as the ready directive sees it, when three or four queries have
// been answered, and not before or after: readiness comes and goes.
//
//	.:1053 {
//	    erratic {
//	        drop 3
//	        delay 5 50ms
//	    }
//	}
//
// Same as CoreDNS. Differs: truncate is for UDP alone, and DURATION has a bound.
type Erratic struct {
	drop, truncate, delay int
	wait                  time.Duration
	large                 bool
	count                 atomic.Uint64
}

// SetupErratic is the Setup of erratic.
func SetupErratic(b *config.Block, uses []corefile.Directive) error {
	e := &Erratic{wait: 100 * time.Millisecond}
	given := false
	amount := func(n *int) func(corefile.Directive) error {
		return func(o corefile.Directive) error {
			*n, given = 2, true
			if len(o.Args) == 0 {
				return nil
			}
			o.Args = o.Args[:1]
			return corefile.Int(n, 0, math.MaxInt32)(o)
		}
	}
	d := uses[0]
	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		corefile.Option{Name: "drop", Max: 1, Set: amount(&e.drop)},
		corefile.Option{Name: "truncate", Max: 1, Set: amount(&e.truncate)},
		corefile.Option{Name: "delay", Max: 2, Set: func(o corefile.Directive) error {
			err := amount(&e.delay)(o)
			if len(o.Args) == 2 {
				err = errors.Join(err, corefile.Duration(&e.wait, time.Millisecond, 5*time.Second)(o))
			}
			return err
		}},
		corefile.Option{Name: "large", Set: corefile.Flag(&e.large)},
	))
	if !given {
		e.drop = 2
	}
	b.Handle(e)
	return err
}

// Ready comes and goes.
func (e *Erratic) Ready() bool {
	n := e.count.Load()
	return n >= 3 && n < 5
}

// ServeDNS answers every query, or does not.
func (e *Erratic) ServeDNS(q *dns.Query) dns.Verdict {
	n := e.count.Add(1) - 1
	hit := func(amount int) bool { return amount > 0 && n%uint64(amount) == 0 }
	if hit(e.drop) {
		return dns.Drop
	}
	e.answer(q, hit(e.truncate))
	if hit(e.delay) {
		return dns.Wait
	}
	return dns.Done
}

// Resolve waits.
func (e *Erratic) Resolve(ctx context.Context, _ *dns.Query) error {
	timer := time.NewTimer(e.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Erratic) answer(q *dns.Query, truncate bool) {
	var room [16]byte
	copies := 1
	if e.large {
		copies = 30
	}
	addr := netip.AddrFrom4([4]byte{192, 0, 2, 53})
	switch {
	case q.Type == wire.TypeA:
	case q.Type == wire.TypeAAAA:
		room = [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 0x53}
		addr = netip.AddrFrom16(room)
	case q.Type == wire.TypeAXFR && q.Proto == dns.TCP:
		e.transfer(q, addr, truncate)
		return
	default:
		q.Fail(wire.ServFail)
		return
	}
	q.AA = true
	q.TC = truncate && q.Proto == dns.UDP
	var record [64]byte
	for range copies {
		q.Answer.Append(wire.Answers, wire.AppendAddress(record[:0], wire.OwnerIsQuestion, 0, addr), 1)
	}
}

// transfer is a zone with one address in it.
func (e *Erratic) transfer(q *dns.Query, addr netip.Addr, truncate bool) {
	q.AA = true
	var room [128]byte
	soa := appendLocalSOA(room[:0], 0)
	q.Answer.Append(wire.Answers, soa, 1)
	q.Answer.Append(wire.Answers, wire.AppendAddress(soa[len(soa):], wire.OwnerIsQuestion, 0, addr), 1)
	if !truncate {
		q.Answer.Append(wire.Answers, soa, 1)
	}
}
