package adminclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/observe/inventory"
)

// client returns a client of a server, with a time limit.
func client(t *testing.T, timeout time.Duration, pages http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	c, err := New(server.URL+"/below/", timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"localhost:8053":                   "localhost:8053",
		"http://localhost:8053":            "localhost:8053",
		"https://dns.example.org/admin/":   "dns.example.org/admin",
		"[::1]:8053":                       "[::1]:8053",
		"unix:/run/admin.sock":             "unix:/run/admin.sock",
		"unix:relative":                    "unix:relative",
		"unix:":                            "error want a URL, HOST:PORT or unix:PATH",
		"":                                 "error want a URL",
		"localhost":                        "error want a URL",
		"ftp://localhost":                  "error want a URL",
		":8053":                            "error want a URL",
		"http://user:secret@localhost":     "error http://(hidden)@localhost has a user or parameters",
		"http://localhost?token=x":         "error http://localhost?(hidden) has a user or parameters",
		"http://localhost:8053/#fragment":  "error http://localhost:8053/#fragment has a user or parameters",
		"http://local host":                "error want a URL",
		"https://[fe80::1%25eth0]:8053/ui": "[fe80::1%eth0]:8053/ui",
	} {
		c, err := New(address, time.Second)
		got := ""
		if err != nil {
			got = "error " + err.Error()
		} else {
			got = c.Address()
		}
		if err == nil && got != want || err != nil && (!strings.HasPrefix(want, "error ") || !strings.HasPrefix(got, want)) {
			t.Errorf("New(%q): got %s, want %s", address, got, want)
		}
	}
}

// Requests have the path below that of the address, the token of the environment or of a file,
// and the header that POST needs.
func TestRequests(t *testing.T) {
	t.Setenv(TokenVariable, " from-environment ")
	var got string
	c := client(t, 10*time.Second, func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.String() + " " + r.Header.Get("Authorization") + " " + r.Header.Get("X-Seamark")
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, `{"removed": 3, "member of a later version": {}}`)
	})
	n, err := c.Flush(t.Context(), "a b.example.")
	if want := "POST /below/v1/cache/flush?name=a+b.example. Bearer from-environment 1"; n != 3 || err != nil || got != want {
		t.Errorf("got %d, error %v and the request %q, want 3 and %q", n, err, got, want)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadToken(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil || got != "GET /below/v1/status Bearer from-file " {
		t.Errorf("got error %v and the request %q, want the token of the file", err, got)
	}
	for content, want := range map[string]string{"\n": "is empty", "-": "reading the token: open "} {
		name := file
		if content == "-" {
			name += "none"
		} else if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.ReadToken(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadToken of %q: got %v, want %q", content, err, want)
		}
	}
}

// What a server answers is bounded, and errors say what to do.
func TestResponses(t *testing.T) {
	t.Setenv(TokenVariable, "")
	for _, r := range []struct {
		code       int
		kind, body string
		want       string
	}{
		{200, "application/json", `{"summary": "Healthy."}`, ""},
		{200, "text/html", "<html>", "is not the address of a directive admin: want JSON, got \"text/html\""},
		{200, "application/json", `{"summary": 1}`, "is it another version of Seamark?"},
		{200, "application/json", `{"summary"`, "is it another version of Seamark?"},
		{200, "application/json", "", "is it another version of Seamark?"},
		{401, "application/json", `{"error": "x"}`, "wants a token: set --token-file or the environment variable SEAMARK_ADMIN_TOKEN"},
		{403, "application/json", `{"error": "user a may not get"}`, "refuses the request: user a may not get"},
		{404, "text/plain", "404", "has no /below/v1/status: is it another program, or another version of Seamark?"},
		{503, "application/json", `{"error": "64 requests"}`, "is busy: 64 requests"},
		{500, "text/plain", strings.Repeat("x", 1<<20), "500 Internal Server Error"},
		{302, "text/html", "", "302 Found"},
	} {
		c := client(t, 10*time.Second, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", r.kind)
			if r.code == 302 {
				w.Header().Set("Location", "http://127.0.0.1:1/")
			}
			w.WriteHeader(r.code)
			_, _ = io.WriteString(w, r.body)
		})
		_, err := c.Status(t.Context())
		if r.want == "" && err != nil || r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)) {
			t.Errorf("%d %s %.40q: got error %v, want %q", r.code, r.kind, r.body, err, r.want)
		}
		if r.code == 401 {
			c.token, c.origin = "x", "file"
			if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "refuses the token of file") {
				t.Errorf("401 with a token: got error %v, want that the token is refused", err)
			}
		}
	}
	large := client(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for chunk := strings.Repeat(" ", 1<<20); ; {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	if _, err := large.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than 64 MB") {
		t.Errorf("an endless response: got error %v, want that it is too large", err)
	}
}

