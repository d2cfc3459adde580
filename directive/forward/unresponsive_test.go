package forward

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// newTCPServer calls serve for each connection, numbered from 1, until the test
// ends.
func newTCPServer(t *testing.T, serve func(n int, c net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var all []net.Conn
	running.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
			running.Go(func() { defer func() { _ = c.Close() }(); serve(n, c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range all {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

// readFramed returns the next query of a connection; nil at its end.
func readFramed(c net.Conn) *mdns.Msg {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil
	}
	m := new(mdns.Msg)
	if m.Unpack(b) != nil {
		return nil
	}
	return m
}

func framed(m *mdns.Msg) []byte {
	b := pack(m)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// A connection without replies is closed, however many queries are sent on it.
func TestUnresponsiveConnection(t *testing.T) {
	silence := func(net.Conn) {}
	drip := func(c net.Conn) {
		_, _ = c.Write([]byte{0xFF, 0xFF})
		for {
			if _, err := c.Write([]byte{0}); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // The fault is that bytes arrive slowly.
		}
	}
	for name, wedged := range map[string]func(net.Conn){"silent": silence, "one byte at a time": drip} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var closed atomic.Bool
			addr := newTCPServer(t, func(n int, c net.Conn) {
				for i := 0; ; i++ {
					q := readFramed(c)
					if q == nil {
						break
					}
					if n > 1 || i == 0 {
						_, _ = c.Write(framed(answerOf(q, "1")))
						continue
					}
					if i == 1 {
						go wedged(c)
					}
				}
				closed.Store(closed.Load() || n == 1)
			})
			r := newHarness(t, "forward . "+addr+" {\n force_tcp\n read_timeout 100ms\n max_fails 0\n}")
			r.wantAnswer("first.example.", mdns.TypeA, "192.0.2.1")
			stop := make(chan struct{})
			var all sync.WaitGroup
			defer all.Wait()
			defer close(stop)
			for w := range 4 {
				all.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						case <-time.After(5 * time.Millisecond): // limits the load
						}
						r.wantAnswer(fmt.Sprintf("n%d-%d.example.", w, i), mdns.TypeA, "192.0.2.1")
					}
				})
			}
			chaintest.Eventually(t, "the connection is closed", closed.Load)
		})
	}
}

// An upstream that closes or resets after each reply loses no queries.
func TestConnectionClosedAfterEachReply(t *testing.T) {
	for _, linger := range []int{-1, 0} {
		answered := make(chan struct{}, 100)
		addr := newTCPServer(t, func(_ int, c net.Conn) {
			if q := readFramed(c); q != nil {
				for _, b := range framed(answerOf(q, "1")) {
					_, _ = c.Write([]byte{b})
				}
				<-answered // A reset discards data that have not been read.
			}
			_ = c.(*net.TCPConn).SetLinger(linger)
		})
		t.Cleanup(func() { close(answered) })
		r := newHarness(t, "forward . "+addr+" {\n force_tcp\n max_fails 0\n max_connect_attempts 0\n}")
		for i := range 20 {
			r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
			answered <- struct{}{}
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				r.query(fmt.Sprintf("m%d.example.", i), mdns.TypeA)
				answered <- struct{}{}
			})
		}
		all.Wait()
	}
}

// relay copies between two connections. It discards data while hold returns true.
func relay(c net.Conn, to string, hold func() bool) {
	back, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = back.Close() }()
	go func() {
		defer func() { _ = c.Close() }()
		copyUntilHeld(c, back, hold)
	}()
	copyUntilHeld(back, c, hold)
}

func copyUntilHeld(to io.Writer, from io.Reader, hold func() bool) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !hold() {
			_, _ = to.Write(buf[:n])
		}
	}
}

func answerHTTPS(w http.ResponseWriter, q *mdns.Msg, _ *http.Request) {
	w.Header().Set("Content-Type", "application/dns-message")
	_, _ = w.Write(pack(answerOf(q, "1")))
}

