package directive

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// allowed returns how many of n queries at one time the table allows.
func allowed(t *rateTable, network string, at time.Time, n int) (count int) {
	for range n {
		if t.allow(netip.MustParseAddr(network), at) {
			count++
		}
	}
	return count
}

// A network has its rate as a burst, regains it within a second, and does not
// affect another network.
func TestRateTableRefill(t *testing.T) {
	table := newRateTable(1024, 10)
	for _, step := range []struct {
		network string
		after   time.Duration
		want    int
	}{
		{"10.0.0.0", 0, 10},
		{"10.0.0.0", 0, 0},
		{"10.0.1.0", 0, 10},
		{"10.0.0.0", 99 * time.Millisecond, 0},
		{"10.0.0.0", 100 * time.Millisecond, 1},
		{"10.0.0.0", 550 * time.Millisecond, 4},
		{"10.0.0.0", 2 * time.Second, 10},
		{"10.0.0.0", time.Hour, 10},
		{"fd00::", time.Hour, 10},
	} {
		if got := allowed(table, step.network, table.start.Add(step.after), 100); got != step.want {
			t.Errorf("%s after %v: got %d of 100 queries allowed at rate 10, want %d", step.network, step.after, got, step.want)
		}
	}
}

// Rates that do not divide a second are counted exactly, too.
func TestRateTableExact(t *testing.T) {
	for _, rate := range []int{1, 3, 7, 66667, 90000, 99999, 100000} {
		table := newRateTable(rateWays, rate)
		count := 0
		for second := range 2 { // the burst, and what a second gives back
			count += allowed(table, "10.0.0.0", table.start.Add(time.Duration(second)*time.Second), 100001)
		}
		if count != 2*rate {
			t.Errorf("rate %d: got %d queries allowed in the burst and the second after it, want %d", rate, count, 2*rate)
		}
	}
}

// A full table replaces the networks that have used least of their limit.
func TestRateTableFull(t *testing.T) {
	table := newRateTable(rateWays, 10)
	allowed(table, "10.0.0.0", table.start, 100)
	for i := range 1000 {
		allowed(table, fmt.Sprintf("10.%d.%d.0", 1+i/256, i%256), table.start, 1)
	}
	if got := allowed(table, "10.0.0.0", table.start, 100); got != 0 {
		t.Errorf("after queries from 1000 other networks: got %d queries allowed of a network at its limit, want 0", got)
	}
}

func TestRateLimit(t *testing.T) {
	const server = `seamark_ratelimit_queries_total{server="dns://:53",zone=".",view="",action=`
	for _, c := range []struct {
		options string
		peers   []string // in turn
		proto   dns.Proto
		want    string // of each query: "a"nswered, "t"runcated or "d"ropped
		count   string
	}{
		{"slip 1", []string{"10.0.0.1:1"}, dns.UDP, "aattt", `"truncated"} 3`},
		{"slip 0", []string{"10.0.0.1:1"}, dns.UDP, "aaddd", `"dropped"} 3`},
		{"slip 0", []string{"10.0.0.1:1"}, dns.TCP, "aaaaa", `"dropped"} 0`},
		{"slip 0", []string{"10.0.0.1:1", "10.0.0.200:2"}, dns.UDP, "aaddd", `"dropped"} 3`},
		{"slip 0", []string{"10.0.0.1:1", "10.0.1.1:1"}, dns.UDP, "aaaadd", `"dropped"} 2`},
		{"slip 0\nipv4_prefix 32", []string{"10.0.0.1:1", "10.0.0.2:1"}, dns.UDP, "aaaadd", `"dropped"} 2`},
		{"slip 0", []string{"[fd00::1]:1", "[fd00:0:0:ff::1]:1"}, dns.UDP, "aadd", `"dropped"} 2`},
		{"slip 0\nipv6_prefix 128", []string{"[fd00::1]:1", "[fd00::2]:1"}, dns.UDP, "aaaad", `"dropped"} 1`},
		{"slip 0", []string{"10.0.0.1:1", "[::ffff:10.0.0.1]:1"}, dns.UDP, "aad", `"dropped"} 1`},
		{"slip 0\nexempt 10.0.0.1 fd00::/8", []string{"10.0.0.1:1", "[fd00::1]:1"}, dns.UDP, "aaaaaaaa", `"dropped"} 0`},
		{"report_only", []string{"10.0.0.1:1"}, dns.UDP, "aaaaa", `"reported"} 3`},
	} {
		r := run(t, ".:53 {\nratelimit 2 {\n"+c.options+"\n}\nwhoami\n}")
		got := ""
		for i := range c.want {
			reply := r.exchange(packet(t, "example.org", wire.TypeA), c.proto, c.peers[i%len(c.peers)])
			switch {
			case len(reply) == 0:
				got += "d"
			case reply[2]&0x02 != 0 && reply[7] == 0:
				got += "t"
			case reply[2]&0x02 == 0:
				got += "a"
			default:
				got += "?"
			}
		}
		if got != c.want {
			t.Errorf("ratelimit 2, %q, queries from %v: got %s, want %s", c.options, c.peers, got, c.want)
		}
		if series := r.metrics(server); !strings.Contains(series, server+c.count+"\n") {
			t.Errorf("ratelimit 2, %q: got metrics\n%swant %s", c.options, series, server+c.count)
		}
	}
}

// With slip N about one of N queries above the limit is truncated.
func TestRateLimitSlip(t *testing.T) {
	r := run(t, ".:53 {\nratelimit 1 {\nslip 4\n}\nwhoami\n}")
	const n = 4000
	truncated := 0
	for range n {
		if reply := r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client); len(reply) > 0 {
			truncated++
		}
	}
	if truncated < n/8 || truncated > n/2 {
		t.Errorf("slip 4: got replies to %d of %d queries above the limit, want about %d", truncated, n, n/4)
	}
}

func TestRateLimitAllocations(t *testing.T) {
	r := run(t, ".:53 {\nratelimit 2 {\nexempt 192.0.2.0/24\n}\nwhoami\n}")
	p := packet(t, "example.org", wire.TypeA)
	if n := testing.AllocsPerRun(100, func() { r.exchange(p, dns.UDP, client) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func TestRateLimitErrors(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"ratelimit", `2: ratelimit: want 1 argument, got 0`},
		{"ratelimit 0", `2: ratelimit: want 1..100000, got "0"`},
		{"ratelimit 5 {\nslip 101\n}", `3: ratelimit: slip: want 0..100, got "101"`},
		{"ratelimit 5 {\nipv4_prefix 33\n}", `3: ratelimit: ipv4_prefix: want 1..32, got "33"`},
		{"ratelimit 5 {\nexempt here\n}", `3: ratelimit: exempt: want an address or a CIDR, got "here"`},
		{"ratelimit 5 {\ntable_size 10\n}", `3: ratelimit: table_size: want 1024..16777216, got "10"`},
		{"ratelimit 5\nratelimit 6", `3: ratelimit: already given at Corefile:2, and can be given once in a server block`},
	} {
		wantErrors(t, ".:53 {\n"+c.lines+"\n}", "Corefile:"+c.want)
	}
}
