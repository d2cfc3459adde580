package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// serve is a Handler.
type serve func(q *Query) Verdict

func (f serve) ServeDNS(q *Query) Verdict { return f(q) }

type resolve func(ctx context.Context, q *Query) error

func (f resolve) Resolve(ctx context.Context, q *Query) error { return f(ctx, q) }

type serveAndResolve struct {
	serve
	resolve
}

// trace is a handler that logs its ServeDNS and FinishDNS.
type trace struct {
	name string
	to   *[]string
	serve
}

func (h trace) ServeDNS(q *Query) Verdict {
	*h.to = append(*h.to, "down "+h.name)
	return h.serve(q)
}

func (h trace) FinishDNS(q *Query) { *h.to = append(*h.to, "up "+h.name) }

type observe func(q *Query)

func (f observe) ObserveDNS(q *Query) { f(q) }

func next(*Query) Verdict { return Next }

// addresses returns a handler that answers with n A records.
func addresses(n int) serve {
	return func(q *Query) Verdict {
		for i := range n {
			q.Answer.Buf = wire.AppendAddress(q.Answer.Buf, wire.OwnerIsQuestion, 30, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
			q.Answer.Count[wire.Answers]++
		}
		q.AA = true
		return Done
	}
}

// chain returns a chain of handlers named h0, h1 and so on.
func chain(handlers ...any) *Chain {
	c := &Chain{Zone: "."}
	for i, h := range handlers {
		c.Add(fmt.Sprint("h", i), h)
	}
	return c
}

// parkFirst adds a handler above the handlers of c that makes every query wait.
func parkFirst(c *Chain) {
	park := resolve(func(ctx context.Context, q *Query) error { q.Next(ctx); return nil })
	c.steps = append([]step{{name: "park", value: park, resolver: park, anyClass: true, parked: new(atomic.Int64)}}, c.steps...)
}

// rig is a Port and the Sender of its queries, which keeps the replies.
type rig struct {
	t      *testing.T
	port   Port
	mux    *Mux
	lot    *ParkingLot
	mu     sync.Mutex
	sent   chan *mdns.Msg // replies of parked queries; nil if dropped
	panics []any
}

func newRig(t *testing.T, room int, routes map[string]*Chain) *rig {
	t.Helper()
	r := &rig{t: t, lot: NewParkingLot(room), sent: make(chan *mdns.Msg, 100)}
	r.mux = NewMux(r.lot, func(q *Query, cause any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.panics = append(r.panics, cause)
	})
	for zone, c := range routes {
		name, err := wire.ParseName(zone)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.mux.Route(name, c); err != nil {
			t.Fatal(err)
		}
	}
	r.port.Swap(r.mux)
	return r
}

func (r *rig) Send(q *Query) {
	var m *mdns.Msg
	if len(q.Reply()) > 0 {
		m = unpack(r.t, q.Reply())
	}
	r.sent <- m
}

// newQuery returns a query as a client sends it.
func newQuery(name string, t uint16) *mdns.Msg {
	return new(mdns.Msg).SetQuestion(mdns.Fqdn(name), t)
}

// ask serves one packet as a reader does. It returns the reply unless the query
// is parked or dropped.
func (r *rig) ask(m *mdns.Msg) (Outcome, *mdns.Msg) {
	r.t.Helper()
	packet, err := m.Pack()
	if err != nil {
		r.t.Fatal(err)
	}
	return r.askBytes(packet, UDP)
}

func (r *rig) askBytes(packet []byte, proto Proto) (outcome Outcome, reply *mdns.Msg) {
	r.t.Helper()
	q := NewQuery(r)
	lent := make([]byte, 0, 1<<17)
	q.Reset(packet, proto, time.Now())
	func() {
		defer func() {
			if cause := recover(); cause != nil {
				outcome = r.port.Recover(q, lent, cause)
			}
		}()
		outcome = r.port.Serve(q, lent)
	}()
	switch outcome {
	case Answered:
		q.Observe(time.Now())
		return outcome, unpack(r.t, q.Reply())
	case Dropped:
		q.Observe(time.Now())
	}
	return outcome, nil
}

// wait returns the reply of a parked query.
func (r *rig) wait() *mdns.Msg {
	r.t.Helper()
	select {
	case m := <-r.sent:
		return m
	case <-time.After(time.Minute):
		r.t.Fatal("got no reply of a parked query within five seconds")
		return nil
	}
}

// answer serves a query and returns its reply, if need be after waiting for it.
func (r *rig) answer(m *mdns.Msg) *mdns.Msg {
	r.t.Helper()
	outcome, reply := r.ask(m)
	if outcome == Parked {
		reply = r.wait()
	}
	if reply == nil {
		r.t.Fatalf("%v: got no reply, want one", m.Question)
	}
	return reply
}

func unpack(t *testing.T, packet []byte) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil {
		t.Errorf("unpacking the reply %x: %v", packet, err)
	}
	return m
}

var errTest = errors.New("upstream is down")
