package transport

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/race"
)

// A placeTest opens connections of one kind of listener with some places.
type placeTest interface {
	// open returns nil if the connection is refused.
	open(client netip.Addr) *placeConn
}

// A placeConn is a connection of a placeTest.
type placeConn struct {
	use    func(busy bool) // the client has sent a query, or has got its reply
	close  func()
	closed bool
	opened time.Time
}

// end closes the connection.
func (c *placeConn) end() {
	c.close()
	c.closed = true
}

const (
	testPlaces    = 20 // of each kind of listener
	testAttackers = 60
)

type tcpPlaces struct {
	l     *Listener
	conns map[*conn]*placeConn
}

func newTCPPlaces(t *testing.T) placeTest {
	o := Options{MaxConns: testPlaces}.OrDefaults()
	l := &Listener{o: o, start: time.Now(), counts: newCounters(new(metrics.Registry))}
	l.limits.Store(&o.Limits)
	l.conns.init()
	l.conns.checking = true
	return &tcpPlaces{l, map[*conn]*placeConn{}}
}

func (p *tcpPlaces) open(client netip.Addr) *placeConn {
	c := newConn(p.l, pipeSocket{}, netip.AddrPortFrom(client, 1), netip.AddrPort{})
	refused, evicted := p.l.conns.add(c)
	if evicted != nil {
		p.conns[evicted].closed = true
		delete(p.conns, evicted)
	}
	if refused != nil {
		return nil
	}
	p.conns[c] = &placeConn{
		use: func(busy bool) {
			if c.asked.Store(true); busy {
				c.refs.Add(1)
			} else {
				c.refs.Add(-1)
			}
			c.lastActive.Store(p.l.clock(time.Now()))
		},
		close: func() { p.l.conns.removeClosed(c); delete(p.conns, c) },
	}
	return p.conns[c]
}

type tablePlaces struct{ table *ConnTable }

func newTablePlaces(replace bool) func(t *testing.T) placeTest {
	return func(t *testing.T) placeTest {
		table := NewConnTable(ConnLimits{Most: func() int { return testPlaces }, Replace: replace})
		t.Cleanup(table.Stop)
		return tablePlaces{table}
	}
}

// An abortedConn is the end of a connection that has been replaced.
type abortedConn struct {
	net.Conn
	c *placeConn
}

func (c abortedConn) Close() error { c.c.closed = true; return nil }

func (p tablePlaces) open(client netip.Addr) *placeConn {
	opened := new(placeConn)
	c := &limitedConn{Conn: abortedConn{c: opened}, l: &LimitedListener{table: p.table}, client: client}
	c.touch()
	if !p.table.add(c) {
		return nil
	}
	opened.use = func(busy bool) { c.touch(); SetBusy(c, busy) }
	opened.close = func() { p.table.removeClosed(c) }
	return opened
}

type sessionPlaces struct{ s *Sessions }

func newSessionPlaces(t *testing.T) placeTest {
	return sessionPlaces{NewSessions(NewMessages(Options{MaxConns: testPlaces}.OrDefaults()))}
}

func (p sessionPlaces) open(client netip.Addr) *placeConn {
	peer := net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, 1))
	ctx, cancel := context.WithCancel(context.Background())
	ctx, err := p.s.Begin(ctx, peer, time.Hour)
	if err != nil {
		cancel()
		return nil
	}
	opened := new(placeConn)
	c := p.s.Add(ctx, peer, func() { opened.closed = true; cancel() })
	opened.use = func(busy bool) {
		if busy {
			c.StartQuery()
		} else {
			c.EndQuery()
		}
	}
	opened.close = func() { p.s.Remove(c); cancel() }
	return opened
}

// An attack is what attackers do with their connections, each of which is opened again when it is lost.
type attack struct {
	conns   int           // of each attacker
	queries bool          // each has a query, with a reply at once
	slow    bool          // without a reply
	keeps   time.Duration // closes a connection after that time; 0 is never
	rate    int           // connections in a step
}

// An attacker has an address.
type attacker struct {
	client netip.Addr
	conns  []*placeConn
}

