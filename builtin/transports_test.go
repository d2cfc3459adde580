package builtin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// everyScheme are the keys of a server block for all schemes.
const everyScheme = "dns://. tls://. https://. https3://. quic://. grpc://."

// answersExample is the rest of a server block that answers the names below example, fails for
// others, and drops MX queries.
const answersExample = `
    tls cert.pem key.pem
    acl {
        drop type MX
    }
    template IN TXT example {
        match ^missing
        fallthrough
        rcode NXDOMAIN
        authority "example. 300 IN SOA ns.example. mail.example. 1 2 3 4 30"
    }
    template IN TXT example {
        answer "{{ .Name }} 60 IN TXT {{ .Remote }}"
        answer "{{ .Name }} 45 IN TXT second"
    }
}
`

// patientAnswers is the same with limits that a busy machine does not reach, for tests of other things.
const patientAnswers = `
    timeouts {
        read 1m
        write 1m
        idle 10m
    }` + answersExample

// forMX returns a query of type MX.
func forMX(query []byte) []byte {
	query = bytes.Clone(query)
	query[len(query)-3] = byte(mdns.TypeMX)
	return query
}

// asReply returns a message that is not a query.
func asReply(query []byte) []byte {
	query = bytes.Clone(query)
	query[2] |= 0x80
	return query
}

// A connection has as many queries as it may have at the same time, and more where the client
// waits at the limit. The client cancels some. It goes on after queries without an answer, and after a reload with another limit.
func TestEncryptedQueries(t *testing.T) {
	queries := func(t *testing.T, tr protocol, config *tls.Config) {
		block := tr.scheme + "://. {"
		if tr.limits != "" {
			block += "\n " + tr.limits + " {\n  max_streams 50\n }"
		}
		block += patientAnswers
		if config == nil {
			block = strings.Replace(block, "tls cert.pem key.pem", "", 1)
		}
		s := serveEncrypted(t, block)
		l := s.dialWith(tr, config)
		if got := remote(l.ask(t.Context(), packed(t, "a.example."))); got != "127.0.0.1" {
			t.Fatalf("first query: got %s, want 127.0.0.1", got)
		}

		// Go's client of HTTP/2 does not wait at the limit of streams: it opens a connection for
		// each query above it, more than the server has room for.
		atOnce := make(chan struct{}, 200)
		if tr.name == "HTTP/2" {
			atOnce = make(chan struct{}, 50)
		}

		var asking sync.WaitGroup
		for i := range 200 {
			asking.Go(func() {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancelled := tr.parallel && i%4 == 0
				if cancelled {
					time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
				}
				m, err := l.ask(ctx, packed(t, fmt.Sprintf("a%d.example.", i)))
				if got := remote(m, err); !cancelled && (got != "127.0.0.1" || len(m.Answer) != 2) {
					t.Errorf("query %d: got %s, want two records, with 127.0.0.1", i, got)
				}
			})
		}
		asking.Wait()

		for _, q := range []struct {
			packet []byte
			want   string
		}{
			{packed(t, "missing.example."), "NXDOMAIN"}, {packed(t, "a.test."), "SERVFAIL"},
			{forMX(packed(t, "a.example.")), tr.dropped}, {packed(t, "a.example."), "NOERROR"},
		} {
			if q.want == "" {
				continue
			}
			if got := outcome(l.ask(t.Context(), q.packet)); got != q.want {
				t.Errorf("%x: got %s, want %s", q.packet, got, q.want)
			}
		}
		s.load(strings.Replace(block, "max_streams 50", "max_streams 60", 1))
		if got := outcome(l.ask(t.Context(), packed(t, "b.example."))); got != "NOERROR" || !l.isOpen() {
			t.Errorf("after the reload: got %s, open %v; want an answer over the open connection", got, l.isOpen())
		}
	}
	for _, tr := range encryptedProtocols {
		t.Run(tr.name, func(t *testing.T) { queries(t, tr, &tls.Config{InsecureSkipVerify: true}) })
		if tr.name == "HTTP/1.1" || tr.name == "gRPC" { // for a proxy
			t.Run(tr.name+" without TLS", func(t *testing.T) { queries(t, tr, nil) })
		}
	}
}

