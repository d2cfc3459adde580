package cmd_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Clients at one address that do not read their transfers keep no other from one.
func TestTransferSlowReaders(t *testing.T) {
	long(t)
	dir := t.TempDir()
	var zone strings.Builder
	zone.WriteString("$ORIGIN example.org.\n@ 60 IN SOA ns admin 1 3600 600 86400 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n")
	for i := range 20_000 { // more than the kernel's buffers hold
		fmt.Fprintf(&zone, "host%d 60 IN TXT %q\n", i, strings.Repeat("x", 100))
	}
	write(t, filepath.Join(dir, "zone"), zone.String())
	write(t, filepath.Join(dir, "Corefile"),
		"example.org:0 {\n bind 127.0.0.1\n timeouts {\n  write 5m\n }\n file zone\n transfer {\n  to *\n }\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()
	at := "127.0.0.1:" + p.ports[0]
	query := new(dns.Msg).SetAxfr("example.org.")
	transfer := func(client string) int {
		t.Helper()
		d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
		conn, err := d.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		in := &dns.Transfer{Conn: &dns.Conn{Conn: conn}, ReadTimeout: 30 * time.Second}
		answers, err := in.In(query, at)
		if err != nil {
			t.Fatal(err)
		}
		records := 0
		for a := range answers {
			if a.Error != nil {
				t.Errorf("transfer to %s after %d records: %v", client, records, a.Error)
			}
			records += len(a.RR)
		}
		return records
	}
	want := transfer("127.0.0.2")
	for range 90 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		if err := (&dns.Conn{Conn: conn}).WriteMsg(query); err != nil {
			t.Fatal(err)
		}
	}
	for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
		if got := transfer(client); got != want || got < 20_000 {
			t.Errorf("transfer to %s beside 90 that are not read: got %d records, want %d", client, got, want)
		}
	}
}
