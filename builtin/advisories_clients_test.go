//go:build linux

package builtin

import (
	"net"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// CVE-2026-54478: a limit for each client has to count the client that a PROXY header names, and not the
// proxy, through which others come, too; nor is a client that goes through another proxy a new one.
func TestRateLimitCountsProxiedClient(t *testing.T) {
	s := serveEncrypted(t, "dns://. {\n proxyproto {\n  allow 127.0.0.0/8\n }\n ratelimit 1 {\n  slip 1\n }\n whoami\n}\n")
	query := packed(t, "a.example.")
	// limited sends queries at once, and reports whether the server has truncated the last reply.
	limited := func(proxy, client string, queries int) bool {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(proxy)}}
		c, err := d.Dial("udp", s.address("dns"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		for range queries {
			if _, err := c.Write(append(proxyV2(client+":4711"), query...)); err != nil {
				t.Fatal(err)
			}
		}
		truncated := false
		for range queries {
			m, err := (&mdns.Conn{Conn: c}).ReadMsg()
			if err != nil {
				t.Fatal(err)
			}
			truncated = truncated || m.Truncated
		}
		return truncated
	}

	if !limited("127.0.0.1", "192.0.2.7", 60) {
		t.Error("60 queries of a client: got none limited, want at most one a second answered")
	}
	if limited("127.0.0.1", "198.51.100.7", 1) {
		t.Error("first query of another client of the proxy: got it limited, want an answer")
	}
	if !limited("127.0.0.2", "192.0.2.7", 60) {
		t.Error("60 queries of the first client, through another proxy: got none limited")
	}
}

// CVE-2026-32934: clients that begin many queries, and send a byte of each, keep no other client from an
// answer over the same transport. Their queries end when the time for a message is over.
func TestManyIncompleteQueries(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a timeout of a second")
	}
	s := serveEncrypted(t, everyScheme+" {\n timeouts {\n  read 1s\n }"+answersExample)
	query := packed(t, "a.example.")
	for _, tr := range encryptedProtocols {
		var ends []func() error
		ended := func() {
			for _, end := range ends {
				if got := outcome(nil, end()); got == "NOERROR" {
					t.Errorf("%s: incomplete query: got an answer, want none", tr.name)
				}
			}
			ends = nil
		}
		got := inTime(time.Second, func() (string, time.Time) {
			ended() // those of an attempt that took too long: a client has 64 handshakes at once
			l := s.dial(tr)
			for range 60 {
				if !tr.parallel {
					l = s.dial(tr)
				}
				ends = append(ends, l.begin(query[:1]))
			}
			begun := time.Now()
			return outcome(s.dial(tr).ask(t.Context(), query)), begun
		})
		if got != "NOERROR" {
			t.Errorf("%s: beside 60 incomplete queries: got %s, want an answer", tr.name, got)
		}
		ended()
	}
}

// CVE-2026-46582 and CVE-2026-55717: a stale answer to a name that rewrite has changed has the client's
// name, and that of a wildcard answers no other name.
func TestStaleAnswerOfRewrittenName(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until an answer is stale")
	}
	up := newRecursive(t)
	s := serveEncrypted(t, "dns://. {\n rewrite name exact alias.example. a.wild.example.\n cache {\n  success 100 1 1\n  servfail 0\n"+
		"  serve_stale 1h\n }\n forward . "+up.address+" {\n  max_fails 0\n }\n}\n")
	send := s.transports()["UDP"]
	query := func(name string) []byte {
		packet := packed(t, name)
		packet[11] = 1
		return append(packet, "\x00\x00\x29\x04\xD0\x00\x00\x00\x00\x00\x00"...)
	}
	if got := remote(send(query("alias.example."))); got != "of a.wild.example." {
		t.Fatalf("before the failure: got %s, want the answer of the upstream", got)
	}

	up.failing.Store(true)
	var stale *mdns.Msg
	s.eventually("the answer is stale", func() bool {
		m, err := send(query("alias.example."))
		if err != nil || m.IsEdns0() == nil {
			return false
		}
		stale = m
		return len(m.IsEdns0().Option) == 1
	})
	if got := remote(stale, nil); got != "of a.wild.example." || stale.Answer[0].Header().Name != "alias.example." {
		t.Errorf("stale answer: got %v, want the record of alias.example.", stale)
	}
	if got := remote(send(query("b.wild.example."))); got != "SERVFAIL" {
		t.Errorf("another name of the wildcard: got %s, want SERVFAIL", got)
	}
}
