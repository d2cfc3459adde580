package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seamark/seamark/test/bound"

	mdns "github.com/miekg/dns"
)

// The tails and lists that one client may read at the same time.
const clientTails, clientDownloads = 8, 2

// open sends a GET request and returns the reply when its header has come. The test closes
// the body.
func (w *world) open(path string) *http.Response {
	w.t.Helper()
	return w.openFrom("127.0.0.1", path)
}

// openFrom is open for a client at an address.
func (w *world) openFrom(client, path string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), "GET", w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	transport := &http.Transport{DialContext: from.DialContext}
	reply, err := transport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { reply.Body.Close(); transport.CloseIdleConnections() })
	return reply
}

// raw sends text over a connection of its own, and returns what the server sends until it
// closes the connection.
func (w *world) raw(text string) string {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, text) // the server may refuse it before it has read all
	reply, _ := io.ReadAll(conn)      // it may reset the connection then
	return string(reply)
}

// ends fails unless the server ends a reply, with a complete line.
func ends(t *testing.T, body io.Reader) {
	t.Helper()
	ended := make(chan []byte, 1)
	go func() {
		rest, err := io.ReadAll(body)
		if err != nil {
			rest = append(rest, "... "+err.Error()...)
		}
		ended <- rest
	}()
	select {
	case rest := <-ended:
		if len(rest) > 0 && !bytes.HasSuffix(rest, []byte("\n")) {
			t.Errorf("the reply ends with %q, want a complete line", rest[max(0, len(rest)-100):])
		}
	case <-time.After(time.Minute):
		t.Fatal("the reply does not end, want it to end with its plan")
	}
}

// A client that wants tails over a thousand connections keeps neither queries nor another client
// from an answer, and memory is bounded.
func TestThousandConnections(t *testing.T) {
	w := serve(t, stock)
	w.query("web.shop.svc.cluster.local")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 1000
	var accepted, refused atomic.Int32
	var clients sync.WaitGroup
	release := make(chan struct{})
	for range n {
		clients.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
			if errors.Is(err, syscall.ECONNRESET) {
				refused.Add(1) // replaced before Dial returned
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET /v1/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			switch line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); {
			case strings.Contains(line, "200"):
				accepted.Add(1)
			case strings.Contains(line, "503"), line == "" && err == io.EOF, errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
				refused.Add(1) // or replaced by another connection, before or after the request was read
			default:
				t.Errorf("got %q and error %v, want 200, 503 or a reset connection", line, err)
			}
			<-release
		})
	}
	for deadline := time.Now().Add(time.Minute); accepted.Load()+refused.Load() < n && time.Now().Before(deadline); {
		if got := w.query("web.shop.svc.cluster.local"); got != "NOERROR" {
			t.Errorf("query beside the connections: got %s, want NOERROR", got)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// A tail may be replaced by a newer connection, whose request gets its place.
	if accepted.Load() < clientTails || refused.Load() == 0 || accepted.Load()+refused.Load() != n {
		t.Errorf("got %d tails and %d refusals, want at least %d and %d of both", accepted.Load(), refused.Load(), clientTails, n)
	}
	if got := w.openFrom("127.0.0.2", "/v1/tail"); got.StatusCode != 200 {
		t.Errorf("tail of another client: got %s, want 200", got.Status)
	}
	if grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse); grown > 100<<20 {
		t.Errorf("memory grew by %d MB, of both sides of %d connections, want less than 100", grown>>20, n)
	}
	close(release)
	clients.Wait()
	w.eventually("/v1/status", `"summary"`)
}

// Clients that do not read keep neither queries from being answered nor others from a tail.
func TestSlowReaders(t *testing.T) {
	w := serve(t, stock)
	for range clientTails - 1 { // nothing reads them
		if reply := w.open("/v1/tail"); reply.StatusCode != 200 {
			t.Fatalf("tail: got %s, want 200", reply.Status)
		}
	}
	tail := w.open("/v1/tail?rcode=NXDOMAIN")
	if got := w.open("/v1/tail"); got.StatusCode != 503 {
		t.Errorf("tail beside %d others of the client: got %s, want 503", clientTails, got.Status)
	}
	if got := w.openFrom("127.0.0.2", "/v1/tail"); got.StatusCode != 200 {
		t.Errorf("tail of another client: got %s, want 200", got.Status)
	}
	for i := range 3000 {
		if got := w.query("web.shop.svc.cluster.local"); got != "NOERROR" {
			t.Fatalf("query %d: got %s, want NOERROR", i, got)
		}
	}
	names := make(chan string, 1)
	go func() {
		var e struct{ Name string }
		in := json.NewDecoder(tail.Body)
		for e.Name == "" && in.Decode(&e) == nil { // an object with lost may come first
		}
		names <- e.Name
	}()
	// A share of the queries is recorded at this rate.
	got := ""
	for deadline := time.Now().Add(time.Minute); got == "" && time.Now().Before(deadline); {
		w.query("nosuch.shop.svc.cluster.local")
		select {
		case got = <-names:
		default:
		}
	}
	if got != "nosuch.shop.svc.cluster.local." {
		t.Errorf("got %q, want the name that does not exist", got)
	}
}

