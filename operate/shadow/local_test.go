package shadow_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/operate/local"
	"github.com/seamark/seamark/operate/shadow"
	"github.com/seamark/seamark/server"
)

// upstream runs a server that answers A with 192.0.2.1, and names that begin with large with
// more records than fit into a datagram.
func upstream(t *testing.T) string {
	t.Helper()
	address := ""
	for _, network := range []string{"tcp", "udp"} {
		ready := make(chan struct{})
		s := &mdns.Server{Addr: "127.0.0.1:0", Net: network, NotifyStartedFunc: func() { close(ready) }}
		if address != "" {
			s.Addr = address
		}
		s.Handler = mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
			m := new(mdns.Msg).SetReply(q)
			for i := range 200 {
				record := &mdns.A{Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}).AsSlice()}
				m.Answer = append(m.Answer, record)
				if !strings.HasPrefix(strings.ToLower(q.Question[0].Name), "large") {
					break
				}
			}
			if network == "udp" {
				m.Truncate(512)
			}
			_ = w.WriteMsg(m)
		})
		failed := make(chan error, 1)
		go func() { failed <- s.ListenAndServe() }()
		select {
		case <-ready:
		case err := <-failed:
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() })
		if network == "tcp" {
			address = s.Listener.Addr().String()
		}
	}
	return address
}

// A local server sees the captured client, and says which directive answered.
func TestLocal(t *testing.T) {
	c := corefile.ReadText("Corefile", []byte(strings.ReplaceAll(`.:53 {
    view inside {
        expr incidr(client_ip(), '10.0.0.0/8')
    }
    cache
    forward . UPSTREAM
}
.:53 {
    acl {
        block
    }
    whoami
}
drop.:53 {
    acl {
        drop
    }
    whoami
}
`, "UPSTREAM", upstream(t))))
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	l, err := local.Start(t.Context(), c.Servers, server.Options{Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	port, err := l.Port("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client, name string
		proto        dns.Proto
		rcode        int // -1 without a reply
		records      int
		directive    string
		upstream     int
	}{
		{"10.1.2.3:4", "www.example.", dns.UDP, mdns.RcodeSuccess, 1, "forward", 1},
		{"10.1.2.3:4", "WWW.example.", dns.TCP, mdns.RcodeSuccess, 1, "cache", 0},
		{"[::ffff:10.1.2.4]:4", "www.example.", dns.UDP, mdns.RcodeSuccess, 1, "cache", 0},
		{"192.0.2.1:4", "www.example.", dns.UDP, mdns.RcodeRefused, 0, "acl", 0},
		{"[fd00::1]:4", "www.example.", dns.UDP, mdns.RcodeRefused, 0, "acl", 0},
		{"192.0.2.1:4", "a.drop.", dns.UDP, -1, 0, "acl", 0},
	} {
		m := new(mdns.Msg).SetQuestion(c.name, mdns.TypeA)
		packet, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		a, err := shadow.Local{Port: port}.Ask(t.Context(), 0, packet, netip.MustParseAddrPort(c.client), c.proto)
		rcode, records := -1, 0
		if a.Reply != nil {
			rcode, records = a.Reply.Rcode, len(a.Reply.Answer)
		}
		if err != nil || rcode != c.rcode || records != c.records || a.Directive != c.directive || a.Upstream != c.upstream || a.Elapsed <= 0 || a.Elapsed > time.Minute {
			t.Errorf("%s from %s over %v: got rcode %d, %d records, %+v and error %v, want rcode %d, %d records by %s with %d upstream queries",
				c.name, c.client, c.proto, rcode, records, a, err, c.rcode, c.records, c.directive, c.upstream)
		}
	}
	// A truncated answer is asked for again over TCP.
	packet, err := new(mdns.Msg).SetQuestion("large.example.", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	a, err := shadow.Local{Port: port}.Ask(t.Context(), 0, packet, netip.MustParseAddrPort("10.1.2.3:4"), dns.UDP)
	if err != nil || a.Reply.Truncated || len(a.Reply.Answer) != 200 || a.Size < 3000 {
		t.Errorf("large answer: got %d records, truncated %t, %d bytes and error %v, want 200", len(a.Reply.Answer), a.Reply.Truncated, a.Size, err)
	}
	// A packet that is no query has no answer.
	packet[2] |= 0x80
	if a, err := (shadow.Local{Port: port}).Ask(t.Context(), 0, packet, netip.MustParseAddrPort("10.1.2.3:4"), dns.UDP); err == nil {
		t.Errorf("response: got %+v, want an error", a)
	}
}
