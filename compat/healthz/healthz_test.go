package healthz

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log that others write to while it is read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// begin runs commands until the end of the test, or the call of stop, which gives
// what Run gave.
func begin(t *testing.T, o Options) (base string, log *lines, stop func() error) {
	t.Helper()
	log = new(lines)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	o.Listen = "127.0.0.1:0"
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- Run(ctx, o) }()
	stop = sync.OnceValue(func() error { cancel(); return <-result })
	t.Cleanup(func() { _ = stop() })
	address := regexp.MustCompile(`msg="exec-healthz serves" address=(\S+)`)
	for range 1000 {
		if found := address.FindStringSubmatch(log.String()); found != nil {
			return "http://" + found[1], log, stop
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not serve")
	return "", nil, nil
}

func get(t *testing.T, url string) (code int, body, contentType string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text), r.Header.Get("Content-Type")
}

// until asks for a page until it is what is wanted.
func until(t *testing.T, url string, code int, text string) (body string) {
	t.Helper()
	for range 2000 {
		got, body, _ := get(t, url)
		if got == code && strings.Contains(body, text) {
			return body
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s never is %d with %q", url, code, text)
	return ""
}

func TestRun(t *testing.T) {
	before := runtime.NumGoroutine()
	flag := filepath.Join(t.TempDir(), "flag")
	base, log, stop := begin(t, Options{
		Commands: []string{"echo fine >&2", "cat " + flag, "echo '<b>' ; sleep 1000", "sleep 1000"},
		URLs:     []string{"/healthz", "/flag", "/slow", "/never"},
		Period:   20 * time.Millisecond, Latency: time.Hour, Timeout: time.Second,
	})
	if code, _, _ := get(t, base+"/never"); code != 503 {
		t.Errorf("before the first run has ended: %d", code)
	}
	if body := until(t, base+"/healthz", 200, "ok"); body != "ok" {
		t.Error(body)
	}
	if body := until(t, base+"/flag", 503, "exit status 1"); body != "exit status 1\n" {
		t.Error(body)
	}
	if body := until(t, base+"/slow", 503, "did not end"); body != "it did not end within 1s\n" {
		t.Error(body)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, base+"/flag", 200, "ok")
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	until(t, base+"/flag", 503, "exit status 1")

	code, body, kind := get(t, base+"/")
	if code != 200 || kind != "text/html; charset=utf-8" {
		t.Errorf("%d %s", code, kind)
	}
	for _, want := range []string{
		`<td><a href="/healthz">/healthz</a></td><td><code>echo fine &gt;&amp;2</code></td><td>ok</td>`,
		`<code>echo &#39;&lt;b&gt;&#39; ; sleep 1000</code></td><td>it did not end within 1s</td>`,
		`<td>exit status 1</td>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the index has no %s:\n%s", want, body)
		}
	}
	for _, path := range []string{"/quit", "/debug/pprof/", "/debug/pprof/cmdline", "/healthz/", "/flagg", "/metrics"} {
		if code, _, _ := get(t, base+path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _, _ := get(t, base+"/healthz?x=1"); code != 200 {
		t.Errorf("with a query: %d", code)
	}

	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	changes := regexp.MustCompile(`msg="command (\w+)" url=/flag `).FindAllStringSubmatch(log.String(), -1)
	var told []string
	for _, c := range changes {
		told = append(told, c[1])
	}
	if got := strings.Join(told, " "); got != "fails succeeds fails" {
		t.Errorf("the log has %s:\n%s", got, log)
	}
	if !strings.Contains(log.String(), `output="cat: `) || strings.Count(log.String(), " url=/healthz ") != 1 {
		t.Errorf("the log:\n%s", log)
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 500 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRunShowsOutput(t *testing.T) {
	base, _, _ := begin(t, Options{
		Commands: []string{"echo one; echo two >&2", "echo '<p>'; exit 7", "true"}, URLs: []string{"/good", "/bad", "/mute"},
		Period: 20 * time.Millisecond, Latency: time.Hour, Timeout: time.Hour, Output: true,
	})
	if body := until(t, base+"/good", 200, ""); body != "one\ntwo\n" {
		t.Error(body)
	}
	if body := until(t, base+"/bad", 503, "exit"); body != "exit status 7\n<p>\n" {
		t.Error(body)
	}
	if body := until(t, base+"/mute", 200, ""); body != "" {
		t.Error(body)
	}
	if _, _, kind := get(t, base+"/bad"); kind != "text/plain; charset=utf-8" {
		t.Error(kind)
	}
}

// A run that takes longer than the period delays the next: two would meet in the
// directory.
func TestRunsDoNotOverlap(t *testing.T) {
	dir := t.TempDir()
	base, log, stop := begin(t, Options{
		Commands: []string{"mkdir " + dir + "/busy && sleep 0.05 && echo >>" + dir + "/count && rmdir " + dir + "/busy"},
		URLs:     []string{"/x"},
		Period:   time.Millisecond, Latency: time.Hour, Timeout: time.Hour,
	})
	for range 2000 {
		if text, _ := os.ReadFile(dir + "/count"); len(text) >= 5 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	until(t, base+"/x", 200, "ok")
	_ = stop()
	text, err := os.ReadFile(dir + "/count")
	if err != nil || len(text) < 5 || strings.Contains(log.String(), "fails") {
		t.Errorf("%d runs, %v:\n%s", len(text), err, log)
	}
}

// The end does not wait for commands, nor for a client that holds its connection.
func TestRunEndsAtOnce(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	base, log, stop := begin(t, Options{
		Commands: []string{"echo >" + started + "; sleep 1000"}, URLs: []string{"/x"},
		Period: time.Second, Latency: time.Hour, Timeout: time.Hour,
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := 0; ; i++ {
		if _, err := os.Stat(started); err == nil {
			break
		} else if i == 2000 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a connection that is closed", n)
	}
	if strings.Contains(log.String(), "fails") {
		t.Errorf("a command that was broken off is told as a failure:\n%s", log)
	}
}

func TestRunWithoutItsPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = Run(t.Context(), Options{Listen: taken.Addr().String(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "-port") {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	now := time.Now()
	c := &check{latency: time.Minute}
	says := func(want string) {
		t.Helper()
		_, err := c.health(now)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	says("the command has not run yet")
	c.last.Store(&result{ended: now.Add(-time.Minute)})
	says("")
	c.last.Store(&result{ended: now.Add(-time.Minute - time.Second)})
	says("the last result is of 1m1s ago")
	c.last.Store(&result{ended: now.Add(-time.Hour), err: errors.New("exit status 1")})
	says("the last result is of 1h0m0s ago: exit status 1")
	c.last.Store(&result{ended: now, err: errors.New("exit status 1")})
	says("exit status 1")
}

func TestOptions(t *testing.T) {
	good := func() Options {
		return Options{Commands: []string{"a", "b"}, URLs: []string{"/a", "/b"}, Period: time.Second, Latency: time.Second, Timeout: time.Second}
	}
	if o := good(); o.Check() != nil {
		t.Error(o.Check())
	}
	for want, change := range map[string]func(*Options){
		"want as many -url as -cmd, got 1 and 2": func(o *Options) { o.URLs = o.URLs[:1] },
		`want a path such as /healthz, got "b"`:  func(o *Options) { o.URLs[1] = "b" },
		`want a path such as /healthz, got ""`:   func(o *Options) { o.URLs[1] = "" },
		`such as /healthz, got "/a?b"`:           func(o *Options) { o.URLs[1] = "/a?b" },
		"-url: / is the list of all commands":    func(o *Options) { o.URLs[1] = "/" },
		"two commands have -url /a":              func(o *Options) { o.URLs[1] = "/a" },
		`-cmd " ": want a command`:               func(o *Options) { o.Commands[0] = " " },
		"-period: want at least 1ms, got 0s":     func(o *Options) { o.Period = 0 },
		"-latency: want at least 1ms, got -1s":   func(o *Options) { o.Latency = -time.Second },
		"-latency: want at least the period, 1s": func(o *Options) { o.Latency /= 2 },
		"-timeout: want at least 1ms, got 1µs":   func(o *Options) { o.Timeout = time.Microsecond },
	} {
		o := good()
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
