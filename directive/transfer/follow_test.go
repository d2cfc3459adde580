package transfer_test

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
)

// wholeZones returns how often a copy has received the whole zone.
func wholeZones(log *chaintest.Log) (n int) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "secondary: Transferred zone") && strings.Contains(line, "kind=AXFR") {
			n++
		}
	}
	return n
}

// followed returns the Corefile of a copy that follows a primary.
func followed(from any, options string) string {
	return fmt.Sprintf("example.org {\n secondary {\n transfer from %v\n follow 50ms\n%s\n}\n transfer {\n to *\n}\n}", from, options)
}

// Copies follow a zone through a relay whose Corefile does not name them, by differences, also after reloads of
// the relay and of the primary.
func TestFollow(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(1, 2999))
	primary, relay, node := freePort(t), freePort(t), freePort(t)
	text := "example.org {\n file " + db + "\n transfer {\n to *\n}\n}"
	source, _ := serve(t, primary, nil, text)
	defer func() { source.Stop(t.Context()) }()
	between, relayLog := serve(t, relay, nil, followed(primary, ""))
	defer func() { between.Stop(t.Context()) }()
	log := run(t, node, followed(relay, ""))

	same := func(serial int) {
		t.Helper()
		eventually(t, func() string {
			if why := differs(primary, node, uint32(serial)); why != "" {
				return why + "\n" + relayLog.String() + "\n" + log.String()
			}
			return ""
		})
	}
	same(1)
	for serial := 2; serial < 5; serial++ {
		write(t, db, zoneFile(serial, 3000-serial))
		same(serial)
	}
	if n := countKind(log, "IXFR"); n == 0 || wholeZones(log) != 1 {
		t.Errorf("got %d transfers of differences and %d of the whole zone, want some and one\n%s", n, wholeZones(log), log)
	}

	between, relayLog = serve(t, relay, between, followed(primary, "expire 1h"))
	write(t, db, zoneFile(5, 2000))
	same(5)
	source, _ = serve(t, primary, source, text+"\n")
	write(t, db, zoneFile(6, 1000))
	same(6)
	if n := wholeZones(log); n != 1 {
		t.Errorf("after reloads: got %d transfers of the whole zone, want one\n%s", n, log)
	}
}

// A copy without data passes queries on, before the first transfer and after it has expired.
func TestFollowWithoutData(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, "@ 5 SOA ns host 1 1 1 60 5\nwww 5 A 192.0.2.1\n")
	primary, at, replica := freePort(t), freePort(t), freePort(t)
	run(t, replica, ". {\n template IN A {\n answer \"{{ .Name }} 5 IN A 198.51.100.1\"\n}\n}")
	log := run(t, at, fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n follow\n expire 2s\n}\n forward . %s\n}", primary, replica))
	await := func(want string) {
		t.Helper()
		eventually(t, func() string {
			if got := answer(at, "www.example.org."); got != want {
				return fmt.Sprintf("got %s, want %s\n%s", got, want, log)
			}
			return ""
		})
	}
	await("198.51.100.1")
	plan, _ := serve(t, primary, nil, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	await("192.0.2.1")
	plan.Stop(t.Context())
	await("198.51.100.1")
	eventually(t, func() string {
		if !strings.Contains(log.String(), "Zone expired") {
			return "the log lacks the expiry\n" + log.String()
		}
		return ""
	})
}

// A query with the option waits for the next version, and one of a client with an older version does not.
func TestFollowOption(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(7, 3))
	at := freePort(t)
	run(t, at, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	eventually(t, func() string {
		if soa(at, "example.org.") != 7 {
			return "the zone is not loaded"
		}
		return ""
	})

	ask := func(network string, serial uint32, seconds string) *mdns.Msg {
		t.Helper()
		m := new(mdns.Msg).SetIxfr("example.org.", serial, "ns.", "host.")
		m.SetEdns0(1232, false)
		o := m.IsEdns0()
		o.Option = append(o.Option, &mdns.EDNS0_LOCAL{Code: 65074, Data: []byte(seconds)})
		r, _, err := (&mdns.Client{Net: network, Timeout: patience}).Exchange(m, at.String())
		if err != nil {
			t.Fatalf("%s, version %d, %q: %v", network, serial, seconds, err)
		}
		return r
	}
	for _, c := range []struct {
		network string
		serial  uint32
		seconds string
		records bool // more than the SOA record
	}{
		{"tcp", 6, "\x00\x3c", true}, {"tcp", 7, "\x00\x00", false}, {"tcp", 7, "\x01", false},
		{"tcp", 7, "\x00\x01", false}, {"udp", 7, "\x00\x3c", false},
	} {
		if r := ask(c.network, c.serial, c.seconds); len(r.Answer) > 1 != c.records || len(r.Answer) == 0 {
			t.Errorf("%s, version %d, %q: got %d records\n%v", c.network, c.serial, c.seconds, len(r.Answer), r)
		}
	}

	next := make(chan *mdns.Msg, 1)
	go func() { next <- ask("tcp", 7, "\x00\x3c") }()
	write(t, db, zoneFile(8, 3))
	if r := <-next; r.Answer[0].(*mdns.SOA).Serial != 8 {
		t.Errorf("got version %v, want 8", r.Answer[0])
	}
}

// followQuery returns an IXFR query that waits for the version after one.
func followQuery(serial uint32, seconds byte) *mdns.Msg {
	m := new(mdns.Msg).SetIxfr("example.org.", serial, "ns.", "host.")
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_LOCAL{Code: 65074, Data: []byte{0, seconds}}}
	return m
}

