package transport

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// A new connection replaces one of its own client at the limit of the client, else one of the
// client with most, else of all: first one that has been idle for a second, then one without requests,
// then the one without data for the longest time.
func TestConnTableReplace(t *testing.T) {
	type conn struct {
		client string
		idle   time.Duration
		busy   bool
	}
	const fresh = 100 * time.Millisecond
	for name, c := range map[string]struct {
		conns    []conn
		client   string
		replaced int // -1 is none
	}{
		"not full":          {[]conn{{"192.0.2.1", fresh, false}}, "192.0.2.1", -1},
		"client's limit":    {[]conn{{"192.0.2.1", fresh, false}, {"192.0.2.1", 2 * fresh, false}, {"192.0.2.1", fresh, true}}, "192.0.2.1", 1},
		"client with most":  {[]conn{{"192.0.2.1", fresh, true}, {"192.0.2.2", time.Hour, false}, {"192.0.2.1", 2 * fresh, true}, {"192.0.2.1", fresh, true}}, "192.0.2.3", 2},
		"all have one":      {[]conn{{"192.0.2.1", fresh, false}, {"192.0.2.2", time.Hour, true}, {"192.0.2.3", time.Minute, false}, {"192.0.2.4", 0, false}}, "192.0.2.5", 2},
		"none idle":         {[]conn{{"192.0.2.1", 2 * fresh, true}, {"192.0.2.2", time.Minute, true}, {"192.0.2.3", fresh, false}, {"192.0.2.4", 0, false}}, "192.0.2.5", 2},
		"all with requests": {[]conn{{"192.0.2.1", 2 * fresh, true}, {"192.0.2.2", time.Minute, true}, {"192.0.2.3", fresh, true}, {"192.0.2.4", 0, true}}, "192.0.2.5", 1},
		"IPv6 /64":          {[]conn{{"2001:db8::1", fresh, false}, {"2001:db8::2", 3 * fresh, false}, {"2001:db8::3", fresh, false}}, "2001:db8::4", 1},
		"another IPv6 /64":  {[]conn{{"2001:db8::1", fresh, false}, {"2001:db8::2", fresh, false}, {"2001:db8::3", fresh, false}}, "2001:db8:0:1::4", -1},
		"Unix socket peers": {[]conn{{"", fresh, false}, {"", 2 * fresh, false}, {"", fresh, false}}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewConnTable(ConnLimits{Most: func() int { return 4 }, PerClient: 3, Replace: true})
			l := &LimitedListener{table: table}
			opened := func(client string) *limitedConn {
				server, _ := net.Pipe()
				c := &limitedConn{Conn: server, l: l}
				if client != "" {
					c.client = ClientKey(netip.MustParseAddr(client))
				}
				c.touch()
				if !table.add(c) {
					t.Fatalf("a connection of %q is refused", client)
				}
				return c
			}

			var conns []*limitedConn
			for _, one := range c.conns {
				conns = append(conns, opened(one.client))
			}
			for i, one := range c.conns {
				conns[i].busy.Store(one.busy)
				conns[i].active.Store(int64(clock.Now() - one.idle))
			}
			opened(c.client)

			got := ""
			for i, conn := range conns {
				if conn.SetDeadline(time.Time{}) != nil { // it is closed
					got += fmt.Sprint(i)
				}
			}
			want := ""
			if c.replaced >= 0 {
				want = fmt.Sprint(c.replaced)
			}
			if got != want {
				t.Errorf("got connection %q replaced, want %q", got, want)
			}
		})
	}
}