// HTTPS connections that hang, before or after the TLS handshake, are replaced, and
// none is left after Stop.
func TestUnresponsiveHTTPSConnection(t *testing.T) {
	t.Run("handshake", func(t *testing.T) {
		t.Parallel()
		ca := newTestCA(t)
		s := newHTTPSUpstream(t, ca.config(false), answerHTTPS)
		var mute atomic.Bool
		var open atomic.Int32
		mute.Store(true)
		addr := newTCPServer(t, func(_ int, c net.Conn) {
			open.Add(1)
			defer open.Add(-1)
			if mute.Load() {
				_, _ = io.Copy(io.Discard, c)
				return
			}
			relay(c, s.Listener.Addr().String(), func() bool { return false })
		})
		r := newHarness(t, "forward . https://"+addr+" {\n tls "+ca.file("ca.pem")+"\n read_timeout 50ms\n max_fails 0\n max_connect_attempts 2\n}")
		for i := range 2 * maxHTTPConns {
			r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "SERVFAIL")
		}
		mute.Store(false)
		chaintest.Eventually(t, "it answers", func() bool { return r.query("a.example.", mdns.TypeA) == "192.0.2.1" })
		mute.Store(true)
		r.forward[0].set.Stop()
		chaintest.Eventually(t, "nothing is open", func() bool { return open.Load() == 0 })
	})
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		ca := newTestCA(t)
		s := newHTTPSUpstream(t, ca.config(false), answerHTTPS)
		var holds atomic.Bool
		addr := newTCPServer(t, func(n int, c net.Conn) {
			relay(c, s.Listener.Addr().String(), func() bool { return n == 1 && holds.Load() })
		})
		r := newHarness(t, "forward . https://"+addr+" {\n tls "+ca.file("ca.pem")+"\n read_timeout 50ms\n max_fails 0\n max_connect_attempts 2\n}")
		r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
		holds.Store(true)
		n := 0
		chaintest.Eventually(t, "it answers again", func() bool {
			n++
			return r.query(fmt.Sprintf("n%d.example.", n), mdns.TypeA) == "192.0.2.1"
		})
	})
}

// Where TCP is blocked, a truncated reply is not delayed by retries over TCP.
func TestTruncatedWithUnresponsiveTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if !tcp {
			m := answerOf(q, "1")
			m.Truncated = true
			send(pack(m))
		}
	})
	r := newHarness(t, "forward . "+up.addr)
	m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
	if err != nil || !m.Truncated || brief(m) != "192.0.2.1" {
		t.Errorf("a.example. A: got error %v and\n%v\nwant 192.0.2.1 with TC", err, m)
	}
	if n, tcp, _ := up.counts(); tcp > 3 {
		t.Errorf("got %d queries, %d over TCP; want at most 3 over TCP", n, tcp)
	}
}

// FORMERR for one query does not disable EDNS for all others.
func TestFormatErrorFromOneUpstream(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		opt := q.IsEdns0()
		m := answerOf(q, "1")
		if opt != nil && len(opt.Option) > 0 || strings.HasPrefix(q.Question[0].Name, "bad.") {
			m = new(mdns.Msg).SetRcode(q, mdns.RcodeFormatError)
		}
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr)
	q := query("a.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	q.IsEdns0().Option = append(q.IsEdns0().Option, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
	if m, err := r.ask(q, dns.UDP); err != nil || brief(m) != "192.0.2.1" {
		t.Errorf("query with an EDNS option: got error %v and\n%v\nwant 192.0.2.1", err, m)
	}
	r.wantAnswer("bad.example.", mdns.TypeA, "FORMERR")
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	asked, _ := up.received()
	if last := asked[len(asked)-1]; last.Question[0].Name != "b.example." || last.IsEdns0() == nil {
		t.Errorf("last query: got\n%v\nwant b.example. with EDNS", last)
	}
}

// failover waits for the upstreams that have been queried.
func TestFailoverWaitsForOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	release := make(chan struct{})
	slow := newFakeUpstream(t, answerAfter(release, "1"))
	bad := newFakeUpstream(t, answerWithCode(mdns.RcodeServerFailure))
	r := newHarness(t, "forward . "+slow.addr+" "+bad.addr+" {\n policy sequential\n failover SERVFAIL\n}")
	var client sync.WaitGroup
	client.Go(func() { r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1") })
	chaintest.Eventually(t, "the second upstream has replied", func() bool {
		return r.metric(fmt.Sprintf(`coredns_forward_responses_total{to=%q,rcode="SERVFAIL"}`, bad.addr)) != ""
	})
	close(release)
	client.Wait()
	slow.setBehavior(noReply)
	r.wantAnswer("b.example.", mdns.TypeA, "SERVFAIL")
}

// An upstream that answers queries but not health checks is used, even if queries are
// rare.
func TestHealthChecksFailQueriesSucceed(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if q.Question[0].Name != "." {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	r := newHarness(t, "forward . "+up.addr)
	u := r.forward[0].set.current.Load().all[0]
	for i := range 3 {
		u.failedChecks.Store(2)
		u.lastTrial.Store(0) // the last was long ago
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
	if n := r.metric("coredns_forward_healthcheck_broken_total"); n != "3" {
		t.Errorf("healthcheck_broken_total: got %s, want 3", n)
	}
}

// An upstream that refuses is not queried repeatedly while another loses queries.
func TestRefusingBesideLossyUpstream(t *testing.T) {
	gone := newFakeUpstream(t, noReply)
	gone.stop()
	var copies sync.Map
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		n, _ := copies.LoadOrStore(q.Question[0].Name, new(atomic.Int32))
		if n.(*atomic.Int32).Add(1) == 6 {
			answerWithAddress("1")(q, tcp, send)
		}
	})
	r := newHarness(t, "forward . "+gone.addr+" "+up.addr+" {\n policy sequential\n max_fails 0\n}")
	all := r.forward[0].set.current.Load().all
	for range minSamples {
		all[1].latency.add(time.Millisecond)
	}
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
}
