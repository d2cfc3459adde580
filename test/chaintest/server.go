// Package chaintest lets the tests of directives use chains of handlers without sockets: it sets
// up server blocks from the text of a Corefile, and serves packets. Another DNS library packs the
// queries and unpacks the replies, so that a bug in package wire cannot hide itself. Only tests
// import it.
package chaintest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// patience limits each wait. It is long for busy machines and the race detector.
const patience = time.Minute

// A Server serves the chains of a Mux. Its methods are for one goroutine.
type Server struct {
	// Port may be given another Mux.
	Port dns.Port
	// Prepare, unless it is nil, is called with each query before it is served.
	Prepare func(q *dns.Query)
	// Last is the last query, unless it was parked; its reply has been observed.
	Last *dns.Query
	// Err is why the last answer is SERVFAIL, or nil.
	Err error

	t   testing.TB
	buf []byte
}

// NewServer returns a Server that serves the chain of each zone. A panic of a handler is an error
// of the test.
func NewServer(t testing.TB, chains map[string]*dns.Chain) *Server {
	t.Helper()
	mux := dns.NewMux(dns.NewParkingLot(1<<10), func(q *dns.Query, cause any) {
		t.Errorf("panic: %v\n%s", cause, q.Err.(*dns.Panic).Stack)
	})
	for zone, c := range chains {
		if err := mux.Route(Name(zone), c); err != nil {
			t.Fatal(err)
		}
	}

	s := &Server{t: t, buf: make([]byte, 1<<17)}
	s.Port.Swap(mux)
	return s
}

// NewChain returns a chain of handlers, each with the name of a directive before it.
func NewChain(namesAndHandlers ...any) *dns.Chain {
	c := new(dns.Chain)
	for pair := range slices.Chunk(namesAndHandlers, 2) {
		c.Add(pair[0].(string), pair[1])
	}
	return c
}

// A Reply is the reply to a parked query.
type Reply struct {
	Packet []byte // nil if there is none
	Err    error  // why it is SERVFAIL
}

type sender chan Reply

func (s sender) Send(q *dns.Query) { s <- Reply{slices.Clone(q.Reply()), q.Err} }

// Begin serves a packet as a reader does. reply is nil if the query was dropped or parked; parked
// is not nil if it was parked. reply is valid until the next call.
func (s *Server) Begin(packet []byte, proto dns.Proto) (reply []byte, parked <-chan Reply) {
	if s.Last == nil {
		s.Last = dns.NewQuery(make(sender, 1))
	}
	q := s.Last
	q.Reset(packet, proto, time.Now())
	if s.Prepare != nil {
		s.Prepare(q)
	}

	if s.Port.Serve(q, s.buf) == dns.Parked {
		s.Last = nil // another goroutine has it
		return nil, q.Sender.(sender)
	}
	s.Err = q.Err
	reply = q.Reply()
	q.Observe(time.Now())
	return reply, nil
}

// Serve returns the reply to a packet, or nil if there is none. It waits for a parked query. The
// reply is valid until the next call.
func (s *Server) Serve(packet []byte, proto dns.Proto) []byte {
	reply, parked := s.Begin(packet, proto)
	if parked == nil {
		return reply
	}
	select {
	case r := <-parked:
		s.Err = r.Err
		return r.Packet
	case <-time.After(patience):
		s.t.Fatalf("got no reply of a parked query within %v", patience)
		return nil
	}
}

// Ask returns the reply to a message.
func (s *Server) Ask(m *mdns.Msg, proto dns.Proto) *mdns.Msg {
	s.t.Helper()
	return Unpack(s.t, s.Serve(Pack(s.t, m), proto))
}

// Query returns a query. name may have any letter case; qtype is a mnemonic, or TYPE and a number.
func Query(name, qtype string) *mdns.Msg {
	t, ok := mdns.StringToType[qtype]
	if _, err := fmt.Sscanf(qtype, "TYPE%d", &t); !ok && err != nil {
		panic("unknown type " + qtype)
	}
	m := new(mdns.Msg).SetQuestion(mdns.Fqdn(name), t)
	m.Id = 4711
	return m
}

// Pack returns m in wire form.
func Pack(t testing.TB, m *mdns.Msg) []byte {
	t.Helper()
	packet, err := m.Pack()
	if err != nil {
		t.Fatalf("packing %v: %v", m.Question, err)
	}
	return packet
}

// Unpack parses a reply.
func Unpack(t testing.TB, reply []byte) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("unpacking the reply %x: %v", reply, err)
	}
	return m
}

// Name returns a name in wire form.
func Name(text string) wire.Name {
	name, err := wire.ParseName(text)
	if err != nil {
		panic(err)
	}
	return name
}
