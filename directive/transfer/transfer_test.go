package transfer_test

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// zoneFile returns a zone file with records of many types.
func zoneFile(serial, hosts int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "$TTL 300\n@ SOA ns host %d 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n", serial)
	b.WriteString("sub NS ns.sub\nns.sub A 192.0.2.2\n*.wild TXT \"a\" \"b\"\nalias CNAME www\nold DNAME new\n_http._tcp SRV 1 2 80 www\nMiXeD MX 10 ns\n@ CAA 0 issue \"x\"\n")
	for i := range hosts {
		fmt.Fprintf(&b, "h%d A 10.%d.%d.%d\n", i, i>>16, i>>8&255, i&255)
	}
	return b.String()
}

// manyTexts returns 4,000 records of 1 KB, more than the buffers of sockets hold.
func manyTexts() string {
	var b strings.Builder
	text := strings.Repeat(" "+strings.Repeat("x", 250), 4)
	for i := range 4000 {
		fmt.Fprintf(&b, "t%d TXT%s\n", i, text)
	}
	return b.String()
}

// A zone of several messages is transferred completely.
func TestAXFR(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(7, 5000))
	at := freePort(t)
	run(t, at, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	m := new(mdns.Msg).SetAxfr("example.org.")
	got, err := transferred(at, m)
	if err != nil {
		t.Fatal(err)
	}
	if want := 11 + 5000; len(got) != want || len(slices.Compact(got)) != want {
		t.Errorf("AXFR: got %d records, %d different, want %d", len(got), len(slices.Compact(got)), want)
	}
	for _, want := range []string{"mixed.example.org. 300 in mx 10 ns.example.org.", "old.example.org. 300 in dname new.example.org."} {
		if !slices.Contains(got, want) {
			t.Errorf("AXFR: %s is missing", want)
		}
	}
}

func TestIXFR(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(7, 10))
	at := freePort(t)
	run(t, at, "example.org {\n file "+db+"\n transfer {\n to 127.0.0.1\n}\n}")
	for _, c := range []struct {
		serial uint32
		net    string
		want   int
	}{{7, "tcp", 1}, {8, "tcp", 1}, {6, "tcp", 22}, {0xFFFFFFFF, "tcp", 22}, {6, "udp", 1}} {
		m := new(mdns.Msg).SetIxfr("example.org.", c.serial, "ns.", "host.")
		r, _, err := (&mdns.Client{Net: c.net, Timeout: patience}).Exchange(m, at.String())
		if err != nil || len(r.Answer) != c.want || r.Answer[0].(*mdns.SOA).Serial != 7 || !r.Authoritative {
			t.Errorf("IXFR %d over %s: got %v, %v, want %d records from serial 7 on", c.serial, c.net, r, err, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(7, 10))
	at := freePort(t)
	run(t, at, "example.org example.net {\n file "+db+" example.org example.net\n transfer example.org {\n to 127.0.0.2 ::1\n}\n transfer sub.example.org {\n to *\n}\n}")
	for _, c := range []struct {
		zone, net string
		qtype     uint16
	}{{"example.org.", "tcp", mdns.TypeAXFR}, {"example.org.", "tcp", mdns.TypeIXFR}, {"example.org.", "udp", mdns.TypeAXFR},
		{"example.net.", "tcp", mdns.TypeAXFR}, {"www.example.org.", "tcp", mdns.TypeAXFR}, {"sub.example.org.", "tcp", mdns.TypeAXFR}} {
		m := new(mdns.Msg).SetQuestion(c.zone, c.qtype)
		r, _, err := (&mdns.Client{Net: c.net, Timeout: patience}).Exchange(m, at.String())
		if err != nil || r.Rcode != mdns.RcodeRefused || len(r.Answer) != 0 {
			t.Errorf("%s %s over %s: got %v, %v, want REFUSED", c.zone, mdns.TypeToString[c.qtype], c.net, r, err)
		}
	}
}

// A client that stops reading during a transfer is cut off, and the server answers
// other clients meanwhile.
func TestClientStopsReading(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(7, 7)+manyTexts())
	at := freePort(t)
	log := run(t, at, "example.org {\n file "+db+"\n timeouts {\n write 1s\n}\n transfer {\n to *\n}\n}")
	for range 3 {
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		if err := (&mdns.Conn{Conn: conn}).WriteMsg(new(mdns.Msg).SetAxfr("example.org.")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() string {
		if soa(at, "example.org.") != 7 {
			return "the server does not answer"
		}
		if n := strings.Count(log.String(), "transfer: Failed to send zone"); n != 3 {
			return fmt.Sprintf("%d transfers failed, want 3", n)
		}
		return ""
	})
}

// A primary's NOTIFY messages are repeated until there is a reply, and a change of the
// serial number sends another one.
func TestNotify(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_ = socket.SetDeadline(time.Now().Add(time.Minute))
	receive := func() (*mdns.Msg, net.Addr) {
		buf := make([]byte, 512)
		n, from, err := socket.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		m := new(mdns.Msg)
		if err := m.Unpack(buf[:n]); err != nil || m.Opcode != mdns.OpcodeNotify || m.Question[0].Qtype != mdns.TypeSOA || !m.Authoritative {
			t.Fatalf("got %v, %v, want a NOTIFY message", m, err)
		}
		return m, from
	}
	accept := func(m *mdns.Msg, to net.Addr) {
		reply, err := new(mdns.Msg).SetReply(m).Pack()
		if err == nil {
			_, err = socket.WriteTo(reply, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(1, 0))
	run(t, freePort(t), "example.org {\n file "+db+"\n transfer {\n to "+socket.LocalAddr().String()+"\n source 127.0.0.2\n}\n}")
	receive()
	m, from := receive()
	if host, _, _ := net.SplitHostPort(from.String()); m.Question[0].Name != "example.org." || host != "127.0.0.2" {
		t.Errorf("got NOTIFY of %s from %s, want of example.org from 127.0.0.2", m.Question[0].Name, from)
	}
	accept(m, from)
	write(t, db, zoneFile(2, 0))
	accept(receive())
}

// Knot, NSD and BIND copy a zone, and follow its changes.
func TestFollowers(t *testing.T) {
	for name, d := range daemons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "db")
			write(t, db, zoneFile(1, 2999))
			primary, follower := freePort(t), freePort(t)
			run(t, primary, fmt.Sprintf("example.org {\n file %s\n transfer {\n to %s\n}\n}", db, follower))
			d.follow(t, follower, primary, nil, "example.org")
			for serial := 1; serial < 4; serial++ {
				if serial > 1 {
					if serial > 1 {
						write(t, db, zoneFile(serial, 3000-serial))
					}
				}
				eventually(t, func() string { return differs(primary, follower, uint32(serial)) })
			}
		})
	}
}

// differs returns why follower does not have the version of primary yet.
func differs(primary, follower netip.AddrPort, serial uint32) string {
	if got := soa(follower, "example.org."); got != serial {
		return fmt.Sprintf("the follower has serial %d, want %d", got, serial)
	}
	return same(primary, follower, "example.org.")
}