// A message that is not a query is refused, as the protocol has it. Other queries are answered.
// See TOB-CDNS-14 in docs/reference/advisories.md.
func TestEncryptedFaults(t *testing.T) {
	s := serveEncrypted(t, everyScheme+" {"+patientAnswers)
	query := packed(t, "a.example.")
	for _, tr := range encryptedProtocols {
		l := s.dial(tr)
		for _, c := range []struct {
			name   string
			packet []byte
			want   string
		}{
			{"empty message", nil, tr.fault}, {"short message", query[:11], tr.fault}, {"a reply", asReply(query), tr.fault},
			{"large message", make([]byte, 65536), tr.large}, {"huge message", make([]byte, 8<<20), tr.large},
		} {
			if c.want == "" {
				continue
			}
			got := outcome(l.ask(t.Context(), c.packet))
			if tr.closes && strings.HasPrefix(got, "reset") { // of the stream, before the end of the connection
				got = l.await(t)
			}
			if got != c.want {
				t.Errorf("%s: %s: got %s, want %s", tr.name, c.name, got, c.want)
			}
			if tr.closes {
				l = s.dial(tr)
			}
			if got := outcome(l.ask(t.Context(), query)); got != "NOERROR" {
				t.Errorf("%s: query after %s: got %s, want an answer", tr.name, c.name, got)
			}
		}
	}
}

// A query that is not complete in time is refused, and others are answered meanwhile: over
// the same connection if it can have several.
func TestEncryptedSlowQueries(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a timeout of a second")
	}
	s := serveEncrypted(t, everyScheme+" {\n timeouts {\n  read 1s\n }"+answersExample)
	query, ends := packed(t, "a.example."), map[string]func() error{}
	links := map[string]link{}
	for _, tr := range encryptedProtocols {
		got := inTime(time.Second, func() (string, time.Time) {
			begun := time.Now()
			links[tr.name] = s.dial(tr)
			ends[tr.name] = links[tr.name].begin(query[:10])
			if !tr.parallel {
				links[tr.name] = s.dial(tr)
			}
			return outcome(links[tr.name].ask(t.Context(), query)), begun
		})
		if got != "NOERROR" {
			t.Errorf("%s: beside an incomplete query: got %s, want an answer", tr.name, got)
		}
	}
	for _, tr := range encryptedProtocols {
		if got := outcome(nil, ends[tr.name]()); got != tr.slow && !strings.HasPrefix(got, "reset") {
			t.Errorf("%s: incomplete query: got %s, want %s or a reset", tr.name, got, tr.slow)
		}
		got := inTime(time.Second, func() (string, time.Time) {
			begun := time.Now()
			if !links[tr.name].isOpen() {
				links[tr.name] = s.dial(tr)
			}
			return outcome(links[tr.name].ask(t.Context(), query)), begun
		})
		if got != "NOERROR" {
			t.Errorf("%s: after an incomplete query: got %s, want an answer", tr.name, got)
		}
	}
}

// inTime calls ask, which returns the outcome of a query and when it began, and returns the outcome. While
// a client on a busy machine needs longer than the server's limit, so that it may fail, the query is repeated.
func inTime(limit time.Duration, ask func() (got string, begun time.Time)) string {
	for end := time.Now().Add(time.Minute); ; {
		got, begun := ask()
		if got == "NOERROR" || time.Since(begun) < limit || time.Now().After(end) {
			return got
		}
	}
}

// A holder is the directive hold: queries for names below wait are answered once they are released.
type holder struct{ arrived, release chan struct{} }

func (h *holder) directive() config.Directive {
	return config.Directive{Name: "hold", Setup: func(b *config.Block, _ []corefile.Directive) error {
		b.Handle(h)
		return nil
	}}
}

// ServeDNS implements [dns.Handler].
func (h *holder) ServeDNS(q *dns.Query) dns.Verdict {
	if bytes.HasSuffix(q.Name(), []byte("\x04wait\x00")) {
		return dns.Wait
	}
	return dns.Next
}

// Resolve implements [dns.Resolver].
func (h *holder) Resolve(context.Context, *dns.Query) error {
	h.arrived <- struct{}{}
	<-h.release
	return nil
}