// A server that is silent does not keep a command waiting.
func TestSilence(t *testing.T) {
	ended := make(chan struct{})
	c := client(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/below/v1/records" {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintln(w, `{"name": "a."}`)
			w.(http.Flusher).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	defer close(ended)
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "sent nothing for too long: set a longer --timeout") {
		t.Errorf("without a response: got error %v, want that it is silent", err)
	}
	records := 0
	err := c.Records(t.Context(), nil, func(inventory.Record) error { records++; return nil })
	if records != 1 || err == nil || !strings.Contains(err.Error(), "sent nothing for too long") {
		t.Errorf("after one record: got %d records and error %v, want one and that it is silent", records, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got error %v, want context.Canceled", err)
	}
}

// A server is not silent while the reader of the output waits, for however long.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		c, err := New("localhost:8053", timeout)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()

		waited := make(chan struct{})
		c.SetDial("the server", func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				_, _ = http.ReadRequest(bufio.NewReader(server))
				_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{\"name\": \"a.\"}\n")
				<-waited
				_, _ = io.WriteString(server, "{\"name\": \"b.\"}\n")
			}()
			return client, nil
		})

		records := 0
		err = c.Records(t.Context(), nil, func(inventory.Record) error {
			if records++; records == 1 {
				time.Sleep(time.Hour)
				close(waited)
			}
			return nil
		})
		if records != 2 || err != nil {
			t.Errorf("got %d records and error %v, want two and none", records, err)
		}
	})
}

// Lines have a limit, may be of a later version, and end with an error of yield.
func TestLines(t *testing.T) {
	body := "\n{\"name\":\"a.\",\"later\":1}\n\n{\"name\":\"b.\"}\n"
	c := client(t, 10*time.Second, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "zone=x" {
			t.Errorf("got the parameters %q, want zone=x", r.URL.RawQuery)
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, body)
	})
	stop := errors.New("stop")
	read := func(fail error) (names string, err error) {
		err = c.Records(t.Context(), url.Values{"zone": {"x"}}, func(r inventory.Record) error {
			names += r.Name
			return fail
		})
		return names, err
	}
	if names, err := read(nil); names != "a.b." || err != nil {
		t.Errorf("got %q and error %v, want a.b.", names, err)
	}
	if names, err := read(stop); names != "a." || !errors.Is(err, stop) {
		t.Errorf("with an error of yield: got %q and error %v, want a. and the error", names, err)
	}
	for text, want := range map[string]string{"{\"name\":\"a.\"}\nno JSON\n": "reading the records of ", `{"name":"` + strings.Repeat("x", 2<<20): "token too long"} {
		body = text
		if _, err := read(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: got error %v, want %q", text, err, want)
		}
	}
}

// A tail that the server ends is repeated, but not without end.
func TestTailEnds(t *testing.T) {
	requests := 0
	c := client(t, 10*time.Second, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintf(w, "{\"name\":\"a.\"}\n{\"lost\":%d}\n", requests)
	})
	lost, begun := uint64(0), 0
	err := c.Tail(t.Context(), nil, func() { begun++ }, func(e TailEvent) { lost += e.Lost })
	if err == nil || !strings.Contains(err.Error(), "has ended the connection") || requests != maxShort+1 || begun != requests || lost != 1+2+3+4 {
		t.Errorf("got error %v, %d requests, %d beginnings and %d lost, want an error after %d requests", err, requests, begun, lost, maxShort+1)
	}
}

// A server without TLS is not missing.
func TestNoTLS(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	c, err := New("https://"+address, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "has no TLS: write "+address+" without https://") {
		t.Errorf("got error %v, want that the server has no TLS", err)
	}
}

func TestNoServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	for _, at := range []string{address, "unix:" + path} {
		c, err := New(at, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "no server at "+at+": start it with --admin "+at) {
			t.Errorf("%s: got error %v, want that there is no server", at, err)
		}
	}
}
