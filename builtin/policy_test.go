package builtin

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// start serves a Corefile on the same free port of each of these addresses, and
// returns the port.
func start(t *testing.T, text string, at ...string) int {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var listen []netip.AddrPort
	for _, a := range at {
		listen = append(listen, netip.AddrPortFrom(netip.MustParseAddr(a), 0))
	}
	plan, err := server.NewPlan(blocks, server.Options{
		Directives: Directives(), Port: 53, Listen: listen,
		Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Start(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plan.Stop(context.Background()) })
	return int(plan.Addresses()[0].Port())
}

// upstream starts a server that answers 192.0.2.1 for every name, or NXDOMAIN for
// names with a label that begins with no, and returns its address.
func upstream(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		q := r.Question[0]
		switch {
		case strings.Contains(strings.ToLower("."+q.Name), ".no"):
			m.Rcode = dns.RcodeNameError
		case q.Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: net.IPv4(192, 0, 2, 1)}}
		}
		_ = w.WriteMsg(m) // the client reports a missing reply
	})}
	started, ended := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = s.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return conn.LocalAddr().String()
}

// ask queries the address of a name from one loopback address at another. It
// returns the response code and the data of the answer.
func ask(t *testing.T, proto, from, at string, port int, name string) string {
	t.Helper()
	local := net.Addr(&net.UDPAddr{IP: net.ParseIP(from)})
	if proto == "tcp" {
		local = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c := dns.Client{Net: proto, Timeout: patience, Dialer: &net.Dialer{LocalAddr: local}}
	addr := netip.AddrPortFrom(netip.MustParseAddr(at), uint16(port))
	m, _, err := c.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), addr.String())
	if err != nil {
		t.Fatalf("%s from %s over %s: %v", name, from, proto, err)
	}
	said := dns.RcodeToString[m.Rcode]
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			said += " " + rr.A.String()
		case *dns.CNAME:
			said += " " + rr.Target
		}
	}
	return said
}

const (
	trusted   = "127.0.0.1"
	stranger  = "127.0.0.2"
	secretOK  = "NOERROR 192.0.2.1"
	refusedIt = "REFUSED"
)

// CVE-2026-26017, GHSA-c9v3-4pv7-87pr: acl checked the name before rewrite
// changed it, so a blocked client could get the name under another one.
func TestBypassRewriteCVE_2026_26017(t *testing.T) {
	port := start(t, `.:53 {
		acl secret.example.org {
			allow net 127.0.0.1
			block
		}
		rewrite name exact public.example.net secret.example.org
		rewrite name suffix .alias.example.net .example.org
		forward . `+upstream(t)+` {
			prefer_udp
		}
	}`, "127.0.0.1")
	for _, name := range []string{"secret.example.org", "SECRET.Example.org", "public.example.net", "secret.alias.example.net"} {
		for _, proto := range []string{"udp", "tcp"} {
			if got := ask(t, proto, stranger, "127.0.0.1", port, name); got != refusedIt {
				t.Errorf("%s for a blocked client over %s: got %s, want %s", name, proto, got, refusedIt)
			}
			if got := ask(t, proto, trusted, "127.0.0.1", port, name); got != secretOK {
				t.Errorf("%s for an allowed client over %s: got %s, want %s", name, proto, got, secretOK)
			}
		}
	}
}

// coredns#8289: clients that acl blocks got answers from the cache.
func TestBypassCache8289(t *testing.T) {
	port := start(t, `.:53 {
		cache 300
		acl example.org {
			allow net 127.0.0.1
			block
		}
		rewrite name exact alias.example.net secret.example.org
		forward . `+upstream(t)+` {
			prefer_udp
		}
	}`, "127.0.0.1")
	for range 2 { // the second answer is from the cache
		if got := ask(t, "udp", trusted, "127.0.0.1", port, "secret.example.org"); got != secretOK {
			t.Fatalf("secret.example.org for an allowed client: got %s, want %s", got, secretOK)
		}
	}
	for _, name := range []string{"secret.example.org", "sEcReT.example.org", "alias.example.net"} {
		for range 2 {
			if got := ask(t, "udp", stranger, "127.0.0.1", port, name); got != refusedIt {
				t.Errorf("%s: got %s, want %s", name, got, refusedIt)
			}
		}
	}
	// A refusal is not cached either.
	if got := ask(t, "udp", trusted, "127.0.0.1", port, "secret.example.org"); got != secretOK {
		t.Errorf("secret.example.org after a refusal: got %s, want %s", got, secretOK)
	}
}

