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
	"github.com/seamark/seamark/internal/web"
)

// A knows is a handler that knows names.
type knows struct{ tree string }

func (*knows) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

func (k *knows) WriteTree(w io.Writer) error {
	if k.tree == "" {
		return errors.New("nobody reads on")
	}
	_, err := io.WriteString(w, k.tree)
	return err
}

// status asks for a page as a client of that address.
func status(t *testing.T, page http.Handler, method, path, client string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = client
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Result()
}

func TestKubednsReadiness(t *testing.T) {
	h, other := &gets{}, &gets{}
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", h, other)
	is := func(code int, body string) {
		t.Helper()
		if gotCode, got := r.page("/readiness"); gotCode != code || got != body {
			t.Errorf("got %d %q, want %d %q", gotCode, got, code, body)
		}
	}
	is(503, "not ready: test\n")
	h.ready.Store(true)
	is(503, "not ready: test\n")
	other.ready.Store(true)
	is(200, "ok\n")
	h.ready.Store(false)
	is(200, "ok\n")

	// Nor does a reload take it back, whose handlers are new.
	b, err := plan(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", &gets{})
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
	is(200, "ok\n")
}

// All server blocks that give an address have to be ready, and their names are
// shown together: to everybody only if all say so.
func TestKubednsStatusOfSeveralBlocks(t *testing.T) {
	start := config.NewStart(context.Background(), nil)
	defer start.Stop()
	h := &gets{}
	for _, text := range []string{"cache any", "cache local"} {
		b, err := plan(t, ".:53 {\nkubedns_status 127.0.0.1:0 {\n"+text+"\n}\n}", h, &knows{`{"a":1}`})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Started(start); err != nil {
			t.Fatal(err)
		}
		b.Swapped()
	}
	page, _ := config.Keep(start, statusKey{start, "127.0.0.1:0"}, func() (*statusPage, error) { return nil, errors.New("the plan has no page") })
	site, err := web.Open(start, "127.0.0.1:0", web.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, site.Addr(), "/readiness"); code != 503 {
		t.Errorf("got %d, want 503", code)
	}
	if _, body := get(t, site.Addr(), "/cache"); body != "[{\"a\":1},\n{\"a\":1}]" {
		t.Errorf("got %q, want an array", body)
	}
	if got := status(t, http.HandlerFunc(page.cache), "GET", "/cache", client); got.StatusCode != 403 {
		t.Errorf("one block says local: got %s", got.Status)
	}
}

// The tree shows which Services there are in all namespaces. In kube-dns
// everybody who can reach the port can read it.
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
		r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0 "+c.option+"\n}", &knows{`{"a":1}`})
		page, _ := config.Keep(r.start, statusKey{r.start, "127.0.0.1:0"}, func() (*statusPage, error) { return nil, errors.New("the plan has no page") })
		got := status(t, http.HandlerFunc(page.cache), "GET", "/cache", c.client)
		body, _ := io.ReadAll(got.Body)
		if got.StatusCode != c.code || (string(body) == `{"a":1}`) != (c.code == 200) {
			t.Errorf("%s, client %q: got %s %q, want %d", c.option, c.client, got.Status, body, c.code)
		}
		if c.code == 200 && got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s", got.Header)
		}
		if want := "the Corefile option \"cache any\" allows other clients\n"; c.code == 403 && !strings.HasSuffix(string(body), want) {
			t.Errorf("%s, client %q: got %q, want the end %q", c.option, c.client, body, want)
		}
		if got := status(t, http.HandlerFunc(page.readiness), "GET", "/readiness", c.client); got.StatusCode != 200 {
			t.Errorf("readiness is for everybody, got %s", got.Status)
		}
	}
}

// In kube-dns profiles of the process hang on the same port, for everybody, and
// its metrics and this page at each other's.
func TestKubednsStatusHasNoProfiles(t *testing.T) {
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0 {\ncache any\n}\nprometheus localhost:0\n}")
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile", "/debug/pprof/cmdline", "/debug/vars", "/metrics", "/", "/cache/"} {
		if code, body := r.page(path); code != 404 {
			t.Errorf("%s: got %d %q", path, code, body)
		}
	}
}

func TestKubednsCacheWithoutKubernetes(t *testing.T) {
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}")
	if code, body := r.page("/cache"); code != 200 || body != "{\n\t\"ChildNodes\": {},\n\t\"Entries\": {}\n}" {
		t.Errorf("got %d %q", code, body)
	}
	// A client that goes away ends it.
	r = run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", &knows{`{}`}, &knows{}, &knows{`{"more":1}`})
	if _, body := r.page("/cache"); body != "[{},\n" {
		t.Errorf("got %q", body)
	}
}

func TestKubednsStatusMethods(t *testing.T) {
	r := run(t, ".:53 {\nkubedns_status 127.0.0.1:0\n}", &knows{`{"a":1}`})
	site, err := web.Open(r.start, "127.0.0.1:0", web.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/readiness", "/cache"} {
		for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 405} {
			request, err := http.NewRequest(method, "http://"+site.Addr().String()+path, nil)
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
				t.Errorf("%s %s: got %s %s %q", method, path, got.Status, got.Header, body)
			}
		}
	}
}

func TestKubednsStatusErrors(t *testing.T) {
	wrong(t, ".:53 {\nkubedns_status {\ncache all\n}\n}", `Corefile:3: kubedns_status: cache: want local or any, got "all"`)
	wrong(t, ".:53 {\nkubedns_status {\ncache\n}\n}", `Corefile:3: kubedns_status: cache: want 1 argument, got 0`)
	wrong(t, ".:53 {\nkubedns_status 8081\n}", `Corefile:2: kubedns_status: want an address and a port such as :8080, got "8081"`)
	wrong(t, ".:53 {\nkubedns_status\nkubedns_status :8082\n}", `Corefile:3: kubedns_status: already given at Corefile:2, and can be given once in a server block`)
}
