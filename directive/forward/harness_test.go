package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A behavior handles a query to an upstream. send may be called any number of
// times, from any goroutine.
type behavior func(q *mdns.Msg, tcp bool, send func([]byte))

// A fakeUpstream is a UDP and TCP server that misbehaves as a test wants.
type fakeUpstream struct {
	t    *testing.T
	addr string
	udp  net.PacketConn
	tcp  net.Listener

	mu      sync.Mutex
	do      behavior
	queries []*mdns.Msg // without health checks
	protos  []string    // of the queries: udp or tcp
	overTCP int
	from    map[string]bool // source addresses of the queries
	conns   map[net.Conn]bool
	checks  int
}

func newFakeUpstream(t *testing.T, do behavior) *fakeUpstream {
	t.Helper()
	f := &fakeUpstream{t: t, do: do, from: map[string]bool{}, conns: map[net.Conn]bool{}}
	var err error
	for range 10 { // The port may be in use by the other protocol.
		if f.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		f.addr = f.tcp.Addr().String()
		if f.udp, err = net.ListenPacket("udp", f.addr); err == nil {
			break
		}
		_ = f.tcp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(f.serveUDP)
	running.Go(func() {
		for {
			c, err := f.tcp.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[c] = true
			f.mu.Unlock()
			running.Go(func() { f.serveTCP(c) })
		}
	})
	t.Cleanup(func() { f.stop(); running.Wait() })
	return f
}

// stop closes all sockets and connections, and so frees the port.
func (f *fakeUpstream) stop() {
	_ = f.udp.Close()
	_ = f.tcp.Close()
	f.closeConns()
}

func (f *fakeUpstream) closeConns() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *fakeUpstream) serveUDP() {
	buf := make([]byte, 4096)
	for {
		n, from, err := f.udp.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		f.handle(buf[:n], from, false, func(b []byte) { _, _ = f.udp.WriteTo(b, from) })
	}
}

func (f *fakeUpstream) serveTCP(c net.Conn) {
	defer func() {
		_ = c.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
	}()
	var writing sync.Mutex
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		f.handle(b, c.RemoteAddr(), true, func(b []byte) {
			writing.Lock()
			defer writing.Unlock()
			_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
		})
	}
}

func (f *fakeUpstream) handle(packet []byte, from net.Addr, tcp bool, send func([]byte)) {
	m := new(mdns.Msg)
	if err := m.Unpack(packet); err != nil || len(m.Question) != 1 {
		f.t.Errorf("query to the upstream: got %x, error %v; want a message", packet, err)
		return
	}
	f.mu.Lock()
	do := f.do
	if m.Question[0].Name == "." {
		f.checks++
	} else {
		f.queries = append(f.queries, m)
		f.protos = append(f.protos, from.Network())
		f.from[from.String()] = true
		if tcp {
			f.overTCP++
		}
	}
	f.mu.Unlock()
	do(m, tcp, send)
}

func (f *fakeUpstream) setBehavior(do behavior) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

// counts returns the number of queries, of those over TCP, and of source ports.
func (f *fakeUpstream) counts() (queries, tcp, ports int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queries), f.overTCP, len(f.from)
}

// received returns the queries in order, and their source addresses.
func (f *fakeUpstream) received() (queries []*mdns.Msg, from []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.queries), slices.Collect(maps.Keys(f.from))
}

func (f *fakeUpstream) queryCount() int { n, _, _ := f.counts(); return n }

func (f *fakeUpstream) checkCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks
}

func pack(m *mdns.Msg) []byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func rr(text string) mdns.RR {
	r, err := mdns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return r
}

// answerOf returns a good answer: an address, or a text for TXT.
func answerOf(q *mdns.Msg, last string) *mdns.Msg {
	m := new(mdns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(1232, opt.Do())
	}
	name := q.Question[0].Name
	switch q.Question[0].Qtype {
	case mdns.TypeA:
		m.Answer = append(m.Answer, rr(name+" 60 IN A 192.0.2."+last))
	case mdns.TypeTXT:
		m.Answer = append(m.Answer, rr(name+` 60 IN TXT "`+last+`"`))
	}
	return m
}

// answerWithAddress answers at once with an address that ends in last.
func answerWithAddress(last string) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) { send(pack(answerOf(q, last))) }
}

func noReply(*mdns.Msg, bool, func([]byte)) {}

// answerAfter answers like answerWithAddress once release is closed.
func answerAfter(release <-chan struct{}, last string) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) {
		go func() {
			<-release
			send(pack(answerOf(q, last)))
		}()
	}
}

// answerWithCode answers with a response code and no records.
func answerWithCode(rcode int) behavior {
	return func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "0")
		m.Answer, m.Rcode = nil, rcode
		send(pack(m))
	}
}

// A harness is a server block without sockets.
type harness struct {
	t       *testing.T
	block   *config.Block
	start   *config.Start
	port    dns.Port
	mux     *dns.Mux
	lot     *dns.ParkingLot
	forward []*Forward
	// randomCase is true if the Corefile has the option case_randomization. Without
	// it the tests expect the names of queries in the client's case.
	randomCase bool
}

// setup sets up a Corefile of one block.
func setup(text string, log *slog.Logger) (*config.Block, error) {
	directives := []config.Directive{{Name: "forward", Setup: Setup}, {Name: "grpc", Setup: SetupGRPC}}
	b, err := chaintest.Setup(text, log, directives...)
	if b == nil {
		return nil, err
	}
	return b, corefile.Sorted(append(b.Planned(), err)...)
}

