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

// lines is a log buffer that is safe for concurrent use.
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

// start runs commands until the end of the test or until stop, which returns Run's
// error.
func start(t *testing.T, o Options) (base string, log *lines, stop func() error) {
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
	address := regexp.MustCompile(`msg="Serving status pages" address=(\S+)`)
	for range 12_000 {
		if found := address.FindStringSubmatch(log.String()); found != nil {
			return "http://" + found[1], log, stop
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no status pages after a minute; log:\n%s", log)
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

// waitFor requests a page until it has the status code and contains text.
func waitFor(t *testing.T, url string, code int, text string) (body string) {
	t.Helper()
	var got int
	for range 6000 {
		got, body, _ = get(t, url)
		if got == code && strings.Contains(body, text) {
			return body
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: got %d %q after 6000 requests, want %d %q", url, got, body, code, text)
	return ""
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	before := runtime.NumGoroutine()
	flag := filepath.Join(t.TempDir(), "flag")
	base, log, stop := start(t, Options{
		Commands: []string{"echo fine >&2", "cat " + flag, "echo '<b>' ; sleep 1000", "sleep 1000"},
		URLs:     []string{"/healthz", "/flag", "/slow", "/never"},
		Period:   20 * time.Millisecond, Latency: time.Hour, Timeout: 5 * time.Second, // to start a shell takes long on a busy machine
	})
	if code, _, _ := get(t, base+"/never"); code != 503 {
		t.Errorf("/never before the end of the first run: got %d, want 503", code)
	}
	if body := waitFor(t, base+"/healthz", 200, "ok"); body != "ok" {
		t.Errorf("/healthz: got %q, want %q", body, "ok")
	}
	if body := waitFor(t, base+"/flag", 503, "exit status 1"); body != "exit status 1\n" {
		t.Errorf("/flag: got %q, want %q", body, "exit status 1\n")
	}
	if body := waitFor(t, base+"/slow", 503, "did not end"); body != "the command did not end within 5s\n" {
		t.Errorf("/slow: got %q, want %q", body, "the command did not end within 5s\n")
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, base+"/flag", 200, "ok")
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	waitFor(t, base+"/flag", 503, "exit status 1")

	code, body, kind := get(t, base+"/")
	if code != 200 || kind != "text/html; charset=utf-8" {
		t.Errorf("/: got %d %s, want 200 text/html; charset=utf-8", code, kind)
	}
	for _, want := range []string{
		`<td><a href="/healthz">/healthz</a></td><td><code>echo</code></td><td>ok</td>`,
		`<code>sh</code></td><td>the command did not end within 5s</td>`,
		`<td>exit status 1</td>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/: got\n%s\nwant %s in it", body, want)
		}
	}
	for _, path := range []string{"/quit", "/debug/pprof/", "/debug/pprof/cmdline", "/healthz/", "/flagg", "/metrics"} {
		if code, _, _ := get(t, base+path); code != 404 {
			t.Errorf("%s: got %d, want 404", path, code)
		}
	}
	if code, _, _ := get(t, base+"/healthz?x=1"); code != 200 {
		t.Errorf("/healthz?x=1: got %d, want 200", code)
	}

	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	changes := regexp.MustCompile(`msg="Command (\w+)" url=/flag `).FindAllStringSubmatch(log.String(), -1)
	var outcomes []string
	for _, c := range changes {
		outcomes = append(outcomes, c[1])
	}
	if got := strings.Join(outcomes, " "); got != "failed succeeded failed" {
		t.Errorf("outcomes of /flag in the log: got %s, want failed succeeded failed:\n%s", got, log)
	}
	if !strings.Contains(log.String(), `output="cat: `) || strings.Count(log.String(), " url=/healthz ") != 1 {
		t.Errorf("got log\n%s\nwant the output of cat and one line of /healthz", log)
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 6000 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRunOutput(t *testing.T) {
	base, _, _ := start(t, Options{
		Commands: []string{"echo one; echo two >&2", "echo '<p>'; exit 7", "true"}, URLs: []string{"/good", "/bad", "/mute"},
		Period: 20 * time.Millisecond, Latency: time.Hour, Timeout: time.Hour, Output: true,
	})
	if body := waitFor(t, base+"/good", 200, ""); body != "one\ntwo\n" {
		t.Errorf("/good: got %q, want %q", body, "one\ntwo\n")
	}
	if body := waitFor(t, base+"/bad", 503, "exit"); body != "exit status 7\n<p>\n" {
		t.Errorf("/bad: got %q, want %q", body, "exit status 7\n<p>\n")
	}
	if body := waitFor(t, base+"/mute", 200, ""); body != "" {
		t.Errorf("/mute: got %q, want %q", body, "")
	}
	if _, _, kind := get(t, base+"/bad"); kind != "text/plain; charset=utf-8" {
		t.Errorf("/bad: got content type %q, want text/plain; charset=utf-8", kind)
	}
}

// A run longer than the period delays the next one: mkdir fails if two overlap.
func TestRunLongerThanPeriod(t *testing.T) {
	dir := t.TempDir()
	base, log, stop := start(t, Options{
		Commands: []string{"mkdir " + dir + "/busy && sleep 0.05 && echo >>" + dir + "/count && rmdir " + dir + "/busy"},
		URLs:     []string{"/x"},
		Period:   time.Millisecond, Latency: time.Hour, Timeout: time.Hour,
	})
	for range 6000 {
		if text, _ := os.ReadFile(dir + "/count"); len(text) >= 5 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	waitFor(t, base+"/x", 200, "ok")
	_ = stop()
	text, err := os.ReadFile(dir + "/count")
	if err != nil || len(text) < 5 || strings.Contains(log.String(), "failed") {
		t.Errorf("got %d runs, error %v, want at least 5 and no failure:\n%s", len(text), err, log)
	}
}

// Canceling ends Run despite a running command and an open HTTP connection.
func TestRunCanceled(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	base, log, stop := start(t, Options{
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
		} else if i == 6000 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := stop(); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes after the end of Run, want a closed connection", n)
	}
	if strings.Contains(log.String(), "failed") {
		t.Errorf("got a failure of the canceled command in the log:\n%s", log)
	}
}

func TestRunPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = Run(t.Context(), Options{Listen: other.Addr().String(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "-port") {
		t.Errorf("Run on a port in use: got error %v, want \"address already in use\" and the flag", err)
	}
}

func TestCheckHealth(t *testing.T) {
	now := time.Now()
	c := &check{latency: time.Minute}
	expect := func(want string) {
		t.Helper()
		_, err := c.health(now)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("health: got error %q, want %q", got, want)
		}
	}
	expect("the command has not run yet")
	c.last.Store(&result{ended: now.Add(-time.Minute)})
	expect("")
	c.last.Store(&result{ended: now.Add(-time.Minute - time.Second)})
	expect("the last result is 1m1s old")
	c.last.Store(&result{ended: now.Add(-time.Hour), err: errors.New("exit status 1")})
	expect("the last result is 1h0m0s old: exit status 1")
	c.last.Store(&result{ended: now, err: errors.New("exit status 1")})
	expect("exit status 1")
}

func TestOptionsCheck(t *testing.T) {
	good := func() Options {
		return Options{Commands: []string{"a", "b"}, URLs: []string{"/a", "/b"}, Period: time.Second, Latency: time.Second, Timeout: time.Second}
	}
	if o := good(); o.Check() != nil {
		t.Errorf("%+v: got error %v, want none", o, o.Check())
	}
	for want, change := range map[string]func(*Options){
		"want as many -url as -cmd, got 1 and 2": func(o *Options) { o.URLs = o.URLs[:1] },
		`want a path such as /healthz, got "b"`:  func(o *Options) { o.URLs[1] = "b" },
		`want a path such as /healthz, got ""`:   func(o *Options) { o.URLs[1] = "" },
		`such as /healthz, got "/a?b"`:           func(o *Options) { o.URLs[1] = "/a?b" },
		"-url: / is the list of all commands":    func(o *Options) { o.URLs[1] = "/" },
		"-url: two commands have /a":             func(o *Options) { o.URLs[1] = "/a" },
		`-cmd number 1: want a command`:          func(o *Options) { o.Commands[0] = " " },
		"-period: want at least 1ms, got 0s":     func(o *Options) { o.Period = 0 },
		"-latency: want at least 1ms, got -1s":   func(o *Options) { o.Latency = -time.Second },
		"-latency: want at least the period, 1s": func(o *Options) { o.Latency /= 2 },
		"-timeout: want at least 1ms, got 1µs":   func(o *Options) { o.Timeout = time.Microsecond },
	} {
		o := good()
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want %q", o, err, want)
		}
	}
}

// The log, the pages and errors have the name of a command's program, and neither its arguments nor
// assignments before it, which may be secrets.
func TestCommandSecrets(t *testing.T) {
	base, log, stop := start(t, Options{
		Commands: []string{"echo secret1", "TOKEN=secret2 false", "false secret3 || exit 3", "'/bin/echo' \"secret4\""},
		URLs:     []string{"/a", "/b", "/c", "/d"},
		Period:   time.Hour, Latency: time.Hour, Timeout: time.Minute,
	})
	waitFor(t, base+"/a", 200, "ok")
	waitFor(t, base+"/b", 503, "exit status 1")
	waitFor(t, base+"/c", 503, "exit status 3")
	waitFor(t, base+"/d", 200, "ok")
	_, body, _ := get(t, base+"/")
	for _, want := range []string{"<code>echo</code>", "<code>sh</code>", "<code>/bin/echo</code>"} {
		if !strings.Contains(body, want) {
			t.Errorf("/: got\n%s\nwant %s", body, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if text := body + log.String(); strings.Contains(text, "secret") {
		t.Errorf("page and log: got\n%s\nwant no argument of a command", text)
	}

	t.Setenv("PATH", t.TempDir()) // no shell
	o := Options{Commands: []string{"echo secret | cat", "TOKEN=secret false", "echo \"secret"}}
	if err := o.Check(); err == nil || strings.Contains(err.Error(), "secret") || strings.Count(err.Error(), "no shell") != 3 {
		t.Errorf("without a shell: got error %v, want three without the text of a command", err)
	}
}
