package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
`

// A world is a server with admin.
type world struct {
	t        *testing.T
	url, dns string
	dir      string
	replacer *strings.Replacer
	plan     *server.Plan
	metrics  *metrics.Registry
	listen   []netip.AddrPort // nil for the addresses of the Corefile
	unready  bool             // load does not wait until the server is ready
	repeater server.Repeater
}

// serve serves a Corefile in which OBJECTS is a folder with the objects, UPSTREAM a server
// that answers every A query with 192.0.2.1, TOKEN the file of a token, and ADMIN a free
// address. more are objects besides.
func serve(t *testing.T, text string, more ...string) *world {
	t.Helper()
	w := newWorld(t, more...)
	if err := w.load(text); err != nil {
		t.Fatal(err)
	}
	return w
}

// newWorld returns a world without a server, for load. The server is stopped at the end.
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}}
	for name, content := range map[string]string{"objects.yaml": objects + strings.Join(more, ""), "token": "secret\n"} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	w.url = "http://" + address
	w.metrics = new(metrics.Registry)
	w.replacer = strings.NewReplacer("OBJECTS", w.dir, "TOKEN", filepath.Join(w.dir, "token"), "ADMIN", address, "UPSTREAM", upstream(t))
	t.Cleanup(w.stop)
	return w
}

// load serves a Corefile in place of the present one.
func (w *world) load(text string) error {
	w.t.Helper()
	c := corefile.ReadText("Corefile", []byte(w.replacer.Replace(text)))
	if c.Err != nil {
		w.t.Fatal(c.Err)
	}
	plan, err := server.NewPlan(c.Servers, server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: w.metrics,
		Listen: w.listen, Repeater: w.repeater,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := plan.Start(ctx, w.plan); err != nil {
		return err
	}
	w.plan, w.dns = plan, plan.Ports()[0].Address.String()
	if w.unready {
		return nil
	}
	return plan.WaitUntilReady(ctx)
}

// stop stops the server at once.
func (w *world) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if w.plan != nil {
		w.plan.Stop(ctx)
		w.plan = nil
	}
}

func upstream(t *testing.T) string {
	ready := make(chan struct{})
	s := &mdns.Server{Addr: "127.0.0.1:0", Net: "udp", NotifyStartedFunc: func() { close(ready) },
		Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
			m := new(mdns.Msg)
			m.SetReply(q)
			record, _ := mdns.NewRR(q.Question[0].Name + " 60 IN A 192.0.2.1")
			m.Answer = []mdns.RR{record}
			_ = w.WriteMsg(m)
		})}
	go func() { _ = s.ListenAndServe() }()
	<-ready
	t.Cleanup(func() { _ = s.Shutdown() })
	return s.PacketConn.LocalAddr().String()
}

// query sends a query for A and returns the response code.
func (w *world) query(name string) string {
	w.t.Helper()
	m := new(mdns.Msg)
	m.SetQuestion(mdns.Fqdn(name), mdns.TypeA)
	reply, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(m, w.dns)
	if err != nil {
		w.t.Fatal(err)
	}
	return mdns.RcodeToString[reply.Rcode]
}

// request sends a request with headers, KEY VALUE each, and returns status and body.
func (w *world) request(method, path string, headers ...string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range headers {
		if h == "" {
			continue
		}
		key, value, _ := strings.Cut(h, " ")
		if r.Header.Set(key, strings.TrimSpace(value)); key == "Host" {
			r.Host = strings.TrimSpace(value)
		}
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// eventually fails unless the page has the text within a minute.
func (w *world) eventually(path, want string) {
	w.t.Helper()
	chaintest.Within(w.t, time.Minute, func() string {
		_, body := w.request("GET", path)
		if strings.Contains(body, want) {
			return ""
		}
		return fmt.Sprintf("GET %s: got %s, want it to contain %s", path, body, want)
	})
}

const stock = `. {
    admin ADMIN
    cache
    kubernetes cluster.local {
        manifests OBJECTS
    }
    forward . UPSTREAM
}
`

func TestAPI(t *testing.T) {
	w := serve(t, stock)
	for name, want := range map[string]string{
		"web.shop.svc.cluster.local": "NOERROR", "wbe.shop.svc.cluster.local": "NXDOMAIN", "www.example.org.shop.svc.cluster.local": "NXDOMAIN", "www.example.org": "NOERROR",
	} {
		if got := w.query(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	w.eventually("/v1/top?by=names", `"key": "web.shop.svc.cluster.local."`)
	w.eventually("/v1/top?by=clients", `"key": "127.0.0.1"`)
	w.eventually("/v1/top?by=nxdomain", `"key": "wbe.shop.svc.cluster.local."`)
	w.eventually("/v1/top?by=waste", `"example": "www.example.org.shop.svc.cluster.local."`)
	w.eventually("/v1/history", `"NXDOMAIN": 2`)
	w.eventually("/v1/status", `"summary": "`)
	w.eventually("/v1/explain?name=wbe.shop.svc.cluster.local", `"nearest": [
    "web.shop.svc.cluster.local."`)
	w.eventually("/v1/records?type=SRV", `"name":"_http._tcp.web.shop.svc.cluster.local."`)
	w.eventually("/v1/cache", `"name": "www.example.org."`)
	if code, body := w.request("POST", "/v1/cache/flush?name=example.org", "X-Seamark 1"); code != 200 || !strings.Contains(body, `"removed": 1`) {
		t.Errorf("flush: got %d %s, want one removed answer", code, body)
	}
	w.eventually("/v1/cache", "[]")
	for _, c := range []struct {
		method, path, header, want string
		code                       int
	}{
		{"GET", "/v1/nosuch", "", "404", 404},
		{"POST", "/v1/status", "", "", 405},
		{"GET", "/v1/top?by=nosuch", "", "by: want one of names, clients", 400},
		{"GET", "/v1/top?by=names&limit=0", "", "limit: want a number of 1..500", 400},
		{"GET", "/v1/explain", "", "name: want the name", 400},
		{"GET", "/v1/explain?name=a&client=x", "", "client: want an IP address", 400},
		{"GET", "/v1/explain?name=a&type=x", "", "want a record type", 400},
		{"GET", "/v1/records?type=x", "", "type: want a record type", 400},
		{"GET", "/v1/tail?client=x", "", "client: want an IP address or a network", 400},
		{"GET", "/v1/tail?slower=x", "", "slower: want a duration", 400},
		{"GET", "/v1/tail?slower=-1s", "", "slower: want a duration", 400},
		{"GET", "/v1/tail?rcode=x", "", "rcode: want a response code such as NXDOMAIN, got \\\"x\\\"", 400},
		{"GET", "/v1/cache?type=x", "", "type: want a record type such as SRV or TYPE65, got \\\"x\\\"", 400},
		{"GET", "/cache?type=x", "", "type: want a record type such as SRV or TYPE65", 400},
		{"POST", "/v1/cache/flush?name=.", "", "header X-Seamark", 403},
		{"POST", "/v1/cache/flush", "X-Seamark 1", "name: want a domain name", 400},
		{"GET", "/v1/status", "Host evil.example", "is not served", 403},
		{"GET", "/v1/status", "Host localhost:8053", "summary", 200},
		{"GET", "/v1/status", "Host [::1]", "summary", 200},
		{"GET", "/v1/status", "Sec-Fetch-Site same-origin", "summary", 200},
		{"GET", "/v1/status", "Sec-Fetch-Site none", "summary", 200},
		{"GET", "/v1/status", "Sec-Fetch-Site cross-site", "a page of another site", 403},
		{"GET", "/", "Sec-Fetch-Site cross-site", "a page of another site", 403},
		{"GET", "/v1/top?by=names", "Sec-Fetch-Site same-site", "a page of another site", 403},
		{"POST", "/v1/cache/flush", "Sec-Fetch-Site cross-site", "a page of another site", 403},
	} {
		if code, body := w.request(c.method, c.path, c.header); code != c.code || !strings.Contains(body, strings.TrimPrefix(c.want, "404")) {
			t.Errorf("%s %s %s: got %d %s, want %d and %s", c.method, c.path, c.header, code, body, c.code, c.want)
		}
	}
}

