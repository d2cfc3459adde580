package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
)

func page(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

func get(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// An address stays open during a reload. Its pages change when the new plan starts to
// serve. It is closed when no plan uses it.
func TestReload(t *testing.T) {
	const addr = "127.0.0.1:0"
	first := config.NewStart(context.Background(), nil)
	old, err := Open(first, addr, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	old.Handle("/a", page("one"))
	if code, _ := get(t, old.Addr(), "/a"); code != 404 {
		t.Errorf("before Show: got %d, want 404", code)
	}
	old.Show()
	second := config.NewStart(context.Background(), first)
	site, err := Open(second, addr, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Open(second, addr, TLS{}); again != site {
		t.Errorf("second Open(%s) of a plan: got another site, want the same", addr)
	}
	site.Handle("/a", page("two"))
	site.ShowFirst()
	if _, body := get(t, old.Addr(), "/a"); body != "one" {
		t.Errorf("before the swap: got %q, want one", body)
	}
	site.Show()
	second.Commit()
	if _, body := get(t, old.Addr(), "/a"); body != "two" {
		t.Errorf("after the swap: got %q, want two", body)
	}
	if code, _ := get(t, old.Addr(), "/b"); code != 404 {
		t.Errorf("no such page: got %d, want 404", code)
	}
	third := config.NewStart(context.Background(), second)
	third.Commit()
	if resp, err := http.Get("http://" + old.Addr() + "/a"); err == nil {
		resp.Body.Close()
		t.Errorf("%s, used by no plan: got a reply, want an error", old.Addr())
	}
}

// The connections of pages are kept over reloads: they have their metric, which ends together with
// their share of the descriptors, until no plan has pages.
func TestReloadKeepsConnections(t *testing.T) {
	const series = `seamark_transport_connections{address="pages"} `
	start := config.NewStart(context.Background(), nil)
	registry := start.Metrics
	metric := func() (value string) {
		var text strings.Builder
		_ = registry.WriteText(&text)
		_, value, _ = strings.Cut(text.String(), series)
		value, _, _ = strings.Cut(value, "\n")
		return value
	}
	for reload := range 4 {
		site, err := Open(start, "127.0.0.1:0", TLS{})
		if err != nil {
			t.Fatal(err)
		}
		site.Handle("/a", page("one"))
		site.Show()
		start.Commit()
		conn, err := net.Dial("tcp", site.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		if n, _ := conn.Read(make([]byte, 1000)); err != nil || n == 0 {
			t.Errorf("after %d reloads: got error %v and %d bytes, want a reply", reload, err, n)
		}
		if got, want := metric(), strconv.Itoa(reload+1); got != want {
			t.Errorf("after %d reloads: got %s%q, want %q", reload, series, got, want)
		}
		start = config.NewStart(context.Background(), start)
	}
	start.Commit()
	if got := metric(); got != "" {
		t.Errorf("without pages: got %s%s, want no such series", series, got)
	}
}

// The server does not wait for the rest of a request body.
func TestIncompleteBody(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	start := config.NewStart(context.Background(), nil)
	defer start.Stop()
	site, err := Open(start, "127.0.0.1:0", TLS{})
	if err != nil {
		t.Fatal(err)
	}
	site.Handle("/a", page("one"))
	site.Show()
	conn, err := net.Dial("tcp", site.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	reply, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(reply), "one") {
		t.Errorf("got %q, error %v; want a reply with the page, then EOF", reply, err)
	}
}

func TestOpenAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Open(config.NewStart(context.Background(), nil), ln.Addr().String(), TLS{})
	if want := "listening on " + ln.Addr().String() + ": address already in use: stop the process that uses it or choose another address"; err == nil || err.Error() != want {
		t.Errorf("Open(%s): got %v, want %s", ln.Addr(), err, want)
	}
}

func TestParseAddress(t *testing.T) {
	for text, ok := range map[string]bool{":8080": true, "localhost:9153": true, "[::1]:0": true, ":http": true, "localhost:http": true, "8080": false, ":": false, ":nosuch": false, ":70000": false, ":-1": false} {
		if err := ParseAddress(text); (err == nil) != ok {
			t.Errorf("ParseAddress(%q): got %v, want success %v", text, err, ok)
		}
	}
}