// When a listener stops, idle connections end without an error, and a query that waits gets its
// reply.
func TestEncryptedStop(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for connections that get time to send their last query")
	}
	h := &holder{make(chan struct{}), make(chan struct{})}
	for _, tr := range encryptedProtocols {
		t.Run(tr.name, func(t *testing.T) {
			s := serveWithGrace(t, tr.scheme+"://. {\n hold"+patientAnswers, 50*time.Second, h.directive())
			idle, busy := s.dial(tr), s.dial(tr)
			for _, l := range []link{idle, busy} {
				if got := outcome(l.ask(t.Context(), packed(t, "a.example."))); got != "NOERROR" {
					t.Fatalf("before the stop: got %s, want an answer", got)
				}
			}
			reply := make(chan string, 1)
			go func() { reply <- outcome(busy.ask(t.Context(), packed(t, tr.scheme+".wait."))) }()
			select {
			case <-h.arrived:
			case got := <-reply:
				t.Fatalf("query that waits: got %s before the upstream had it", got)
			}

			stopped := make(chan struct{})
			address, overTCP := s.address(tr.scheme), tr.stopped == "end"
			go func() { defer close(stopped); s.load(".:0 {\n whoami\n}\n") }()
			s.eventually("the listener stops", func() bool {
				if !overTCP {
					return !idle.isOpen()
				}
				c, err := net.Dial("tcp", address)
				if err == nil {
					_ = c.Close()
				}
				return errors.Is(err, syscall.ECONNREFUSED)
			})
			h.release <- struct{}{}
			if got := idle.await(t); got != tr.stopped {
				t.Errorf("idle connection: got %s, want %s", got, tr.stopped)
			}
			if got := <-reply; got != "NOERROR" {
				t.Errorf("query that waits: got %s, want its reply", got)
			}
			if got := busy.await(t); got != tr.stopped {
				t.Errorf("connection with the query: got %s, want %s", got, tr.stopped)
			}
			<-stopped
		})
	}
}

// A connection over the limit replaces an idle one. A reload changes the limit, and connections go
// on.
func TestEncryptedConnectionLimits(t *testing.T) {
	for _, tr := range encryptedProtocols {
		if tr.scheme != "https" && tr.scheme != "grpc" { // others have the limit of package transport
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			block := tr.scheme + "://. {\n " + tr.limits + " {\n  max_connections 2\n" + tr.others + " }" + patientAnswers
			s := serveEncrypted(t, block)
			query := packed(t, "a.example.")
			first := s.dial(tr)
			if got := outcome(first.ask(t.Context(), query)); got != "NOERROR" {
				t.Fatalf("first connection: got %s, want an answer", got)
			}
			idle, err := net.Dial("tcp", s.address(tr.scheme))
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = idle.Read(make([]byte, 1))
			}()

			third := s.dial(tr)
			if got := outcome(third.ask(t.Context(), query)); got != "NOERROR" {
				t.Errorf("third connection: got %s, want an answer", got)
			}
			others := func() (open int) {
				select {
				case <-ended:
				default:
					open++
				}
				if first.isOpen() {
					open++
				}
				return open
			}
			s.eventually("one of the others is closed", func() bool { return others() == 1 })

			s.load(strings.Replace(block, "max_connections 2", "max_connections 3", 1))
			links := []link{third, s.dial(tr)}
			for _, l := range links {
				if got := outcome(l.ask(t.Context(), query)); got != "NOERROR" {
					t.Errorf("after the reload: got %s, want an answer", got)
				}
			}
			if !third.isOpen() || others() != 1 {
				t.Errorf("three connections after the reload: got the third open %v, %d others; want it and one", third.isOpen(), others())
			}

			links = append(links, s.dial(tr))
			if got := outcome(links[2].ask(t.Context(), query)); got != "NOERROR" {
				t.Errorf("over the limit after the reload: got %s, want an answer", got)
			}
			s.eventually("one of four is closed", func() bool {
				open := others()
				for _, l := range links {
					if l.isOpen() {
						open++
					}
				}
				return open == 3
			})
		})
	}
}

// A stream over HTTP/2 that the client resets does not cost it the connection.
func TestHTTPSResetStreams(t *testing.T) {
	s := serveEncrypted(t, "https://. {"+patientAnswers)
	client := httpClient(t, true)
	url := "https://" + s.address("https") + "/dns-query?dns=" + base64.RawURLEncoding.EncodeToString(packed(t, "a.example."))

	const requests = 200
	reused := 0
	for i := range requests {
		ctx, cancel := context.WithCancel(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) {
				if info.Reused {
					reused++
				}
			},
		}))
		r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		cancel() // resets the stream
		response.Body.Close()
	}

	if reused < requests-10 {
		t.Errorf("%d of %d requests used the open connection, want at least %d", reused, requests, requests-10)
	}
}

