package cmd_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Clients with more TCP connections than the process has file descriptors get an
// answer over each, and leave descriptors for upstreams.
func TestFewDescriptors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(
		"example.org:0 {\n bind 127.0.0.1\n whoami\n}\nstub.:0 {\n bind 127.0.0.1\n forward . %s\n}\n", startNamedServer(t, "stub")))
	c := program(t, dir, "-conf", "Corefile")
	c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n 64 && exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	var log bytes.Buffer
	p := start(t, c, &log, "")
	at := "127.0.0.1:" + p.ports[0]
	query := new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA)
	for i := range 200 {
		// Each address is another client.
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
		conn, err := d.Dial("tcp", at)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, _, err := new(dns.Client).ExchangeWithConn(query, &dns.Conn{Conn: conn}); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	reply, err := ask("udp", p.ports[1], "a.stub.", dns.TypeA)
	if err != nil || len(reply.Answer) != 1 {
		t.Errorf("a.stub. A: got %v, error %v, want one address from the upstream", reply, err)
	}
	p.stop()
	if strings.Contains(log.String(), "too many open files") {
		t.Errorf("got the log %s, want no word of open files", &log)
	}
}

// A log on a full disk loses lines and nothing else.
func TestLogOnFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	dir := t.TempDir()
	// The server cannot print its port. No other process uses this address.
	free, err := net.ListenPacket("udp", "127.77.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.LocalAddr().String()
	free.Close()
	write(t, filepath.Join(dir, "Corefile"), "example.org {\n log\n errors\n whoami\n}\n")
	c := program(t, dir, "serve", "--conf", "Corefile", "--listen", at)
	c.Stdout, c.Stderr = full, full
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: c, t: t, done: make(chan struct{})}
	go func() { _ = c.Wait(); close(p.done) }()
	deadline := time.Now().Add(20 * time.Second)
	for n := 0; n < 100; {
		if _, err := ask("udp", at, "a.example.org.", dns.TypeA); err == nil {
			n++
		} else if time.Now().After(deadline) {
			t.Fatalf("a.example.org. A: %v after %d answers", err, n)
		}
	}
	p.stop()
}