// coredns#8290: autopath tried the names of a search path without acl checking
// them.
func TestBypassAutopath8290(t *testing.T) {
	resolv := t.TempDir() + "/resolv.conf"
	if err := os.WriteFile(resolv, []byte("search no.cluster.local no.example.com example.org\nnameserver 127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := start(t, `.:53 {
		cache 300
		autopath `+resolv+`
		acl secret.example.org {
			allow net 127.0.0.1
			block
		}
		forward . `+upstream(t)+` {
			prefer_udp
		}
	}`, "127.0.0.1")
	const first, path = "secret.no.cluster.local", "NOERROR secret.example.org. 192.0.2.1"
	for range 2 {
		if got := ask(t, "udp", trusted, "127.0.0.1", port, first); got != path {
			t.Fatalf("autopath for an allowed client: got %s, want %s", got, path)
		}
	}
	for range 2 {
		if got := ask(t, "udp", stranger, "127.0.0.1", port, first); strings.Contains(got, "192.0.2.1") {
			t.Errorf("autopath for a blocked client: got %s, want no address of the blocked name", got)
		}
	}
	if got := ask(t, "udp", stranger, "127.0.0.1", port, "open.no.cluster.local"); got != "NOERROR open.example.org. 192.0.2.1" {
		t.Errorf("a name that acl allows: got %s", got)
	}
}

// acl treats an IPv4 client on an IPv6 socket as an IPv4 client.
func TestBypassMappedAddress(t *testing.T) {
	port := start(t, `.:53 {
		acl {
			allow net ::/0
			block net 127.0.0.2 192.0.2.0/24
		}
		whoami
	}`, "::")
	for _, proto := range []string{"udp", "tcp"} {
		for from, want := range map[string]string{stranger: refusedIt, trusted: "NOERROR"} {
			if got := ask(t, proto, from, "127.0.0.1", port, "example.org"); got != want {
				t.Errorf("%s over %s: got %s, want %s", from, proto, got, want)
			}
		}
	}
}

// view sees the client's own question, not the question that rewrite makes, and views
// do not share cache entries.
func TestViewOriginalQuestion(t *testing.T) {
	port := start(t, `.:53 {
		view trusted {
			expr client_ip() == '127.0.0.1' && name() == 'public.example.net.'
		}
		cache 300
		rewrite name exact public.example.net secret.example.org
		forward . `+upstream(t)+` {
			prefer_udp
		}
	}
	.:53 {
		cache 300
		rewrite name exact other.example.net public.example.net
		acl secret.example.org {
			block
		}
		template IN A public.example.net {
			answer "{{ .Name }} 60 IN A 192.0.2.9"
		}
		forward . `+upstream(t)+` {
			prefer_udp
		}
	}`, "127.0.0.1")
	for range 2 {
		for _, c := range []struct{ from, name, want string }{
			{trusted, "public.example.net", secretOK},
			{trusted, "other.example.net", "NOERROR 192.0.2.9"}, // rewritten, but still in this view
			{stranger, "public.example.net", "NOERROR 192.0.2.9"},
			{stranger, "secret.example.org", refusedIt},
			{trusted, "secret.example.org", refusedIt},
		} {
			if got := ask(t, "udp", c.from, "127.0.0.1", port, c.name); got != c.want {
				t.Errorf("%s from %s: got %s, want %s", c.name, c.from, got, c.want)
			}
		}
	}
}
