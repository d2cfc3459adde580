package forward

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// A query received over TCP is sent over TCP, unless the options say otherwise.
func TestProtocolToUpstream(t *testing.T) {
	cases := []struct {
		options string
		proto   dns.Proto
		tcp     int
	}{
		{"", dns.UDP, 0}, {"", dns.TCP, 1},
		{"force_tcp", dns.UDP, 1}, {"force_tcp", dns.TCP, 1},
		{"prefer_udp", dns.UDP, 0}, {"prefer_udp", dns.TCP, 0},
	}
	for _, c := range cases {
		up := newFakeUpstream(t, answerWithAddress("1"))
		r := newHarness(t, "forward . "+up.addr+" {\n "+c.options+"\n}")
		m, err := r.ask(query("a.example.", mdns.TypeA), c.proto)
		if _, tcp, _ := up.counts(); brief(m) != "192.0.2.1" || tcp != c.tcp {
			t.Errorf("%q, %s: got error %v, %d queries over TCP and\n%v\nwant 192.0.2.1 and %d over TCP", c.options, c.proto, err, tcp, m, c.tcp)
		}
	}
}

// Many queries share a connection, with replies in any order.
func TestStreamPipelining(t *testing.T) {
	var mu sync.Mutex
	var held []func()
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, func() { send(pack(answerOf(q, "1"))) })
		if len(held) == 20 {
			for i := range held {
				held[len(held)-1-i]()
			}
		}
	})
	r := newHarness(t, "forward . "+up.addr+" {\n force_tcp\n}")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1") })
	}
	all.Wait()
	if _, _, ports := up.counts(); ports != 1 {
		t.Errorf("20 concurrent queries: got %d connections, want 1", ports)
	}
	if n := r.metric(fmt.Sprintf(`coredns_proxy_conn_cache_misses_total{proxy_name="forward",to=%q,proto="tcp"}`, up.addr)); n != "1" {
		t.Errorf("conn_cache_misses_total: got %s, want 1", n)
	}
}

// When the upstream closes a connection, the query is sent over a new one.
func TestClosedConnectionRetried(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n force_tcp\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	up.closeConns()
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")

	var n atomic.Int32
	up.setBehavior(func(q *mdns.Msg, tcp bool, send func([]byte)) {
		if n.Add(1) == 1 {
			go up.closeConns() // instead of an answer
			return
		}
		answerWithAddress("1")(q, tcp, send)
	})
	r.wantAnswer("c.example.", mdns.TypeA, "192.0.2.1")
}

// A reply over a connection may arrive in any number of segments.
func TestStreamSegments(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		for i := range 200 {
			m.Answer = append(m.Answer, rr(fmt.Sprintf("%s 60 IN TXT %d-%0200d", q.Question[0].Name, i, i)))
		}
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr)
	q := query("a.example.", mdns.TypeTXT)
	m, err := r.ask(q, dns.TCP)
	if err != nil || len(m.Answer) != 201 {
		t.Errorf("a.example. TXT: got error %v and %d records, want 201", err, len(m.Answer))
	}
}

// expire closes an idle connection.
func TestExpireClosesConnection(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n force_tcp\n expire 100ms\n read_timeout 80ms\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	chaintest.Eventually(t, "the connection is closed", func() bool {
		up.mu.Lock()
		defer up.mu.Unlock()
		return len(up.conns) == 0
	})
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
}

func TestMaxAgeClosesConnection(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n force_tcp\n expire 50ms\n max_age 50ms\n}")
	n := 0
	chaintest.Eventually(t, "a second connection", func() bool {
		n++
		r.wantAnswer(fmt.Sprintf("n%d.example.", n), mdns.TypeA, "192.0.2.1")
		_, _, ports := up.counts()
		return ports > 1
	})
}