// A list of records that its client does not read lets the objects change, and ends with its
// plan.
func TestSlowReaderOfRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	w := serve(t, stock)
	var many strings.Builder
	for i := range 40 { // 40,000 SRV records, more than the buffers of the connections hold
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: None}\n", i)
		fmt.Fprintf(&many, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s%d-1, namespace: shop, labels: {kubernetes.io/service-name: s%d}}\naddressType: IPv4\nports:\n", i, i)
		for p := range 10 {
			fmt.Fprintf(&many, "- {name: p%d, port: %d}\n", p, 1000+p)
		}
		many.WriteString("endpoints:\n")
		for e := range 100 {
			fmt.Fprintf(&many, "- {addresses: [10.1.%d.%d]}\n", i, 1+e)
		}
	}
	w.put("many.yaml", many.String())
	w.answers("s39.shop.svc.cluster.local", "NOERROR")
	var lists []net.Conn
	for i := range clientDownloads {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "GET /v1/records HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); !strings.Contains(line, "200") {
			t.Fatalf("list %d: got %q and error %v, want 200", i, line, err)
		}
		lists = append(lists, conn)
	}
	if got := w.open("/v1/records"); got.StatusCode != 503 {
		t.Errorf("list beside two others of the client: got %s, want 503", got.Status)
	}
	w.put("new.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: new, namespace: shop}\nspec: {clusterIP: 10.96.0.77, ports: [{name: http, port: 80}]}\n")
	w.answers("new.shop.svc.cluster.local", "NOERROR")
	if err := w.load(stock); err != nil {
		t.Fatal(err)
	}
	w.eventually("/v1/records?name=new.shop&type=A", `"data":"10.96.0.77"`)
	for i, list := range lists { // which the reload has ended
		if rest, _ := io.ReadAll(list); strings.HasSuffix(string(rest), "0\r\n\r\n") {
			t.Errorf("list %d: it ends as if it were complete", i)
		}
	}
}