// A renewed certificate is used for new connections, an invalid one is not, and open connections
// continue, also over a reload.
func TestEncryptedCertificates(t *testing.T) {
	block := everyScheme + " {" + patientAnswers
	s := serveEncrypted(t, block)
	open, first := map[string]link{}, s.expiries()
	for _, tr := range encryptedProtocols {
		open[tr.name] = s.dial(tr)
	}
	continues := func(when string) {
		for name, l := range open {
			if got := outcome(l.ask(t.Context(), packed(t, "a.example."))); got != "NOERROR" || !l.isOpen() {
				t.Errorf("%s %s: got %s, open %v; want an answer over the open connection", name, when, got, l.isOpen())
			}
		}
	}
	continues("at the beginning")

	_, other := certificateFor(t, time.Hour)
	old, err := os.ReadFile("key.pem")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("key.pem", []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("the invalid pair is rejected", func() bool {
		return s.log.contains("Rejected new certificate files") && s.log.contains("private key does not match public key")
	})
	for name, got := range s.expiries() {
		if got != first[name] {
			t.Errorf("%s after an invalid pair: got a certificate that expires at %d, want the first one, %d", name, got, first[name])
		}
	}
	if err := os.WriteFile("key.pem", old, 0o600); err != nil {
		t.Fatal(err)
	}

	writePair(t, 100*time.Hour)
	s.eventually("the new pair is used", func() bool {
		for name, got := range s.expiries() {
			if got <= first[name] {
				return false
			}
		}
		return true
	})
	continues("after the renewal")
	var expires float64
	for line := range strings.Lines(s.metricsText()) {
		if strings.HasPrefix(line, "seamark_tls_certificate_expiry_seconds{") {
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &expires)
		}
	}
	if want := s.expiries()["TLS"]; int64(expires) != want {
		t.Errorf("seamark_tls_certificate_expiry_seconds: got %v, want %d", expires, want)
	}

	if err := os.Link("cert.pem", "other-cert.pem"); err != nil {
		t.Fatal(err)
	}
	s.load(strings.Replace(block, "cert.pem", "other-cert.pem", 1))
	continues("after a reload")
	s.expiries()
}

// expiries returns when the certificates expire that the server presents, by transport.
func (s *encrypted) expiries() map[string]int64 {
	s.t.Helper()
	all := map[string]int64{}
	for _, tr := range encryptedProtocols {
		config := &tls.Config{InsecureSkipVerify: true}
		config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
			c, err := x509.ParseCertificate(raw[0])
			if err == nil {
				all[tr.name] = c.NotAfter.Unix()
			}
			return err
		}
		if got := outcome(s.dialWith(tr, config).ask(s.t.Context(), packed(s.t, "a.example."))); got != "NOERROR" {
			s.t.Fatalf("%s: got %s, want an answer", tr.name, got)
		}
	}
	return all
}

// transports returns functions that send a message over each transport, on a connection of its
// own, and return the reply.
func (s *encrypted) transports() map[string]func(packet []byte) (*mdns.Msg, error) {
	all := map[string]func(packet []byte) (*mdns.Msg, error){}
	for _, network := range []string{"udp", "tcp"} {
		all[strings.ToUpper(network)] = func(packet []byte) (*mdns.Msg, error) {
			c, err := net.Dial(network, s.address("dns"))
			if err != nil {
				return nil, err
			}
			return exchange(c, packet)
		}
	}
	for _, tr := range encryptedProtocols {
		all[tr.name] = func(packet []byte) (*mdns.Msg, error) { return s.dial(tr).ask(s.t.Context(), packet) }
	}
	return all
}

// exchange sends a message over a connection, and returns the reply.
func exchange(c net.Conn, packet []byte) (*mdns.Msg, error) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	messages := mdns.Conn{Conn: c} // its ReadMsg would verify signatures
	if _, err := messages.Write(packet); err != nil {
		return nil, err
	}
	buf := make([]byte, 65535)
	n, err := messages.Read(buf)
	return unpacked(buf[:n], err)
}

