package transport

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/descriptors"
)

// A tableTest opens connections of a table whose names are in the order in which they were opened.
type tableTest struct {
	*ConnTable
	names map[*limitedConn]string
}

func newTableTest(o ConnLimits) *tableTest {
	return &tableTest{NewConnTable(o), map[*limitedConn]string{}}
}

// open opens a connection of the client 192.0.2.N, which has a request if busy is set.
func (t *tableTest) open(name string, n byte, busy bool) bool {
	here, _ := net.Pipe()
	c := &limitedConn{Conn: here, l: &LimitedListener{table: t.ConnTable}, client: netip.AddrFrom4([4]byte{192, 0, 2, n})}
	c.busy.Store(busy)
	c.active.Store(int64(clock.Now()) + int64(len(t.names))) // in the order in which they are opened
	t.names[c] = name
	return t.add(c)
}

// closed returns the names of those that have been closed.
func (t *tableTest) closed() (names string) {
	open := map[*limitedConn]bool{}
	for _, conns := range t.clients {
		for _, c := range conns {
			open[c] = true
		}
	}
	for c, name := range t.names {
		if !open[c] {
			names += name
		}
	}
	return names
}

// At the limit of a listener's connections one without requests is replaced, but no client gets
// more connections than those whose it replaces had.
func TestIdleConnectionReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		open   string // client, and * if it has a request, or - if it has had none for a second
		next   string
		closed string // a letter for each place in open; "-" is next
	}{
		"every client has an idle one":                   {"1 2 3 4", "5", "a"},
		"the first has a request":                        {"1* 2 3 4", "5", "b"},
		"all have requests":                              {"1* 2* 3* 4*", "5", "-"},
		"the client that has most, though it is younger": {"1 2 3 3", "5", "c"},
		"the idle one of a client before others' busy":   {"1- 2* 2* 2*", "5", "a"},
		"not one that is about to send a request":        {"1 2* 2* 2*", "5", "d"},
		"the last one of a client, all with requests":    {"1* 2* 2* 2*", "5", "d"},
		"its own":                         {"1 2 3 4", "3", "c"},
		"none of clients that have fewer": {"1 2* 2* 2*", "2", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTableTest(ConnLimits{Most: func() int { return 4 }})
				open := func(name, text string) bool {
					ok := table.open(name, text[0]-'0', strings.HasSuffix(text, "*"))
					if strings.HasSuffix(text, "-") {
						time.Sleep(freshConn)
					}
					return ok
				}
				for i, text := range strings.Fields(tc.open) {
					open(string(rune('a'+i)), text)
				}
				ok := open("-", tc.next)
				if got := table.closed(); got != tc.closed || ok != (tc.closed != "-") {
					t.Errorf("%s, then %s: closed %q, and the new one is open: %v; want %q", tc.open, tc.next, got, ok, tc.closed)
				}
			})
		})
	}
}

// Where every new connection gets in, one that has sent a request is kept longer than younger ones
// that have sent nothing, and the limit that was reached is counted.
func TestBusyConnectionReplacedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := new(metrics.Registry)
		table := newTableTest(ConnLimits{Most: func() int { return 4 }, PerClient: 2, Replace: true, Metrics: registry})
		table.open("probe ", 9, true)
		for n := range byte(8) {
			if !table.open(fmt.Sprint(n), n, false) {
				t.Errorf("connection %d is refused", n)
			}
		}
		table.open("own ", 7, true)
		table.open("own ", 7, true) // replaces the idle one of 7
		for c, name := range table.names {
			if open := table.leave(c); name == "probe " && !open {
				t.Error("the connection with a request is replaced")
			}
		}
		var text strings.Builder
		_ = registry.WriteText(&text)
		for _, want := range []string{`refused_total{cap="client"} 1`, `refused_total{cap="total"} 6`} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("got metrics without %s:\n%s", want, text.String())
			}
		}
	})
}

// A connection that is refused, or replaces another one of its listener, closes none of other
// listeners.
func TestOwnLimitBeforeDescriptors(t *testing.T) {
	budget := descriptors.New()
	asked := 0
	other := budget.Join(func() bool { asked++; return false })
	defer other.Leave()
	for name, limits := range map[string]ConnLimits{
		"refused": {Most: func() int { return 1 }}, "replaced": {PerClient: 1, Replace: true},
	} {
		limits.Descriptors = budget
		table := newTableTest(limits)
		table.open("a", 1, true)
		n := 0
		for asked = 0; asked == 0 && other.Acquire(); {
			n++
		}
		asked = 0
		table.open("b", 1, true)
		if asked != 0 {
			t.Errorf("%s: another listener was asked for %d connections, want none", name, asked)
		}
		for range n {
			other.Release()
		}
	}
}

// A client behind a proxy counts for itself once its header is read.
func TestProxiedClientCounts(t *testing.T) {
	l, err := ListenTCP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), Options{}, func() int { return 3 })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SetProxies(&ProxyOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	accepted := func(client string) net.Conn {
		t.Helper()
		c := dial(t, "tcp", l.Address.String())
		if _, err := fmt.Fprintf(c, "PROXY TCP4 %s 192.0.2.200 1000 443\r\n", client); err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		if got := AddrPort(server.RemoteAddr()).Addr().String(); got != client {
			t.Fatalf("got client %s, want %s", got, client)
		}
		SetBusy(server, true)
		return server
	}
	number := func(client string) int {
		l.table.mu.Lock()
		defer l.table.mu.Unlock()
		return len(l.table.clients[netip.MustParseAddr(client)])
	}

	for range 3 {
		accepted("192.0.2.1")
	}
	accepted("192.0.2.2") // replaces one of the first client's
	if first, second := number("192.0.2.1"), number("192.0.2.2"); first != 2 || second != 1 || l.table.Count() != 3 {
		t.Errorf("got %d and %d connections of the clients and %v in all, want 2, 1 and 3", first, second, l.table.Count())
	}
	l.Refuse(netip.MustParseAddr("192.0.2.3"), time.Now().Add(time.Hour))
	if _, err := io.ReadAll(accepted("192.0.2.3")); err == nil {
		t.Error("a client that may not connect is read")
	}
}
