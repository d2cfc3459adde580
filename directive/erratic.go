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
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// Erratic drops, delays and truncates replies, to test clients: the erratic directive. Its
// reference page is docs/reference/directives/erratic.md.
type Erratic struct {
	drop, truncate, delay int // one query in so many; 0 is off
	duration              time.Duration
	large                 bool
	count                 atomic.Uint64
}

// SetupErratic sets up the erratic directive.
func SetupErratic(b *config.Block, uses []corefile.Directive) error {
	e := &Erratic{duration: 100 * time.Millisecond}
	given := false
	amount := func(n *int) func(corefile.Directive) error {
		return func(o corefile.Directive) error {
			*n, given = 2, true
			o.Args = o.Args[:min(1, len(o.Args))]
			return corefile.Int(n, 0, math.MaxInt32)(o)
		}
	}

	d := uses[0]
	_, zoneErr := b.ZonesOr(d)
	err := errors.Join(config.Once(uses), zoneErr, d.Options(
		corefile.Option{Usage: "drop [AMOUNT]", Set: amount(&e.drop)},
		corefile.Option{Usage: "truncate [AMOUNT]", Set: amount(&e.truncate)},
		corefile.Option{Usage: "delay [AMOUNT [DURATION]]", Set: func(o corefile.Directive) error {
			err := amount(&e.delay)(o)
			if len(o.Args) == 2 {
				err = errors.Join(err, corefile.Duration(&e.duration, time.Millisecond, 5*time.Second)(o))
			}
			return err
		}},
		corefile.Option{Usage: "large", Set: corefile.Flag(&e.large)},
	))
	if !given {
		e.drop = 2
	}
	b.Handle(e)
	b.Answers(config.Extent{Use: d, Zones: []wire.Name{wire.Root}})
	return err
}

// Ready reports whether three or four queries have been answered.
func (e *Erratic) Ready() bool {
	n := e.count.Load()
	return n >= 3 && n < 5
}

// ServeDNS answers q, drops it or returns Wait.
func (e *Erratic) ServeDNS(q *dns.Query) dns.Verdict {
	n := e.count.Add(1) - 1
	selected := func(amount int) bool { return amount > 0 && n%uint64(amount) == 0 }
	if selected(e.drop) {
		return dns.Drop
	}
	e.answer(q, selected(e.truncate))
	if selected(e.delay) {
		return dns.Wait
	}
	return dns.Done
}

// Resolve waits for the configured duration.
func (e *Erratic) Resolve(ctx context.Context, _ *dns.Query) error {
	if !clock.Sleep(ctx, e.duration) {
		return ctx.Err()
	}
	return nil
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

// transfer appends a zone that has one address.
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

// ExplainDNS implements [dns.Explainer].
func (e *Erratic) ExplainDNS(*dns.Query, dns.Verdict) []dns.Cause {
	return []dns.Cause{{Text: "every name is answered; some queries are dropped, delayed or truncated on purpose"}}
}