// connect opens a connection from an address of loopback.
func connect(t testing.TB, from string, to netip.AddrPort) *mdns.Conn {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &mdns.Conn{Conn: conn}
}

// Followers take no place of other queries, also if they are more than these are: the server forwards queries and
// sends zones. All of them get the next version.
func TestFollowersLeavePlaces(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it needs several addresses of loopback")
	}
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(7, 3))
	primary, upstream, at := freePort(t), freePort(t), freePort(t)
	run(t, primary, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	run(t, upstream, ". {\n template IN A {\n answer \"{{ .Name }} 5 IN A 198.51.100.1\"\n}\n}")
	const queries = 16 // with stacks: 128 places
	plan, log := serveOptions(t, at, nil, followed(primary, "")+fmt.Sprintf("\n. {\n forward . %s\n}", upstream),
		func(o *server.Options) { o.MaxParked = queries })
	defer func() { plan.Stop(t.Context()) }()
	eventually(t, func() string {
		if soa(at, "example.org.") != 7 {
			return "the zone is not loaded\n" + log.String()
		}
		return ""
	})

	const each, clients = 60, 5
	var conns []*mdns.Conn
	for i := range clients {
		conn := connect(t, fmt.Sprintf("127.0.1.%d", i+1), at)
		for range each {
			if err := conn.WriteMsg(followQuery(7, 60)); err != nil {
				t.Fatal(err)
			}
		}
		// Queries of a connection are read in their order.
		if err := conn.WriteMsg(new(mdns.Msg).SetQuestion("example.org.", mdns.TypeSOA)); err != nil {
			t.Fatal(err)
		}
		if r, err := conn.ReadMsg(); err != nil || r.Question[0].Qtype != mdns.TypeSOA {
			t.Fatalf("client %d: got %v, error %v, want a reply to the last query only: the others wait", i, r, err)
		}
		conns = append(conns, conn)
	}
	for i := range 2 * queries {
		if got := answer(at, fmt.Sprintf("n%d.example.net.", i)); got != "198.51.100.1" {
			t.Errorf("a forwarded query beside %d followers: got %s", each*clients, got)
		}
	}
	if _, err := axfr(at, "example.org."); err != nil {
		t.Errorf("a transfer beside %d followers: %v", each*clients, err)
	}

	write(t, db, zoneFile(8, 3))
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		for n := range each {
			if r, err := conn.ReadMsg(); err != nil || len(r.Answer) == 0 || r.Answer[0].(*mdns.SOA).Serial != 8 {
				t.Fatalf("client %d, reply %d: got %v, error %v, want version 8", i, n, r, err)
			}
		}
	}
}

// Clients that do not read their transfers, which occupy all slots, keep no follower from its differences.
func TestFollowBesideSlowTransfers(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("it takes more than a second, and needs several addresses of loopback")
	}
	db := filepath.Join(t.TempDir(), "db")
	text := func(serial int) string {
		var b strings.Builder
		b.WriteString(zoneFile(serial, serial))
		b.WriteString(manyTexts())
		return b.String()
	}
	write(t, db, text(1))
	primary, relay, node := freePort(t), freePort(t), freePort(t)
	run(t, primary, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	relayLog := run(t, relay, followed(primary, ""))
	log := run(t, node, followed(relay, ""))
	has := func(serial uint32) func() string {
		return func() string {
			if got := soa(node, "example.org."); got != serial {
				return fmt.Sprintf("the follower has version %d, want %d\n%s", got, serial, log)
			}
			return ""
		}
	}
	eventually(t, has(1))

	for i := range 20 {
		conn := connect(t, fmt.Sprintf("127.0.1.%d", i/4+1), relay)
		_ = conn.Conn.(*net.TCPConn).SetReadBuffer(4096)
		if err := conn.WriteMsg(new(mdns.Msg).SetAxfr("example.org.")); err != nil {
			t.Fatal(err)
		}
	}
	for serial := 2; serial < 5; serial++ {
		write(t, db, text(serial))
		eventually(t, has(uint32(serial)))
	}
	if n := wholeZones(log); n != 1 {
		t.Errorf("got %d transfers of the whole zone, want one\n%s", n, log)
	}
	if n := strings.Count(relayLog.String(), "transfer: Sent zone zone=example.org. client=127.0.1."); n != 0 {
		t.Errorf("%d slow transfers have ended, want that they occupy their slots", n)
	}
}

// A reload that adds follow is obeyed at once, and one that removes it, too.
func TestFollowReloads(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(1, 3))
	primary, node := freePort(t), freePort(t)
	run(t, primary, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	plain := fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n}\n}", primary)
	plan, log := serve(t, node, nil, plain)
	defer func() { plan.Stop(t.Context()) }()
	has := func(serial uint32) func() string {
		return func() string {
			if got := soa(node, "example.org."); got != serial {
				return fmt.Sprintf("got version %d, want %d\n%s", got, serial, log)
			}
			return ""
		}
	}
	eventually(t, has(1))
	for serial := uint32(2); serial < 5; serial++ {
		plan, log = serve(t, node, plan, fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n follow 10ms\n}\n}", primary))
		write(t, db, zoneFile(int(serial), 3)) // REFRESH is an hour
		eventually(t, has(serial))
		plan, log = serve(t, node, plan, plain)
	}
}