// placesAttacked is a listener with attackers, under a virtual clock.
type placesAttacked struct {
	placeTest
	attack
	attackers []*attacker
	next      int // the attacker whose turn it is
}

// placeStep is the time between two steps of an attack. A handshake takes ten.
const placeStep = 10 * time.Millisecond

// run lets the attackers work for a time.
func (p *placesAttacked) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(placeStep) {
		for range p.rate {
			p.attackOnce(p.attackers[p.next%len(p.attackers)])
			p.next++
		}
		synctest.Wait()
	}
}

func (p *placesAttacked) attackOnce(a *attacker) {
	a.conns = slices.DeleteFunc(a.conns, func(c *placeConn) bool {
		if !c.closed && p.keeps > 0 && time.Since(c.opened) >= p.keeps {
			c.end()
		}
		return c.closed
	})
	for len(a.conns) < p.conns {
		c := p.open(a.client)
		if c == nil {
			return
		}
		if p.queries {
			c.use(true)
		}
		if p.queries && !p.slow {
			c.use(false)
		}
		c.opened = time.Now()
		a.conns = append(a.conns, c)
	}
}

// ask sends a query over c, or over a new connection if c is nil or closed. It returns the connection if
// the query is answered.
func (p *placesAttacked) ask(c *placeConn, client string, handshake time.Duration) *placeConn {
	if c == nil || c.closed {
		if c = p.open(netip.MustParseAddr(client)); c == nil {
			return nil
		}
		if p.run(handshake); c.closed {
			return nil
		}
	}
	c.use(true)
	if p.run(placeStep); c.closed {
		return nil
	}
	c.use(false)
	return c
}

// Attackers with three addresses for each place keep no other client out: neither one that has a connection
// for each query, nor one that keeps its connection. Of places that all attackers use without end, such
// a client has some, too.
func TestPlacesAttackedFromManyAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	const queries, handshake = 12, 10 * placeStep
	for kind, listener := range map[string]struct {
		open      func(*testing.T) placeTest
		handshake time.Duration
	}{
		"TCP and TLS":    {newTCPPlaces, handshake},
		"HTTPS and gRPC": {newTablePlaces(false), handshake},
		"QUIC":           {newSessionPlaces, handshake},
		"status pages":   {newTablePlaces(true), 0},
	} {
		for name, tc := range map[string]struct {
			attack
			want int // answers of both clients, at least
		}{
			"silent":                        {attack{conns: 1, rate: testAttackers}, 11},
			"silent, a few at a time":       {attack{conns: 1, rate: 1}, 9},
			"idle after a query":            {attack{conns: 1, queries: true, rate: testAttackers}, 11},
			"slow queries":                  {attack{conns: 1, queries: true, slow: true, rate: testAttackers}, 4},
			"slow queries, a few at a time": {attack{conns: 1, queries: true, slow: true, rate: 1}, 1},
			"slow queries, two connections": {attack{conns: 2, queries: true, slow: true, rate: testAttackers}, 4},
			"silent, two connections":       {attack{conns: 2, rate: testAttackers}, 11},
			"connects again and again":      {attack{conns: 1, rate: testAttackers, keeps: placeStep}, 11},
			"queries and connects again":    {attack{conns: 1, queries: true, rate: testAttackers, keeps: placeStep}, 11},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &placesAttacked{placeTest: listener.open(t), attack: tc.attack}
					for i := range testAttackers {
						p.attackers = append(p.attackers, &attacker{client: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
					}
					p.run(12 * time.Second)

					one, other := 0, 0
					var kept *placeConn
					for range queries {
						if kept = p.ask(kept, "198.51.100.2", listener.handshake); kept != nil {
							other++
						}
						if c := p.ask(nil, "198.51.100.1", listener.handshake); c != nil {
							one++
							c.end()
						}
						p.run(time.Second / 2)
					}
					t.Logf("of %d queries over new connections %d were answered, and %d over one that is kept", queries, one, other)
					if min(one, other) < tc.want {
						t.Errorf("got %d and %d answers, want %d of %d at least", one, other, tc.want, queries)
					}
				})
			})
		}
	}
}
