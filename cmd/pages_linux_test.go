package cmd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// maxPages and maxPagesPerClient are the limits of connections of status pages.
const maxPages, maxPagesPerClient = 128, 32

// pagesServer starts a server with status pages, a forward and a limit of file descriptors. stop
// ends it and checks its log.
func pagesServer(t *testing.T, files int) (p *process, health, metrics string, stop func()) {
	t.Helper()
	dir := t.TempDir()
	health, metrics = "127.0.0.1:"+freeport.Reserve(t), "127.0.0.1:"+freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(
		"example.org:0 {\n bind 127.0.0.1\n whoami\n health %s\n prometheus %s\n}\nstub.:0 {\n bind 127.0.0.1\n forward . %s\n}\n",
		health, metrics, startNamedServer(t, "stub")))
	c := program.Command(t, dir, "-conf", "Corefile")
	c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files), c.Path}, c.Args[1:]...)
	p = start(t, c, nil, "")
	return p, health, metrics, func() {
		p.stop()
		p.never("too many open files")
	}
}

func dialFrom(client, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	return d.Dial("tcp", address)
}

// hold opens a connection until the test ends. It returns nil if the server closes it at once for
// another one.
func hold(t *testing.T, client, address string) net.Conn {
	t.Helper()
	conn, err := dialFrom(client, address)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err != nil {
		t.Fatalf("connection from %s to %s: %v", client, address, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// accepted waits until a server has accepted all connections to its addresses on 127.0.0.1: one that the
// kernel has yet to hand over may take the place of one that was opened later.
func accepted(t *testing.T, addresses ...string) {
	t.Helper()
	chaintest.Eventually(t, "all connections are accepted", func() bool {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			// The state 0A is LISTEN, whose receive queue is that of accept.
			fields := strings.Fields(line)
			if fields[3] != "0A" || strings.HasSuffix(fields[4], ":00000000") {
				continue
			}
			for _, a := range addresses {
				if at := netip.MustParseAddrPort(a); fields[1] == fmt.Sprintf("0100007F:%04X", at.Port()) {
					return false
				}
			}
		}
		return true
	})
}

// probe returns the page of a new connection from an address.
func probe(client, url string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, address string) (net.Conn, error) { return dialFrom(client, address) }}
	reply, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(url)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return string(body), err
}

// serves checks that probes, metrics, own names and forwarded names are answered, and returns
// the series of connections.
func serves(t *testing.T, when string, p *process, health, metrics string) (series string) {
	t.Helper()
	for _, client := range []string{"127.0.0.1", "127.0.0.2"} {
		if got, err := probe(client, "http://"+health+"/health"); got != "OK" {
			t.Errorf("%s: probe from %s: got %q, error %v, want OK", when, client, got, err)
		}
	}
	page, err := probe("127.0.0.3", "http://"+metrics+"/metrics")
	if err != nil || !strings.Contains(page, "coredns_build_info") {
		t.Errorf("%s: metrics: got %.100q, error %v", when, page, err)
	}
	for _, network := range []string{"udp", "tcp"} {
		if reply, err := ask(network, p.ports[0], "a.example.org.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeSuccess {
			t.Errorf("%s: a.example.org. over %s: got %v, error %v", when, network, reply, err)
		}
	}
	name := fmt.Sprintf("a%d.stub.", time.Now().UnixNano())
	if reply, err := ask("udp", p.ports[1], name, dns.TypeA); err != nil || len(reply.Answer) != 1 {
		t.Errorf("%s: %s: got %v, error %v, want one address from the upstream", when, name, reply, err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "seamark_transport_connections{") {
			series += line
		}
	}
	return series
}

// connectionsOf returns the connections of an address in the series of serves.
func connectionsOf(series, address string) (n int) {
	for line := range strings.Lines(series) {
		if rest, ok := strings.CutPrefix(line, `seamark_transport_connections{address="`+address+`"} `); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

// Probes get in while one address has 6,000 connections to a page open, of which the server
// keeps its share, and also while connections of many addresses fill all places.
func TestPagesIdleConnections(t *testing.T) {
	long(t)
	p, health, metrics, stop := pagesServer(t, 1024)
	defer stop()
	for i := range 6000 {
		conn := hold(t, "127.0.0.1", health)
		if conn == nil {
			continue
		}
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: a\r\n") // never complete
		}
		if i%1000 == 999 {
			accepted(t, health)
			series := serves(t, fmt.Sprintf("beside %d connections", i+1), p, health, metrics)
			if n := connectionsOf(series, "pages"); n > maxPagesPerClient+3 {
				t.Errorf("beside %d connections: got %d, want at most %d and the probes'", i+1, n, maxPagesPerClient)
			}
		}
	}
	for i := range 1000 {
		hold(t, fmt.Sprintf("127.0.2.%d", i%200+1), metrics)
	}
	accepted(t, metrics)
	if n := connectionsOf(serves(t, "beside 200 clients", p, health, metrics), "pages"); n > maxPages {
		t.Errorf("beside 200 clients: got %d connections, want at most %d", n, maxPages)
	}
}

// Clients that send many requests for metrics and read no reply keep neither probes nor queries
// from their answers.
func TestPagesUnreadMetrics(t *testing.T) {
	long(t)
	p, health, metrics, stop := pagesServer(t, 1024)
	defer stop()
	before := residentMemory(t, p)
	requests := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	for i := range 600 {
		conn := hold(t, fmt.Sprintf("127.0.3.%d", i%100+1), metrics)
		if conn == nil {
			continue
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		_, _ = io.WriteString(conn, requests)
		if i%200 == 199 {
			accepted(t, metrics)
			series := serves(t, fmt.Sprintf("beside %d connections", i+1), p, health, metrics)
			if n := connectionsOf(series, "pages"); n > maxPages {
				t.Errorf("beside %d connections: got %d, want at most %d", i+1, n, maxPages)
			}
		}
	}
	t.Logf("%.1f MB of resident memory, and %.1f MB before", residentMemory(t, p), before)
}

// The connections of all listeners together leave descriptors for upstreams and files.
func TestFewDescriptorsAllListeners(t *testing.T) {
	long(t)
	for _, files := range []int{64, 256} {
		p, health, metrics, stop := pagesServer(t, files)
		addresses := []string{"127.0.0.1:" + p.ports[0], health, metrics}
		for i := range 2000 {
			// Each address has connections of every client.
			hold(t, fmt.Sprintf("127.0.4.%d", i/len(addresses)%250+1), addresses[i%len(addresses)])
		}
		accepted(t, addresses...)
		when := fmt.Sprintf("with %d descriptors", files)
		series, sum := serves(t, when, p, health, metrics), 0
		for _, a := range []string{addresses[0], "pages"} {
			sum += connectionsOf(series, a)
		}
		if most := files/2 + 2*4; sum > most || sum == 0 { // a listener may always have four
			t.Errorf("%s: got %d connections, want at most %d:\n%s", when, sum, most, series)
		}
		stop()
	}
}
