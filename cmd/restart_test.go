package cmd_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// restartQueries is the number of queries that the clients of a restart test send over
// each of UDP, TCP, and persistent TCP connections.
func restartQueries(t *testing.T) int64 {
	text := os.Getenv("SEAMARK_RESTART_QUERIES")
	if text == "" {
		return 5_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("SEAMARK_RESTART_QUERIES=%s: %v", text, err)
	}
	return n
}

// A load is a set of clients that send queries one after the other while servers are
// restarted. A query is lost if it gets no reply within loadTimeout, or another one than
// NOERROR with one address.
type load struct {
	t       *testing.T
	name    string
	address func() string // the server of the next query or connection
	limit   int64
	clients sync.WaitGroup
	counts  [3]struct{ sent, lost, connections atomic.Int64 }
}

var transports = [3]string{"UDP", "TCP", "persistent TCP"}

// startLoad starts the clients: two for each transport.
func startLoad(t *testing.T, name string, address func() string) *load {
	t.Helper()
	l := &load{t: t, name: name, address: address, limit: restartQueries(t)}
	for i, client := range []func() error{l.udp, l.tcp, l.persistent} {
		for range 2 {
			l.clients.Go(func() {
				for l.next(i) {
					if err := client(); err != nil {
						l.lose(i, err)
					}
				}
			})
		}
	}
	return l
}

// next counts a query, and reports whether it is to be sent.
func (l *load) next(i int) bool {
	if l.counts[i].sent.Add(1) > l.limit {
		l.counts[i].sent.Add(-1)
		return false
	}
	return true
}

func (l *load) lose(i int, err error) {
	if n := l.counts[i].lost.Add(1); n <= 3 {
		l.t.Errorf("%s query %d: %v", transports[i], l.counts[i].sent.Load(), err)
	}
}

// sent returns the number of queries over all transports.
func (l *load) sent() (n int64) {
	for i := range l.counts {
		n += l.counts[i].sent.Load()
	}
	return n
}

// more waits until n more queries were sent, or all.
func (l *load) more(n int64) {
	l.t.Helper()
	before := l.sent()
	chaintest.Eventually(l.t, "more queries", func() bool { return l.sent() > before+n || l.done() })
}

// done reports whether all queries were sent.
func (l *load) done() bool {
	for i := range l.counts {
		if l.counts[i].sent.Load() < l.limit {
			return false
		}
	}
	return true
}

// wait waits until all queries are answered, and reports the numbers.
func (l *load) wait(restarts int) {
	l.clients.Wait()
	for i := range l.counts {
		c := &l.counts[i]
		l.t.Logf("%s: %d queries, %d lost, %d connections, %d restarts or reloads", transports[i], c.sent.Load(), c.lost.Load(), c.connections.Load(), restarts)
		if c.lost.Load() > 0 {
			l.t.Errorf("%s: %d of %d queries lost, want none", transports[i], c.lost.Load(), c.sent.Load())
		}
	}
}

// loadTimeout is the time after which a query counts as lost: with make soak-restart the 5 s
// of most resolvers, otherwise longer than a start on a busy machine, for which queries may
// wait in a socket.
var loadTimeout = func() time.Duration {
	if os.Getenv("SEAMARK_RESTART_QUERIES") != "" {
		return 5 * time.Second
	}
	return 20 * time.Second
}()

func (l *load) query() (id uint16, packet []byte) {
	m := new(dns.Msg).SetQuestion(l.name, dns.TypeA)
	m.Id = uint16(rand.Uint32())
	packet, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return m.Id, packet
}

// check returns an error unless the reply is NOERROR with one record.
func check(id uint16, reply []byte) error {
	var m dns.Msg
	switch err := m.Unpack(reply); {
	case err != nil:
		return err
	case m.Id != id || m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1:
		return fmt.Errorf("got %v, want one address", &m)
	}
	return nil
}

func (l *load) udp() error {
	c, err := net.Dial("udp", l.address())
	if err != nil {
		return err
	}
	defer c.Close()
	l.counts[0].connections.Add(1)
	// Several queries for each socket: the kernel selects a reader by the client's port.
	for i := 0; ; i++ {
		_ = c.SetDeadline(time.Now().Add(loadTimeout))
		id, packet := l.query()
		if _, err := c.Write(packet); err != nil {
			return err
		}
		reply := make([]byte, 512)
		n, err := c.Read(reply)
		if err == nil {
			err = check(id, reply[:n])
		}
		if err != nil || i == 9 || !l.next(0) {
			return err
		}
	}
}

func (l *load) dial(i int) (*net.TCPConn, error) {
	c, err := net.DialTimeout("tcp", l.address(), loadTimeout)
	if err != nil {
		return nil, err
	}
	l.counts[i].connections.Add(1)
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(loadTimeout))
}

// exchange sends one query and reads its reply.
func (l *load) exchange(c *net.TCPConn) error {
	_ = c.SetDeadline(time.Now().Add(loadTimeout))
	id, packet := l.query()
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return fmt.Errorf("reading the reply: %w", err)
	}
	reply := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, reply); err != nil {
		return err
	}
	return check(id, reply)
}

func (l *load) tcp() error {
	c, err := l.dial(1)
	if err != nil {
		return err
	}
	defer c.Close()
	defer c.SetLinger(0) // a million connections would leave no free port
	return l.exchange(c)
}

// persistent sends queries over one connection until the server closes it.
func (l *load) persistent() error {
	c, err := l.dial(2)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		if err := l.exchange(c); err != nil || closedByServer(c) || !l.next(2) {
			return err
		}
	}
}

// The servers of a Service are replaced one after the other, as in a rolling update. The
// clients learn after the end of lameduck that a server is terminated, each at another
// time. No query is lost, and the server stops when the last client has moved away.
func TestRollingUpdate(t *testing.T) {
	long(t)
	t.Parallel()
	const lameduck = 1500 * time.Millisecond
	type endpoint struct {
		*process
		address string
		removed time.Time // clients stop using it within half a second from then on
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "objects.yaml"), service)
	add := func() *endpoint {
		e := &endpoint{process: serve(t, dir, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n lameduck %s\n kubernetes cluster.local {\n  manifests .\n }\n}\n", lameduck), "-conf", "stdin")}
		e.address = "127.0.0.1:" + e.ports[0]
		answers(t, e.address)
		return e
	}
	var mu sync.Mutex
	old, current := (*endpoint)(nil), add()
	l := startLoad(t, serviceName, func() string {
		mu.Lock()
		defer mu.Unlock()
		if old != nil && time.Since(old.removed) < rand.N(500*time.Millisecond) {
			return old.address
		}
		return current.address
	})
	restarts := 0
	for ; !l.done() && !t.Failed(); restarts++ {
		next := add()
		mu.Lock()
		old, current = current, next
		old.removed = time.Now().Add(lameduck + 200*time.Millisecond)
		leaving := old
		mu.Unlock()
		leaving.stop()
		mu.Lock()
		if early := time.Until(leaving.removed); early > 0 && !l.done() {
			t.Errorf("the server stopped %v before it was removed", early)
		}
		old = nil
		mu.Unlock()
	}
	l.wait(restarts)
	current.stop()
}