func TestToken(t *testing.T) {
	w := serve(t, ". {\n admin ADMIN {\n  token TOKEN\n }\n whoami\n}\n")
	for header, want := range map[string]int{
		"X none": 401, "Authorization Bearer secret": 200, "Authorization Bearer other": 401, "Authorization Basic YTpzZWNyZXQ=": 200, "Authorization Basic YTpi": 401,
	} {
		if code, body := w.request("GET", "/v1/status", header); code != want {
			t.Errorf("%s: got %d %s, want %d", header, code, body, want)
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "token"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := w.request("GET", "/v1/status", "Authorization Bearer other"); code != 200 {
		t.Errorf("replaced token: got %d, want 200", code)
	}
	if err := os.Remove(filepath.Join(w.dir, "token")); err != nil {
		t.Fatal(err)
	}
	if code, _ := w.request("GET", "/v1/status", "Authorization Bearer "); code != 401 {
		t.Errorf("removed token: got %d, want 401", code)
	}
}

func TestTail(t *testing.T) {
	w := serve(t, stock)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", w.url+"/v1/tail?rcode=NXDOMAIN", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r) // returns when the tail has begun
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	w.query("web.shop.svc.cluster.local")
	w.query("wbe.shop.svc.cluster.local")
	var e struct{ Name, RCode, Source string }
	if err := json.NewDecoder(reply.Body).Decode(&e); err != nil || e.Name != "wbe.shop.svc.cluster.local." || e.RCode != "NXDOMAIN" || e.Source != "kubernetes" {
		t.Errorf("got %+v and error %v, want the NXDOMAIN for wbe by kubernetes", e, err)
	}
}

func TestRedact(t *testing.T) {
	w := serve(t, strings.Replace(stock, "admin ADMIN", "admin ADMIN {\n redact\n }", 1))
	w.query("secret.www.example.org")
	w.query("secret.example.org.shop.svc.cluster.local")
	w.query("web.shop.svc.cluster.local")
	w.eventually("/v1/top?by=names", `"key": "web.shop.svc.cluster.local."`)
	w.eventually("/v1/top?by=names", `"key": "(redacted).example.org."`)
	w.eventually("/v1/top?by=names", `"key": "(redacted).shop.svc.cluster.local."`)
	w.eventually("/v1/top?by=clients", `"key": "127.0.0.0"`)
	if _, body := w.request("GET", "/v1/top?by=names"); strings.Contains(body, "secret") {
		t.Errorf("got %s, want no redacted label", body)
	}
}

// With redact the names that pods search for are hidden whatever the answer is: that of autopath, that of an upstream
// behind the cluster's zone, or a failure. Existing names of the cluster are shown.
func TestRedactSearchesWithAnswers(t *testing.T) {
	const endpoints = `---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1], hostname: db-0}]
`
	for name, c := range map[string]struct{ above, option, upstream, rcode string }{
		"autopath":        {"autopath @query", "", "UPSTREAM", "NOERROR"},
		"an upstream":     {"", "fallthrough", "UPSTREAM", "NOERROR"},
		"upstream failed": {"", "fallthrough", "127.0.0.1:1", "SERVFAIL"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, ". {\n admin ADMIN {\n redact\n }\n cache\n "+c.above+"\n kubernetes cluster.local {\n manifests OBJECTS\n "+c.option+
				"\n }\n forward . "+c.upstream+"\n}\nshop {\n template ANY ANY {\n rcode NXDOMAIN\n }\n}\n", endpoints)
			for range 2 { // the second one from the cache
				if got := w.query("secret.example.org.shop.svc.cluster.local"); got != c.rcode {
					t.Errorf("got %s, want %s", got, c.rcode)
				}
				w.query("secret.example.org.svc.cluster.local")
				w.query("db-0.db.shop.svc.cluster.local")
				w.query("web.shop.svc.cluster.local")
			}
			w.eventually("/v1/top?by=names", `"key": "db-0.db.shop.svc.cluster.local."`)
			w.eventually("/v1/top?by=names", `"key": "web.shop.svc.cluster.local."`)
			for _, list := range traffic.ListNames {
				if _, body := w.request("GET", "/v1/top?by="+list); strings.Contains(body, "secret") {
					t.Errorf("by=%s: got %s, want no redacted label", list, body)
				}
			}
			w.eventually("/v1/top?by=names", `"key": "(redacted).shop.svc.cluster.local."`)
		})
	}
}

