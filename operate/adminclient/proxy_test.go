package adminclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// serveProxy serves a proxy to a server, and returns it.
func serveProxy(t *testing.T, pages http.HandlerFunc) *Proxy {
	t.Helper()
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	t.Setenv(TokenVariable, "secret")
	c, err := New(server.URL, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p := c.NewProxy()
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	p.Host = front.Listener.Addr().String()
	return p
}

// browser returns a client with cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, Timeout: 10 * time.Second}
}

func fetch(t *testing.T, c *http.Client, method, target string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	reply, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// The URL works once. The browser that has opened it, and no other client, gets the pages,
// without the cookie and with the token on the way to the server.
func TestProxy(t *testing.T) {
	p := serveProxy(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", "Basic")
		fmt.Fprintf(w, "%s %s of %s, %q, cookie %q", r.Method, r.URL, r.Host, r.Header.Get("Authorization"), r.Header.Get("Cookie"))
	})
	base := "http://" + p.Host
	first, other := browser(t), browser(t)
	refused := func(name string, c *http.Client, method, target string, headers ...string) {
		t.Helper()
		if code, body := fetch(t, c, method, target, headers...); code != 403 || strings.Contains(body, "secret") {
			t.Errorf("%s: got %d %s, want 403", name, code, body)
		}
	}
	refused("without the cookie", other, "GET", base+"/v1/status")
	refused("a wrong secret", other, "GET", base+"/open/AAAAAAAAAAAAAAAAAAAAAAAAAA")
	refused("an empty secret", other, "GET", base+"/open/")
	refused("a wrong cookie", other, "GET", base+"/", "Cookie", proxyCookie+"=x")
	refused("an empty cookie", other, "GET", base+"/", "Cookie", proxyCookie+"=")
	refused("POST of the URL", other, "POST", p.URL())
	refused("another host", other, "GET", p.URL(), "Host", "rebound.example")
	if code, body := fetch(t, first, "GET", p.URL()); code != 200 || !strings.Contains(body, `GET / of 127.0.0.1:`) {
		t.Fatalf("the URL: got %d %s, want the page /", code, body)
	}
	refused("the URL again", other, "GET", p.URL())
	if code, _ := fetch(t, first, "GET", p.URL()); code != 200 {
		t.Errorf("the URL again by the same browser: got %d, want 200", code)
	}
	code, body := fetch(t, first, "POST", base+"/v1/cache/flush?name=.", "X-Seamark", "1", "Authorization", "Bearer of-the-browser")
	if want := `"Bearer secret", cookie ""`; code != 200 || !strings.Contains(body, "POST /v1/cache/flush?name=.") || !strings.Contains(body, want) {
		t.Errorf("with the cookie: got %d %s, want the request with %s", code, body, want)
	}
	refused("another host with the cookie", first, "GET", base+"/", "Host", "localhost:1")
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Jar.Cookies(u)) != 1 {
		t.Fatalf("got the cookies %v, want one", first.Jar.Cookies(u))
	}
	reply, err := first.Get(base + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if reply.Header.Get("WWW-Authenticate") != "" {
		t.Error("got WWW-Authenticate, want none: the browser cannot know the token")
	}
}

// The cookie is not readable by scripts, and not sent by other sites.
func TestProxyCookie(t *testing.T) {
	p := serveProxy(t, func(http.ResponseWriter, *http.Request) {})
	c := browser(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	reply, err := c.Get(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if got := reply.Header.Get("Set-Cookie"); !strings.Contains(got, "; HttpOnly; SameSite=Lax") || !strings.Contains(got, "Path=/") {
		t.Errorf("got the cookie %q, want HttpOnly, SameSite and a path", got)
	}
}

// A tail passes the proxy line by line, and errors of the server are shown.
func TestProxyStreams(t *testing.T) {
	next := make(chan struct{})
	p := serveProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/tail" {
			return
		}
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		select {
		case <-next:
		case <-r.Context().Done():
		}
		fmt.Fprintln(w, "two")
	})
	c := browser(t)
	fetch(t, c, "GET", p.URL())
	reply, err := c.Get("http://" + p.Host + "/v1/tail")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var line [4]byte
	if _, err := io.ReadFull(reply.Body, line[:]); err != nil || string(line[:]) != "one\n" {
		t.Fatalf("got %q and error %v, want the first line before the second is sent", line, err)
	}
	close(next)
	if rest, err := io.ReadAll(reply.Body); string(rest) != "two\n" || err != nil {
		t.Errorf("got %q and error %v, want the second line", rest, err)
	}
}

func TestProxyServerAway(t *testing.T) {
	t.Setenv(TokenVariable, "")
	c, err := New("localhost:8053", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDial("kube-system/dns port 8053", func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("forwarding failed")
	})
	p := c.NewProxy()
	front := httptest.NewServer(p)
	defer front.Close()
	p.Host = front.Listener.Addr().String()
	if code, body := fetch(t, browser(t), "GET", p.URL()); code != 502 || !strings.Contains(body, "reading from kube-system/dns port 8053: ") || !strings.Contains(body, "forwarding failed") {
		t.Errorf("got %d %s, want 502 and the reason", code, body)
	}
}
