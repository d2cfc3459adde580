package directive

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/web"
)

// A treeHandler is a handler with a tree of names.
type treeHandler struct{ tree string }

func (*treeHandler) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

func (k *treeHandler) WriteTree(w io.Writer) error {
	if k.tree == "" {
		return errors.New("client disconnected")
	}
	_, err := io.WriteString(w, k.tree)
	return err
}

// request requests a page from the client address.
func request(t *testing.T, page http.Handler, method, path, client string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = client
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Result()
}

func TestKubednsReadiness(t *testing.T) {
	h, other := &readyHandler{}, &readyHandler{}
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", h, other)
	wantReadiness := func(code int, body string) {
		t.Helper()
		if gotCode, got := r.page("/readiness"); gotCode != code || got != body {
			t.Errorf("/readiness: got %d %q, want %d %q", gotCode, got, code, body)
		}
	}
	wantReadiness(503, "not ready: test\n")
	h.ready.Store(true)
	wantReadiness(503, "not ready: test\n")
	other.ready.Store(true)
	wantReadiness(200, "ok\n")
	h.ready.Store(false)
	wantReadiness(200, "ok\n")

	// After a reload with new handlers the page still reports ready.
	b, err := plan(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", &readyHandler{})
	if err != nil {
		t.Fatal(err)
	}
	next := config.NewStart(context.Background(), r.start)
	if err := b.Started(next); err != nil {
		t.Fatal(err)
	}
	b.Swapped()
	next.Commit()
	defer next.Stop()
	r.start = next
	wantReadiness(200, "ok\n")
}

// If several server blocks share an address, all must be ready, and the page shows
// the names of all. Other clients may read it only if all blocks allow it.
func TestKubednsStatusSeveralBlocks(t *testing.T) {
	start := config.NewStart(context.Background(), nil)
	defer start.Stop()
	h := &readyHandler{}
	for _, text := range []string{"cache any", "cache local"} {
		b, err := plan(t, ".:53 {\nkubedns_status 127.0.0.1:0 {\n"+text+"\n}\n}", h, &treeHandler{`{"a":1}`})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Started(start); err != nil {
			t.Fatal(err)
		}
		b.Swapped()
	}
	page, _ := config.Keep(start, config.InPlan{Plan: start, Key: "127.0.0.1:0"}, func() (*statusPage, error) { return nil, errors.New("the plan has no page") })
	site, err := web.Open(start, "127.0.0.1:0", web.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, site.Addr(), "/readiness"); code != 503 {
		t.Errorf("/readiness: got %d, want 503", code)
	}
	if _, body := get(t, site.Addr(), "/cache"); body != "[{\"a\":1},\n{\"a\":1}]" {
		t.Errorf("/cache: got %q, want an array of both trees", body)
	}
	if got := request(t, http.HandlerFunc(page.cache), "GET", "/cache", client); got.StatusCode != 403 {
		t.Errorf("/cache from %s with cache local in one block: got %s, want 403", client, got.Status)
	}
}

// The tree shows the Services of all namespaces. kube-dns shows it to every client
// that can reach the port.
func TestKubednsCacheClients(t *testing.T) {
	for _, c := range []struct {
		option, client string
		code           int
	}{
		{"", "127.0.0.1:4711", 200}, {"", "127.8.9.10:4711", 200}, {"", "[::1]:4711", 200}, {"", "[::ffff:127.0.0.1]:4711", 200},
		{"", client, 403}, {"", "[fd00::1]:4711", 403}, {"", "[fe80::1%eth0]:4711", 403}, {"", "0.0.0.0:4711", 403}, {"", "@", 403}, {"", "", 403},
		{"{\ncache local\n}", client, 403}, {"{\ncache local\n}", "127.0.0.1:4711", 200},
		{"{\ncache any\n}", client, 200}, {"{\ncache any\n}", "[fd00::1]:4711", 200},
	} {
		r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0 "+c.option+"\n}", &treeHandler{`{"a":1}`})
		page, _ := config.Keep(r.start, config.InPlan{Plan: r.start, Key: "127.0.0.1:0"}, func() (*statusPage, error) { return nil, errors.New("the plan has no page") })
		got := request(t, http.HandlerFunc(page.cache), "GET", "/cache", c.client)
		body, _ := io.ReadAll(got.Body)
		if got.StatusCode != c.code || (string(body) == `{"a":1}`) != (c.code == 200) {
			t.Errorf("%s, client %q: got %s %q, want %d", c.option, c.client, got.Status, body, c.code)
		}
		if c.code == 200 && got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s, client %q: got headers %s, want Content-Type application/json", c.option, c.client, got.Header)
		}
		if want := "the Corefile option \"cache any\" allows other clients\n"; c.code == 403 && !strings.HasSuffix(string(body), want) {
			t.Errorf("%s, client %q: got %q, want the suffix %q", c.option, c.client, body, want)
		}
		if got := request(t, http.HandlerFunc(page.readiness), "GET", "/readiness", c.client); got.StatusCode != 200 {
			t.Errorf("%s, client %q: /readiness: got %s, want 200", c.option, c.client, got.Status)
		}
	}
}

// kube-dns serves profiles of the process at the same port, and its metrics and this
// page at both ports.
func TestKubednsStatusNoProfiles(t *testing.T) {
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0 {\ncache any\n}\nprometheus localhost:0\n}")
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile", "/debug/pprof/cmdline", "/debug/vars", "/metrics", "/", "/cache/"} {
		if code, body := r.page(path); code != 404 {
			t.Errorf("%s: got %d %q, want 404", path, code, body)
		}
	}
}

func TestKubednsCacheWithoutKubernetes(t *testing.T) {
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}")
	if code, body := r.page("/cache"); code != 200 || body != "{\n\t\"ChildNodes\": {},\n\t\"Entries\": {}\n}" {
		t.Errorf("/cache: got %d %q, want 200 and an empty tree", code, body)
	}
	// The page ends if the client disconnects.
	r = run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", &treeHandler{`{}`}, &treeHandler{}, &treeHandler{`{"more":1}`})
	if _, body := r.page("/cache"); body != "[{},\n" {
		t.Errorf("/cache with a write error: got %q, want %q", body, "[{},\n")
	}
}

func TestKubednsStatusMethods(t *testing.T) {
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", &treeHandler{`{"a":1}`})
	site, err := web.Open(r.start, "127.0.0.1:0", web.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/readiness", "/cache"} {
		for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 405} {
			request, err := http.NewRequest(method, "http://"+site.Addr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(got.Body)
			got.Body.Close()
			if got.StatusCode != want || want == 405 && got.Header.Get("Allow") != "GET, HEAD" || method == "HEAD" && len(body) > 0 {
				t.Errorf("%s %s: got %s %s %q, want %d", method, path, got.Status, got.Header, body, want)
			}
		}
	}
}

func TestKubednsStatusErrors(t *testing.T) {
	wantErrors(t, ".:53 {\nkubedns_status {\ncache all\n}\n}", `Corefile:3: kubedns_status: cache: want local or any, got "all"`)
	wantErrors(t, ".:53 {\nkubedns_status {\ncache\n}\n}", `Corefile:3: kubedns_status: cache: got no arguments, usage: cache local|any`)
	wantErrors(t, ".:53 {\nkubedns_status 8081\n}", `Corefile:2: kubedns_status: want an address and a port such as :8080, got "8081"`)
	wantErrors(t, ".:53 {\nkubedns_status\nkubedns_status :8082\n}", `Corefile:3: kubedns_status: already given at Corefile:2, and can be given once in a server block`)
}