// Server blocks that share their cached answers have each answer in the list once.
func TestCachedAnswersOfSharedScope(t *testing.T) {
	const block = " {\n bind 127.0.0.1\n admin ADMIN\n cache\n forward . UPSTREAM\n}\n"
	w := newWorld(t)
	w.listen = nil
	one, two := freeport.Reserve(t), freeport.Reserve(t)
	if err := w.load(".:" + one + block + ".:" + two + block + "example.com:" + one + block); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one.example.org", "two.example.org", "one.example.com"} {
		w.query(name)
		w.eventually("/v1/cache", `"name": "`+name+`."`)
		if _, body := w.request("GET", "/v1/cache"); strings.Count(body, `"name": "`+name+`."`) != 1 {
			t.Errorf("got %s, want %s once", body, name)
		}
	}
}

// Zone transfers are explained on a running server only: explain's own has no transfer.
func TestExplainTransfer(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(db, []byte("@ 60 SOA ns host 1 2 3 4 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, ". {\n admin ADMIN\n transfer cluster.local example.org {\n  to 192.0.2.99\n }\n file "+db+" example.org\n kubernetes cluster.local {\n  manifests OBJECTS\n }\n}\n")
	for query, want := range map[string]string{
		"type=AXFR&name=cluster.local":                        "REFUSED by transfer in zone .: the option to does not permit 127.0.0.1",
		"type=AXFR&name=cluster.local&client=192.0.2.99":      "REFUSED by transfer in zone .: zone transfers need TCP",
		"type=AXFR&name=none.cluster.local&client=192.0.2.99": "REFUSED by transfer in zone .: zone transfers need TCP",
		"type=AXFR&name=in-addr.arpa&client=192.0.2.99":       "the name is in none of the zones of the directive",
		"type=IXFR&name=example.org&client=192.0.2.99":        "FORMERR by transfer in zone .: the query has no SOA record of the client's version",
		"type=IXFR&name=none.cluster.local&client=192.0.2.99": "no directive has a zone with this name",
	} {
		if code, body := w.request("GET", "/v1/explain?"+query); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %s, want %q", query, code, body, want)
		}
	}
}

// The list denied has what policy denies, and what it only audits.
func TestTopDenied(t *testing.T) {
	for _, mode := range []string{"", "audit"} {
		w := serve(t, `.:53 {
			admin ADMIN
			policy {
				group everyone {
					allow good.example
					deny *
				}
				`+mode+`
			}
			kubernetes cluster.local {
				manifests OBJECTS
				pods verified
			}
			forward . UPSTREAM
		}`, `---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: shop}
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]}
`)
		w.query("good.example.")
		w.query("bad.example.")
		w.eventually("/v1/top?by=denied", `"key": "bad.example."`)
		if _, body := w.request("GET", "/v1/top?by=denied"); strings.Contains(body, "good.example.") {
			t.Errorf("mode %q: got %s, want bad.example. alone", mode, body)
		}
		w.eventually("/top?by=denied", "bad.example.")
		w.stop()
	}
}

// auditing has a policy that only audits.
const auditing = `.:53 {
	admin ADMIN
	policy {
		audit
		group everyone {
			unknown
			deny *
			services default
		}
	}
	kubernetes cluster.local {
		manifests OBJECTS
		pods verified
	}
	forward . UPSTREAM
}
`

// The page audits has what was queried, unless names are hidden.
func TestAudits(t *testing.T) {
	w := serve(t, auditing)
	w.query("bad.example.")
	w.query("web.shop.svc.cluster.local.")
	for _, want := range []string{`"bad.example": 1`, `"shop": 1`, `"name": "everyone"`} {
		if status, body := w.request("GET", "/v1/audits"); status != 200 || !strings.Contains(body, want) {
			t.Errorf("got %d %s, want %s", status, body, want)
		}
	}
	w.stop()

	w = serve(t, strings.Replace(auditing, "admin ADMIN", "admin ADMIN {\n redact\n }", 1))
	w.query("bad.example.")
	if status, body := w.request("GET", "/v1/audits"); status != 403 || strings.Contains(body, "bad.example") {
		t.Errorf("with redact: got %d %s, want 403 without names", status, body)
	}
}