// signedAt returns a message with the signature of some time ago. Its ID is 0, as in QUIC.
func signedAt(t *testing.T, m *mdns.Msg, age time.Duration) []byte {
	t.Helper()
	m.Id = 0
	m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Add(-age).Unix())
	packet, _, err := mdns.TsigGenerate(m, transferSecret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// A recorded query, NOTIFY message or transfer that is sent again is accepted for as long as its
// signature permits, and is BADTIME afterwards, over each transport.
// See CVE-2026-33190 and CVE-2026-35579 in docs/reference/advisories.md.
func TestTSIGReplayed(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	var refreshes atomic.Int64 // SOA queries of the secondary, which are only made for NOTIFY messages
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	primary := &mdns.Server{Listener: l, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		if q.Question[0].Qtype == mdns.TypeSOA {
			refreshes.Add(1)
		}
		soa, _ := mdns.NewRR("copied. 300 IN SOA ns mail 5 3600 600 86400 60")
		reply := new(mdns.Msg).SetReply(q)
		reply.Answer = []mdns.RR{soa}
		if q.Question[0].Qtype == mdns.TypeAXFR {
			reply.Answer = append(reply.Answer, soa)
		}
		_ = w.WriteMsg(reply)
	})}
	go func() { _ = primary.ActivateAndServe() }()
	t.Cleanup(func() { _ = primary.Shutdown() })

	s := serveEncrypted(t, "dns://. {\n whoami\n}")
	if err := os.WriteFile("db", []byte("$ORIGIN example.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\na 300 TXT answered\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.load(everyScheme + ` {
    tls cert.pem key.pem
    tsig . {
        secret key. ` + transferSecret + `
        require all
        require_opcode NOTIFY
    }
    file db example.
    secondary copied. {
        transfer from ` + l.Addr().String() + `
    }
    transfer {
        to *
    }
}`)
	notify := func() *mdns.Msg { return new(mdns.Msg).SetNotify("copied.") }
	query := func() *mdns.Msg { return new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT) }
	axfr := func() *mdns.Msg { return new(mdns.Msg).SetAxfr("example.") }
	kinds := map[string]func() *mdns.Msg{"query": query, "NOTIFY": notify, "AXFR": axfr}
	transports := s.transports()
	s.eventually("the zone is copied", func() bool {
		r, err := transports["TCP"](signedAt(t, new(mdns.Msg).SetQuestion("copied.", mdns.TypeSOA), 0))
		return err == nil && len(r.Answer) == 1
	})
	before := refreshes.Load()
	for name, send := range transports {
		for kind, message := range kinds {
			late := signedAt(t, message(), 302*time.Second)
			for range 2 {
				r, err := send(late)
				if err != nil || r.Rcode != mdns.RcodeNotAuth || r.IsTsig() == nil || r.IsTsig().Error != mdns.RcodeBadTime || len(r.Answer) > 0 {
					t.Errorf("%s over %s, sent 302 s later: got %v, error %v; want NOTAUTH with BADTIME", kind, name, r, err)
				}
			}
		}
	}
	if got := refreshes.Load(); got != before {
		t.Errorf("NOTIFY messages, sent 302 s later: got %d refreshes, want none", got-before)
	}
	for name, send := range transports {
		for kind, message := range kinds {
			now, before := signedAt(t, message(), 0), refreshes.Load()
			for i := range 3 {
				r, err := send(now)
				want := mdns.RcodeSuccess
				if kind == "AXFR" && !strings.Contains("TCP TLS QUIC", name) {
					want = mdns.RcodeRefused
				}
				if err != nil || r.Rcode != want || r.IsTsig() == nil || r.IsTsig().Error != 0 || kind == "query" && len(r.Answer) != 1 || kind == "AXFR" && want == 0 && len(r.Answer) != 5 {
					t.Errorf("%s over %s, sent %d times: got %v, error %v; want %s", kind, name, i+1, r, err, mdns.RcodeToString[want])
				}
			}
			if kind == "NOTIFY" {
				s.eventually("NOTIFY starts a refresh", func() bool { return refreshes.Load() > before })
			}
		}
	}
}

// A view selects a block over each transport, by the client and by the query.
func TestViewTransports(t *testing.T) {
	block := func(view, answer string) string {
		return everyScheme + " {\n" + view + "\n tls cert.pem key.pem\n template IN TXT . {\n  answer \"{{ .Name }} 60 IN TXT " + answer + "\"\n }\n}\n"
	}
	s := serveEncrypted(t, block("view other {\n expr incidr(client_ip(), '192.0.2.0/24')\n}", "other")+
		block("view local {\n expr client_ip() == '127.0.0.1' && name() startsWith 'a.'\n}", "local")+block("", "rest"))
	for name, send := range s.transports() {
		for query, want := range map[string]string{"a.example.": "local", "b.example.": "rest"} {
			if got := remote(send(packed(t, query))); got != want {
				t.Errorf("%s over %s: got %s, want %s", query, name, got, want)
			}
		}
	}
}
