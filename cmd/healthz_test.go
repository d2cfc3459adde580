package cmd_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/test/program"
)

func TestHealthzCommandLine(t *testing.T) {
	for _, c := range []struct {
		args, out, err string // what they contain
		code           int
	}{
		{"exec-healthz --help", "--latency", "", 0},
		{"exec-healthz -version -quiet", "Seamark-test\nlinux/", "", 0},
		{"exechealthz -version", "Seamark-test\nlinux/", "", 0},
		{"exec-healthz -cmd=a -cmd=b", "", "want as many -url as -cmd, got 1 and 2", 2},
		{"exec-healthz -url=healthz", "", `-url: want a path such as /healthz, got "healthz"`, 2},
		{"exec-healthz -cmd=a -url=/a -cmd=b -url=/a", "", "-url: two commands have /a", 2},
		{"exec-healthz -port=70000", "", "want a port of 0..65535", 2},
		{"exec-healthz -port=x", "", "want a port of 0..65535", 2},
		{"exec-healthz -period=0", "", "-period: want at least 1ms, got 0s", 2},
		{"exec-healthz -period=2", "", "missing unit", 2},
		{"exec-healthz -timeout=0s", "", "-timeout: want at least 1ms, got 0s", 2},
		{"exec-healthz -latency=1s", "", "-latency: want at least the period, 2s, got 1s", 2},
		{"exec-healthz -nonsense", "", "-nonsense", 2},
		{"exec-healthz nslookup", "", "seamark: want no arguments, got \"nslookup\"", 2},
		{"exec-healthz -addr=192.0.2.1 -port=0", "", "cannot assign requested address", 1},
	} {
		out, stderr, code := run(t, t.TempDir(), "", strings.Fields(c.args)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nerr %s", c.args, code, c.code, out, stderr)
		}
	}
}

// A healthzProcess runs the command exec-healthz.
type healthzProcess struct {
	*exec.Cmd
	*testing.T
	base string
	log  *bufio.Scanner
}

func startHealthz(t *testing.T, path string, args ...string) *healthzProcess {
	t.Helper()
	h := &healthzProcess{program.Command(t, t.TempDir(), append(args, "-addr=127.0.0.1", "-port=0", "-period", "50ms")...), t, "", nil}
	h.Args[0] = "/exechealthz" // the entry point of the original image
	if path != "" {
		h.Env = append(h.Env, "PATH="+path)
	}
	stderr, err := h.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	h.log = bufio.NewScanner(stderr)
	if h.log.Scan() {
		_, h.base, _ = strings.Cut(h.log.Text(), "Serving status pages address=")
	}
	if h.base == "" {
		t.Fatalf("got log %s, want the address of the status pages", h.log.Text())
	}
	return h
}

// awaitPage requests a page until it has a status code and contains text.
func (h *healthzProcess) awaitPage(path string, code int, text string) (body string) {
	h.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.Get("http://" + h.base + path)
		if err != nil {
			h.Fatal(err)
		}
		all, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			h.Fatal(err)
		}
		if r.StatusCode == code && strings.Contains(string(all), text) {
			return string(all)
		}
		if time.Now().After(deadline) {
			h.Fatalf("%s: got %d %q after a minute, want %d %q", path, r.StatusCode, all, code, text)
		}
	}
}

// stop sends SIGTERM, checks that the exit status is 0, and returns the rest of the log.
func (h *healthzProcess) stop() (log string) {
	h.Helper()
	if err := h.Process.Signal(syscall.SIGTERM); err != nil {
		h.Fatal(err)
	}
	for h.log.Scan() {
		log += h.log.Text() + "\n"
	}
	if err := h.Wait(); err != nil {
		h.Errorf("after SIGTERM: got %v, want exit status 0", err)
	}
	return log
}

// The command of the manifest works in an image without a shell and nslookup.
func TestHealthzWithoutShell(t *testing.T) {
	server := serve(t, "..", "", "serve", "--manifests", "examples", "--listen", "127.0.0.1:0")
	server.until("  dig @127.0.0.1") // printed when the data is complete
	at := "127.0.0.1:" + server.ports[0]
	h := startHealthz(t, t.TempDir(),
		"-cmd=nslookup web.shop.svc.cluster.local "+at+" >/dev/null", "-url=/healthz",
		"-cmd", "nslookup missing.shop.svc.cluster.local "+at+" >/dev/null", "-url", "/missing")
	if body := h.awaitPage("/healthz", 200, ""); body != "ok" {
		t.Errorf("/healthz: got %q, want ok", body)
	}
	h.awaitPage("/missing", 503, "reply NXDOMAIN for missing.shop.svc.cluster.local.")
	server.stop()
	h.awaitPage("/healthz", 503, at)
	log := h.stop()
	for _, want := range []string{"[INFO] Command succeeded url=/healthz", "[WARNING] Command failed url=/healthz", "[WARNING] Command failed url=/missing"} {
		if strings.Count(log, want) != 1 {
			t.Errorf("got log\n%s\nwant one line with %s", log, want)
		}
	}
}

// ignored returns the mask of ignored signals in a status file of /proc.
func ignored(t *testing.T, status string) uint64 {
	t.Helper()
	_, rest, _ := strings.Cut(status, "SigIgn:")
	word, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	mask, err := strconv.ParseUint(word, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask
}

// Commands inherit no ignored signals. SIGTERM ends the process and its commands. With
// -quiet nothing is logged.
func TestHealthzSignals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	h := startHealthz(t, "", "-output", "-cmd=grep SigIgn: /proc/self/status", "-url=/signals",
		"-cmd=sleep 1000 & echo $! >"+file+"; wait", "-url=/hangs")
	own, err := os.ReadFile("/proc/self/status") // the process that runs the tests may ignore some
	if err != nil {
		t.Fatal(err)
	}
	if mine, more := ignored(t, string(own)), ignored(t, h.awaitPage("/signals", 200, "SigIgn:")); more&^mine != 0 {
		t.Errorf("ignored signals of a command: got %x, want none but %x, those of this process", more, mine)
	}
	h.awaitPage("/hangs", 503, "has not run yet")
	pid := 0
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		if time.Now().After(deadline) {
			t.Fatal("the command did not start within a minute")
		}
	}
	h.stop()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		// A new parent may not reap it: then it remains a zombie.
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d: got %s, want that it has ended", pid, stat)
		}
	}
	_, stderr, code := run(t, t.TempDir(), "", "exec-healthz", "-quiet", "-addr=192.0.2.1")
	if code != 1 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exec-healthz -quiet with an unavailable address: got exit status %d and %q, want 1 and one line", code, stderr)
	}
}
