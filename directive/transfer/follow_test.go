package transfer_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

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