// A testCA is a certificate authority for the tests.
type testCA struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t *testing.T) *testCA {
	a := &testCA{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue writes NAME.pem and NAME.key.
func (a *testCA) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *testCA) file(name string) string { return filepath.Join(a.dir, name) }

// config returns the configuration of a server with a certificate for dns.example
// and 127.0.0.1. If client is true, it requires a client certificate.
func (a *testCA) config(client bool) *tls.Config {
	a.issue("server", &x509.Certificate{DNSNames: []string{"dns.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}}
	if client {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		c.ClientCAs.AddCert(a.cert)
	}
	return c
}

// newTLSUpstream starts an upstream that receives queries over TLS.
func newTLSUpstream(t *testing.T, c *tls.Config) *fakeUpstream {
	f := newFakeUpstream(t, answerWithAddress("1"))
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[conn] = true
			f.mu.Unlock()
			running.Go(func() { f.serveTCP(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); f.closeConns(); running.Wait() })
	return f
}

func TestTLSUpstream(t *testing.T) {
	ca := newTestCA(t)
	ca.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	open, closed := newTLSUpstream(t, ca.config(false)), newTLSUpstream(t, ca.config(true))
	pem := ca.file("ca.pem")
	for _, c := range []struct {
		to      *fakeUpstream
		server  string
		options string
		want    string
	}{
		{open, "", "tls " + pem, "192.0.2.1"}, // by the address
		{open, "%dns.example", "tls " + pem, "192.0.2.1"},
		{open, "", "tls " + pem + "\n tls_servername dns.example", "192.0.2.1"},
		{open, "%other.example", "tls " + pem, "SERVFAIL"},
		{open, "", "tls " + pem + "\n tls_servername other.example", "SERVFAIL"},
		{open, "", "", "SERVFAIL"}, // the machine does not know the authority
		{closed, "", "tls " + pem, "SERVFAIL"},
		{closed, "", "tls " + ca.file("client.pem") + " " + ca.file("client.key") + " " + pem, "192.0.2.1"},
	} {
		host, port, _ := net.SplitHostPort(c.to.addr)
		r := newHarness(t, "forward . tls://"+host+c.server+":"+port+" {\n "+c.options+"\n}")
		for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
			m, err := r.ask(query("a.example.", mdns.TypeA), proto)
			if brief(m) != c.want || (err != nil) != (c.want == "SERVFAIL") {
				t.Errorf("%s %q: %v, got %s, want %s", c.server, c.options, err, brief(m), c.want)
			}
		}
	}
}

// newHTTPSUpstream starts an upstream that receives queries over HTTPS.
func newHTTPSUpstream(t *testing.T, c *tls.Config, do func(w http.ResponseWriter, q *mdns.Msg, r *http.Request)) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			b, err = fromBase64(r.URL.Query().Get("dns"))
		}
		q := new(mdns.Msg)
		if err != nil || q.Unpack(b) != nil || r.Header.Get("Accept") != "application/dns-message" {
			t.Errorf("%s %s %x: %v", r.Method, r.URL, b, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if q.Id != 0 {
			t.Errorf("request with the ID %d, want 0 (RFC 8484 §4.1)", q.Id)
		}
		do(w, q, r)
	}))
	s.EnableHTTP2 = true
	s.TLS = c
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// The time for which an HTTP cache has kept a reply is not part of its TTLs any more (RFC 8484 §5.1).
func TestHTTPSUpstreamAge(t *testing.T) {
	ca := newTestCA(t)
	age := ""
	s := newHTTPSUpstream(t, ca.config(false), func(w http.ResponseWriter, q *mdns.Msg, _ *http.Request) {
		w.Header().Set("Content-Type", "application/dns-message")
		w.Header().Set("Age", age)
		_, _ = w.Write(pack(answerOf(q, "1")))
	})
	r := newHarness(t, "forward . "+s.URL+" {\n tls "+ca.file("ca.pem")+"\n}")
	for _, c := range []struct {
		age  string
		left uint32 // of a minute
	}{{"", 60}, {"40", 20}, {"60", 0}, {"700", 0}, {"99999999999999999999", 0}, {"-1", 60}, {"x", 60}} {
		age = c.age
		m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
		if err != nil || len(m.Answer) != 1 || m.Answer[0].Header().Ttl != c.left {
			t.Errorf("Age %q: got error %v and\n%v\nwant the TTL %d", c.age, err, m, c.left)
		}
	}
}

// At most half of maxMultiplexed queries of a client wait for an upstream over HTTPS; others fail
// at once, and another client is answered.
func TestHTTPSUpstreamBusy(t *testing.T) {
	ca := newTestCA(t)
	release := make(chan struct{})
	s := newHTTPSUpstream(t, ca.config(false), func(w http.ResponseWriter, q *mdns.Msg, _ *http.Request) {
		if q.Question[0].Name != "other.example." {
			<-release
		}
		w.Header().Set("Content-Type", "application/dns-message")
		_, _ = w.Write(pack(answerOf(q, "1")))
	})
	r := newHarness(t, "forward . "+s.URL+" {\n tls "+ca.file("ca.pem")+"\n read_timeout 1m\n max_fails 0\n}")
	r.sendOnce()
	const most = maxMultiplexed / 2
	const n = most + 50
	var clients sync.WaitGroup
	var failed atomic.Int32
	for i := range n {
		clients.Go(func() {
			reply, err := r.ask(query(fmt.Sprintf("n%d.example.", i), mdns.TypeA), dns.UDP)
			switch {
			case errors.Is(err, errBusy):
				failed.Add(1)
			case brief(reply) != "192.0.2.1" && !isTimeout(err): // on a busy machine
				t.Errorf("query %d: got error %v and\n%v\nwant an answer, a timeout or %v", i, err, reply, errBusy)
			}
		})
	}
	chaintest.Eventually(t, "the queries above the limit have failed", func() bool { return failed.Load() == n-most })
	if reply, err := r.askFrom("10.0.0.2", query("other.example.", mdns.TypeA), dns.UDP); brief(reply) != "192.0.2.1" {
		t.Errorf("query of another client: got error %v and\n%v\nwant an answer", err, reply)
	}
	close(release)
	clients.Wait()
	if got := failed.Load(); got != n-most {
		t.Errorf("%d queries: %d failed since too many were waiting, want %d", n, got, n-most)
	}
}

func TestHTTPSUpstream(t *testing.T) {
	ca := newTestCA(t)
	var http2, methods sync.Map
	s := newHTTPSUpstream(t, ca.config(false), func(w http.ResponseWriter, q *mdns.Msg, r *http.Request) {
		http2.Store(r.Proto, true)
		methods.Store(r.Method+r.URL.Path, true)
		w.Header().Set("Content-Type", "application/dns-message")
		switch q.Question[0].Name {
		case "status.example.":
			w.WriteHeader(http.StatusBadGateway)
		case "html.example.":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		case "garbage.example.":
			_, _ = io.WriteString(w, "garbage")
		case "large.example.":
			_, _ = w.Write(make([]byte, 70000))
		case "wrong.example.":
			_, _ = w.Write(packForged(q, func(m *mdns.Msg) { m.Question[0].Name = "b.example." }))
		case "move.example.":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		default:
			_, _ = w.Write(pack(answerOf(q, "1")))
		}
	})
	for _, method := range []string{"", "doh_method GET", "doh_method POST"} {
		r := newHarness(t, "forward . "+s.URL+" {\n tls "+ca.file("ca.pem")+"\n "+method+"\n max_fails 0\n}")
		r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
		for _, name := range []string{"status", "html", "garbage", "large", "wrong", "move"} {
			m, err := r.ask(query(name+".example.", mdns.TypeA), dns.UDP)
			if m.Rcode != mdns.RcodeServerFailure || err == nil {
				t.Errorf("%s.example. A: got error %v and\n%v\nwant SERVFAIL", name, err, m)
			}
		}
		r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	}
	for _, m := range []string{"POST/dns-query", "GET/dns-query"} {
		if _, ok := methods.Load(m); !ok {
			t.Errorf("got no request %s, want one", m)
		}
	}
	if _, ok := http2.Load("HTTP/2.0"); !ok {
		t.Error("got no HTTP/2 request, want one")
	}
	if _, ok := methods.Load("GET/elsewhere"); ok {
		t.Error("got a request to the redirect's target, want none")
	}
}

func fromBase64(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }

// max_idle_conns limits the sockets and connections that are kept.
func TestMaxIdleConns(t *testing.T) {
	release := make(chan struct{})
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		go func() { <-release; send(pack(answerOf(q, "1"))) }()
	})
	r := newHarness(t, "forward . "+up.addr+" {\n force_tcp\n max_idle_conns 1\n read_timeout 800ms\n}")
	u := r.forward[0].set.current.Load().all[0]
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1") })
	}
	open := func() int {
		up.mu.Lock()
		defer up.mu.Unlock()
		return len(up.conns)
	}
	for range 3 { // The upstream may receive as many retries.
		check := u.options().check.request()
		u.send(&attempt{request: check, probe: true, useStream: true, fresh: true, requester: make(checkOutcomes, 2)})
	}
	chaintest.Eventually(t, "there are several", func() bool { return open() > 1 })
	close(release)
	all.Wait()
	chaintest.Eventually(t, "one is held", func() bool { return open() == 1 })
}