// put writes a file of objects.
func (w *world) put(name, text string) {
	w.t.Helper()
	other := filepath.Join(w.t.TempDir(), name)
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(other, filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// answers waits until the answer for a name has a response code.
func (w *world) answers(name, want string) {
	w.t.Helper()
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got = w.query(name); got == want {
			return
		}
	}
	w.t.Fatalf("%s: got %s, want %s", name, got, want)
}

// A reload keeps what is recorded, and ends tails with a complete line. With redact it
// begins anew.
func TestReload(t *testing.T) {
	w := serve(t, stock)
	w.query("secret.example.org")
	w.eventually("/v1/top?by=names", "secret.example.org.")
	tail := w.open("/v1/tail")
	w.query("web.shop.svc.cluster.local")
	if err := w.load(stock); err != nil {
		t.Fatal(err)
	}
	ends(t, tail.Body)
	w.eventually("/v1/top?by=names", "secret.example.org.")
	if got := w.open("/v1/tail"); got.StatusCode != 200 {
		t.Errorf("tail after the reload: got %s, want 200", got.Status)
	}
	if err := w.load(strings.Replace(stock, "admin ADMIN", "admin ADMIN {\n redact\n }", 1)); err != nil {
		t.Fatal(err)
	}
	if _, body := w.request("GET", "/v1/top?by=names"); strings.Contains(body, "secret") {
		t.Errorf("after a reload with redact: got %s, want nothing that was recorded without it", body)
	}
	if err := w.load(". {\n whoami\n}\n"); err != nil {
		t.Fatal(err)
	}
	if reply, err := http.Get(w.url + "/v1/status"); err == nil {
		reply.Body.Close()
		t.Errorf("after a reload without admin: got %s, want a closed address", reply.Status)
	}
}

// A stop does not wait for tails.
func TestStopWithTail(t *testing.T) {
	w := serve(t, stock)
	tail := w.open("/v1/tail")
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.plan.Stop(ctx)
	bound.AtMost(t, "the stop", time.Since(start), 20*time.Second)
	_, _ = io.Copy(io.Discard, tail.Body) // the connection has ended
	if err := w.load(stock); err != nil { // for the cleanup
		t.Fatal(err)
	}
}

// Two blocks share an address if their options are the same.
func TestTwoBlocks(t *testing.T) {
	const second = "example.org {\n admin ADMIN\n acl {\n  block\n }\n}\n"
	w := serve(t, stock+second)
	w.query("web.shop.svc.cluster.local")
	w.query("www.example.org")
	w.eventually("/v1/top?by=names", "web.shop.svc.cluster.local.")
	w.eventually("/v1/top?by=names", "www.example.org.")
	if err := w.load(stock + strings.Replace(second, "ADMIN", "ADMIN {\n redact\n }", 1)); err == nil || !strings.Contains(err.Error(), "another server block has other options of admin") {
		t.Errorf("other options: got error %v, want that they differ", err)
	}
	w.eventually("/v1/status", `"summary"`)
}

// Names are data for JSON and for pages, whatever is in them.
func TestMaliciousNames(t *testing.T) {
	w := serve(t, stock)
	tail := w.open("/v1/tail")
	const name = "<script>alert(1)</script>\x1b[2J\x00\"}\n\xff.example.org."
	packet, err := new(mdns.Msg).SetQuestion("x.example.org.", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	label := strings.TrimSuffix(name, ".example.org.")
	packet = append(append(packet[:12:12], append([]byte{byte(len(label))}, label...)...), packet[14:]...)
	conn, err := net.Dial("udp", w.dns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(tail.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("/v1/top?by=names", `alert`)
	_, top := w.request("GET", "/v1/top?by=names")
	_, cache := w.request("GET", "/v1/cache")
	_, explained := w.request("GET", "/v1/explain?name=%3Cscript%3E%1b.example.org")
	for what, text := range map[string]string{"tail": line, "top": top, "cache": cache, "explain": explained} {
		if strings.ContainsAny(text, "<>\x00\x1b") || !utf8.ValidString(text) || !json.Valid([]byte(text)) {
			t.Errorf("%s: got %q, want valid JSON without markup and control characters", what, text)
		}
	}
}

// Requests that are unusual or hostile.
func TestRequests(t *testing.T) {
	w := serve(t, stock)
	long := strings.Repeat("a", 200_000)
	const end = "Connection: close\r\n\r\n"
	for _, c := range []struct{ request, status, body string }{
		{"GET /v1/status HTTP/1.0\r\n\r\n", "403", "is not served"}, // without a host
		{"GET /v1/status HTTP/1.0\r\nHost: localhost\r\n\r\n", "200", "summary"},
		{"HEAD /v1/status HTTP/1.1\r\nHost: localhost\r\n" + end, "200", ""},
		{"HEAD /v1/tail HTTP/1.1\r\nHost: localhost\r\n" + end, "200", ""},
		{"HEAD /v1/records HTTP/1.1\r\nHost: localhost\r\n" + end, "200", ""},
		{"HEAD /v1/cache HTTP/1.1\r\nHost: localhost\r\n" + end, "200", ""},
		{"GET /v1/records?name=" + long + " HTTP/1.1\r\nHost: localhost\r\n" + end, "431", ""},
		// The limit of 32 KB of status-pages.md.
		{"GET /v1/status?a=" + long[:32_600] + " HTTP/1.1\r\nHost: localhost\r\n" + end, "200", "summary"},
		{"GET /v1/status?a=" + long[:32_800] + " HTTP/1.1\r\nHost: localhost\r\n" + end, "431", ""},
		{"GET /v1/explain?name=" + long[:20_000] + " HTTP/1.1\r\nHost: localhost\r\n" + end, "400", "no domain name"},
		{"GET /v1/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n" + end, "307", ""}, // to a path that does not exist
		{"GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n" + end, "404", ""},
		{"GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n" + end, "404", ""},
		{"GET /v1/status%00 HTTP/1.1\r\nHost: localhost\r\n" + end, "404", ""},
		{"GET /v1/status HTTP/1.1\r\nHost: rebound.example\r\n" + end, "403", "is not served"},
		{"GET /v1/status HTTP/1.1\r\nHost: localhost.evil.example\r\n" + end, "403", "is not served"},
		{"GET /v1/status HTTP/1.1\r\nHost: \r\n" + end, "403", "is not served"},
		// A form of another site can send this, with any content type of forms.
		{"POST /v1/cache/flush?name=. HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n" + end, "403", "X-Seamark"},
		{"POST /v1/cache/flush HTTP/1.1\r\nHost: localhost\r\nX-Seamark: 1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n" + end + "name=.", "400", "want a domain name"},
		{"GET /v1/cache/flush?name=. HTTP/1.1\r\nHost: localhost\r\nX-Seamark: 1\r\n" + end, "405", ""},
		{"OPTIONS /v1/cache/flush HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Headers: x-seamark\r\n" + end, "405", ""},
	} {
		reply := w.raw(c.request)
		head, body, _ := strings.Cut(reply, "\r\n\r\n")
		if _, after, _ := strings.Cut(head, " "); !strings.HasPrefix(after, c.status) || !strings.Contains(body, c.body) {
			t.Errorf("%.120q: got %.300q, want status %s and a body with %q", c.request, reply, c.status, c.body)
		}
		if strings.Contains(head, "Access-Control-Allow") || strings.HasPrefix(c.request, "HEAD") && body != "" {
			t.Errorf("%.120q: got %.300q, want no permission for other sites, and no body for HEAD", c.request, reply)
		}
	}
}