// newHarness serves the directives in text.
func newHarness(t *testing.T, text string) *harness {
	t.Helper()
	r := &harness{t: t, randomCase: strings.Contains(text, "case_randomization")}
	b, err := setup(".:53 {\n"+text+"\n}\n", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	r.serve(b, nil)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		r.lot.Close(ended)
		r.start.Stop()
	})
	return r
}

// serve starts b in place of the current block.
func (r *harness) serve(b *config.Block, old *config.Start) {
	r.t.Helper()
	r.block, r.start = b, config.NewStart(context.Background(), old)
	for _, f := range forwards(b) {
		if !r.randomCase {
			f.options.letterCase = "off"
		}
	}
	if err := b.Started(r.start); err != nil {
		r.t.Fatal(err)
	}
	r.forward = config.Find[*Forward](b)
	r.lot = dns.NewParkingLot(1000)
	r.mux = dns.NewMux(r.lot, func(q *dns.Query, cause any) { r.t.Errorf("panic: %v\n%s", cause, q.Err.(*dns.Panic).Stack) })
	if err := r.mux.Route(wire.Root, b.Chain.CopyFor("dns://:53", ".")); err != nil {
		r.t.Fatal(err)
	}
	r.port.Swap(r.mux)
	b.Swapped()
	r.start.Commit()
}

// sendOnce makes all upstreams seem slow, so that no query is repeated before read_timeout
// has passed, however busy the machine is.
func (r *harness) sendOnce() { r.setLatency(exchangeTimeout) }

// repeatSoon makes all upstreams seem fast, so that queries are repeated soon.
func (r *harness) repeatSoon() { r.setLatency(time.Millisecond) }

// setLatency makes all upstreams seem to answer after t. Attempts may end meanwhile.
func (r *harness) setLatency(t time.Duration) {
	for _, f := range r.forward {
		for _, u := range f.set.current.Load().all {
			u.latency.mu.Lock()
			clear(u.latency.buckets[:])
			u.latency.total = 0
			u.latency.mu.Unlock()
			for range minSamples {
				u.latency.add(t)
			}
		}
	}
}

// A client receives the reply of one query.
type client struct {
	reply chan []byte
	err   error
}

func (c *client) Send(q *dns.Query) {
	c.err = q.Err
	c.reply <- append([]byte(nil), q.Reply()...)
}

// ask sends a query and waits. It returns the query's error.
func (r *harness) ask(m *mdns.Msg, proto dns.Proto) (*mdns.Msg, error) {
	r.t.Helper()
	return r.askFrom("10.0.0.1", m, proto)
}

// askFrom is ask for a client at an address.
func (r *harness) askFrom(from string, m *mdns.Msg, proto dns.Proto) (*mdns.Msg, error) {
	r.t.Helper()
	c := &client{reply: make(chan []byte, 1)}
	q := dns.NewQuery(c)
	packet := pack(m)
	q.Reset(packet, proto, time.Now())
	q.Peer = netip.AddrPortFrom(netip.MustParseAddr(from), 53012)
	var reply []byte
	switch outcome := r.port.Serve(q, make([]byte, 0, 1<<17)); outcome {
	case dns.Answered:
		reply, c.err = q.Reply(), q.Err
	case dns.Parked:
		select {
		case reply = <-c.reply:
		case <-time.After(time.Minute):
			r.t.Error("got no reply within a minute, want one")
			return new(mdns.Msg), errors.New("silence")
		}
	default:
		r.t.Errorf("outcome of a query: got %v, want Answered or Parked", outcome)
	}
	got := new(mdns.Msg)
	if err := got.Unpack(reply); err != nil {
		r.t.Errorf("reply does not unpack: %v\n%x", err, reply)
	}
	if got.Id != m.Id {
		r.t.Errorf("got a reply with ID %d, want %d", got.Id, m.Id)
	}
	return got, c.err
}

func query(name string, qtype uint16) *mdns.Msg { return new(mdns.Msg).SetQuestion(name, qtype) }

// query sends a query over UDP. It returns the data of the answers, or the response
// code if there are none.
func (r *harness) query(name string, qtype uint16) string {
	r.t.Helper()
	m, _ := r.ask(query(name, qtype), dns.UDP)
	return brief(m)
}

func brief(m *mdns.Msg) string {
	if len(m.Answer) == 0 {
		return mdns.RcodeToString[m.Rcode]
	}
	var data []string
	for _, r := range m.Answer {
		fields := strings.Fields(r.String())
		data = append(data, fields[len(fields)-1])
	}
	return strings.Join(data, " ")
}

func (r *harness) wantAnswer(name string, qtype uint16, want string) {
	r.t.Helper()
	if got := r.query(name, qtype); got != want {
		r.t.Errorf("%s: got %s, want %s", name, got, want)
	}
}

// metric returns the value of a series; "" if there is none.
func (r *harness) metric(series string) string { return chaintest.Metric(r.block.Metrics, series) }

// discarded returns the number of packets discarded for that reason.
func (r *harness) discarded(f *fakeUpstream, why fault) string {
	return r.metric(fmt.Sprintf(`seamark_forward_discarded_total{to=%q,reason=%q}`, f.addr, why))
}

func forwards(b *config.Block) []*Forward { return config.Find[*Forward](b) }
