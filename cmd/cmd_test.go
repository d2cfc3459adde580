package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// TestMain makes the test binary the program, too.
func TestMain(m *testing.M) { program.Main(m) }

// long skips a test that takes more than a second.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
}

// run runs a command and returns its output and exit status.
func run(t *testing.T, dir, in string, args ...string) (out, stderr string, code int) {
	t.Helper()
	c := program.Command(t, dir, args...)
	var o, e bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(in), &o, &e
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good"), ".:0 {\n bind 127.0.0.1\n whoami\n}\n")
	write(t, filepath.Join(dir, "bad"), ".:0 {\n whoam\n}\n")
	for _, c := range []struct {
		args, out, err string // what they contain
		code           int
	}{
		{"--help", "seamark -conf /etc/coredns/Corefile -dns.port 53", "", 0},
		{"serve --help", "--listen ADDRESS:PORT", "", 0},
		{"version", "Seamark-test\nlinux/", "", 0},
		{"version --output json", "{\n  \"version\": \"test\",\n  \"commit\": \"c0ffee\",\n  \"date\": \"2026-11-22T21:00:00Z\",\n  \"go\": \"go", "", 0},
		{"version -o yaml", "", "seamark: --output: want text or json, got \"yaml\"", 2},
		{"-help", "seamark -conf /etc/coredns/Corefile -dns.port 53", "", 0},
		{"serve -help", "--listen ADDRESS:PORT", "", 0},
		{"completion fish", "complete", "", 0},
		{"completion tcsh", "", "seamark: want bash, fish, powershell or zsh, got \"tcsh\"\nSee seamark completion --help.\n", 2},
		{"-version", "Seamark-test\n", "", 0},
		{"--version", "Seamark-test\n", "", 0},
		{"-plugins", "  dns.kubernetes ", "", 0},
		{"check good", "good: OK\n", "", 0},
		{"check good bad", "good: OK\n", "bad:2: unknown directive \"whoam\"; did you mean \"whoami\"?\n", 1},
		{"check nowhere", "", "reading the Corefile: open nowhere: no such file or directory\n", 1},
		{"plan bad", "", "bad:2: unknown directive", 1},
		{"-conf bad", "", "bad:2: unknown directive", 1},
		{"-conf good -quiet -pidfile no/pid", "", "writing the process ID: open no/pid: no such file or directory\n", 1},
		{"-conf nowhere", "", "reading the Corefile: open nowhere: no such file or directory\n", 1},
		{"check", "", "seamark: got 0 arguments, usage: seamark check FILE... [flags]\nSee seamark check --help.\n", 2},
		{"plan good good", "", "seamark: got 2 arguments, usage: seamark plan FILE [flags]\nSee seamark plan --help.\n", 2},
		{"chekc good", "", "seamark: unknown command \"chekc\"; did you mean \"check\"?\nSee seamark --help.\n", 2},
		{"chekc --help", "", "seamark: unknown command \"chekc\"; did you mean \"check\"?\nSee seamark --help.\n", 2},
		{"help chekc", "", "seamark: unknown command \"chekc\"; did you mean \"check\"?\nSee seamark --help.\n", 2},
		{"help check", "Check reads Corefiles", "", 0},
		{"serve extra", "", "seamark: want no arguments, got \"extra\"\nSee seamark serve --help.\n", 2},
		{"__complete chec", "check\t", "Completion ended", 0},
		{"__completeNoDesc canary ro", "rollback\n", "Completion ended", 0},
		{"nonsense", "", "seamark: unknown command \"nonsense\"\nSee seamark --help.\n", 2},
		{"-nonsense", "", "seamark: unknown shorthand flag", 2},
		{"--nonsense", "", "seamark: unknown flag: --nonsense\nSee seamark --help.\n", 2},
		{"-dns.port 70000", "", "seamark: invalid argument \"70000\" for \"-p, --dns.port\" flag: want a port of 0..65535\n", 2},
		{"-p x", "", "seamark: invalid argument \"x\" for \"-p, --dns.port\" flag: want a port of 0..65535\n", 2},
		{"check -p 1053x good", "", "flag: want a port of 0..65535\n", 2},
		{"serve --listen 1053", "", "seamark: --listen: want ADDRESS:PORT, got \"1053\"\n", 2},
		{"serve --listen 127.0.0.1:1 --listen 127.0.0.1:1", "", "seamark: --listen: 127.0.0.1:1 is given twice\n", 2},
		{"serve --conf good --manifests .", "", "set only one of --manifests and --conf", 2},
		{"serve --manifests nosuch", "", "--manifests: open nosuch: no such file or directory\n", 1},
	} {
		out, stderr, code := run(t, dir, "", strings.Fields(c.args)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nerr %s", c.args, code, c.code, out, stderr)
		}
	}
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), "example.org:0 {\n bind 127.0.0.1\n whoami\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile", "-pidfile", "pid")
	if pid, err := os.ReadFile(filepath.Join(dir, "pid")); string(pid) != fmt.Sprintln(p.Process.Pid) {
		t.Errorf("pidfile: got %q, error %v, want %d", pid, err, p.Process.Pid)
	}
	for _, network := range []string{"udp", "tcp"} {
		reply, err := ask(network, p.ports[0], "a.example.org.", dns.TypeA)
		if err != nil || len(reply.Extra) != 2 || !strings.Contains(reply.Extra[0].String(), "127.0.0.1") {
			t.Errorf("a.example.org A over %s: got %v, error %v, want two additional records with 127.0.0.1", network, reply, err)
		}
		if reply, err := ask(network, p.ports[0], "example.com.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeRefused {
			t.Errorf("example.com A over %s: got %v, error %v, want REFUSED", network, reply, err)
		}
	}
	p.stop()
	if _, err := os.Stat(filepath.Join(dir, "pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pidfile after the exit: got error %v, want that it does not exist", err)
	}
}

// Without a Corefile, CoreDNS serves whoami and log.
func TestServeWithoutCorefile(t *testing.T) {
	p := serve(t, t.TempDir(), "", "-dns.port=0")
	if reply, err := ask("udp", p.ports[0], "example.org.", dns.TypeAAAA); err != nil || len(reply.Extra) != 2 {
		t.Errorf("example.org AAAA: got %v, error %v, want two additional records", reply, err)
	}
	p.until("AAAA IN example.org.")
	p.stop()
	if text := strings.Join(p.before, "\n"); !strings.Contains(text, "[WARNING] No Corefile in this directory") {
		t.Errorf("seamark without a Corefile: got\n%s\nwant a warning", text)
	}
	// The same as for a user without permission to listen on port 53.
	out, stderr, code := run(t, t.TempDir(), "", "--listen", "192.0.2.1:1053")
	if want := "seamark serve --manifests FOLDER --listen 127.0.0.1:1053"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("seamark without a Corefile, on an address of no interface: got %q, error output %q, status %d, want %q, status 1", out, stderr, code, want)
	}
}

func TestServeCorefileOfWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), "here {\n bind 127.0.0.1\n whoami\n}\n")
	p := serve(t, dir, "", "-p", "0")
	if reply, err := ask("udp", p.ports[0], "here.", dns.TypeA); err != nil || reply.Rcode != 0 {
		t.Errorf("here. A: got %v, error %v, want NOERROR", reply, err)
	}
	p.stop()
}

func TestServeStdin(t *testing.T) {
	p := serve(t, t.TempDir(), "in {\n bind 127.0.0.1\n whoami\n}\n", "-conf", "stdin", "-p", "0")
	p.signal(syscall.SIGHUP)
	p.until("Reloading complete") // of the text that was read at the start
	if reply, err := ask("tcp", p.ports[0], "in.", dns.TypeA); err != nil || reply.Rcode != 0 {
		t.Errorf("in. A: got %v, error %v, want NOERROR", reply, err)
	}
	p.stop()
}

func TestServeListen(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "c"), "a:53 {\n whoami\n}\nb:5353 {\n whoami\n}\n")
	p := serve(t, dir, "", "serve", "--conf", "c", "--listen", "127.0.0.1:0")
	for _, zone := range []string{"a.", "b."} {
		if reply, err := ask("udp", p.ports[0], zone, dns.TypeA); err != nil || reply.Rcode != 0 {
			t.Errorf("%s A: got %v, error %v, want NOERROR", zone, reply, err)
		}
	}
	p.stop()
}

func TestQuiet(t *testing.T) {
	dir, port := t.TempDir(), freeport.Reserve(t)
	write(t, filepath.Join(dir, "c"), ".:"+port+" {\n bind 127.0.0.1\n whoami\n}\n")
	c := program.Command(t, dir, "-conf", "c", "-quiet", "-pidfile", "pid")
	var out bytes.Buffer
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := ask("udp", port, "a.", dns.TypeA); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no answer within a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(filepath.Join(dir, "pid")); err != nil {
		t.Errorf("pidfile of a running server: got error %v, want none", err)
	}
	_ = c.Process.Signal(os.Interrupt)
	if err := c.Wait(); err != nil {
		t.Errorf("after SIGINT: got %v, want exit status 0", err)
	}
	if got, want := out.String(), "[INFO] Shutting down\n"; got != want {
		t.Errorf("output with -quiet: got %q, want %q", got, want)
	}
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c")
	block := func(zone string) string { return zone + ":0 {\n bind 127.0.0.1\n whoami\n}\n" }
	write(t, file, block("a")+block("b"))
	p := serve(t, dir, "", "-conf", "c")
	port := p.ports[0]
	var asked, lost atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	for i := range 2 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				asked.Add(1)
				if reply, err := ask([]string{"udp", "tcp"}[i], port, "a.", dns.TypeA); err != nil || reply.Rcode != 0 {
					lost.Add(1)
				}
			}
		})
	}
	for i := range 10 {
		write(t, file, block("a")+block(fmt.Sprintf("b%d", i)))
		p.signal(reloadSignals()[i%2])
		p.until("Reloading complete")
		for n := asked.Load() + 4; asked.Load() < n; time.Sleep(time.Millisecond) { // a reload may take less time than a query
		}
	}
	write(t, file, block("a")+"b:0 {\n bind 127.0.0.1\n whoamy\n}\n")
	p.signal(syscall.SIGHUP)
	p.until(`c line=7 error="unknown directive \"whoamy\"; did you mean \"whoami\"?"`)
	close(done)
	clients.Wait()
	if lost.Load() > 0 {
		t.Errorf("got %d of %d queries without an answer, want none", lost.Load(), asked.Load())
	}
	for zone, want := range map[string]int{"a.": 0, "b9.": 0, "b.": dns.RcodeRefused, "b8.": dns.RcodeRefused} {
		if reply, err := ask("udp", port, zone, dns.TypeA); err != nil || reply.Rcode != want {
			t.Errorf("%s A: got %v, error %v, want %s", zone, reply, err, dns.RcodeToString[want])
		}
	}
	p.stop()
}

// The directive reload finds a changed file that the Corefile imports, without
// a signal.
func TestReloadDirective(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), ".:0 {\n bind 127.0.0.1\n reload 2s 1s\n whoami\n}\nimport *.server\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	write(t, filepath.Join(dir, "a.server"), "nowhere:0 {\n bind 127.0.0.1\n template ANY ANY {\n  rcode NXDOMAIN\n }\n}\n")
	p.until("[INFO] Reloading")
	p.until("[INFO] plugin/reload: Running configuration SHA512 = ")
	p.until("[INFO] Reloading complete")
	if reply, err := ask("udp", p.ports[0], "nowhere.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeNameError {
		t.Errorf("nowhere. A: got %v, error %v, want NXDOMAIN", reply, err)
	}
	p.stop()
}

// Between SIGTERM and the end of lameduck the server answers; a second signal
// ends it at once.
func TestLameduckAndSecondSignal(t *testing.T) {
	health := unusedAddress(t)
	dir := t.TempDir()
	p := serve(t, dir, ".:0 {\n bind 127.0.0.1\n whoami\n health "+health+" {\n  lameduck 1h\n }\n}\n", "-conf", "stdin", "-pidfile", "pid")
	p.signal(syscall.SIGTERM)
	p.until("Shutting down")
	if reply, err := ask("udp", p.ports[0], "a.", dns.TypeA); err != nil || reply.Rcode != 0 {
		t.Errorf("a. A during lameduck: got %v, error %v, want NOERROR", reply, err)
	}
	if reply, err := http.Get("http://" + health + "/health"); err != nil || reply.StatusCode != 200 {
		t.Errorf("/health during lameduck: got %v, error %v, want 200", reply, err)
	} else {
		reply.Body.Close()
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != -1 {
		t.Errorf("exit status after the second SIGTERM: got %d, want -1, ended by the signal", code)
	}
	if _, err := os.Stat(filepath.Join(dir, "pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pidfile after the second SIGTERM: %v, want it removed", err)
	}
}

// SIGQUIT stops the server without lameduck and without a dump of its goroutines,
// unless GOTRACEBACK requests one.
func TestSIGQUIT(t *testing.T) {
	const text = ".:0 {\n bind 127.0.0.1\n whoami\n lameduck 1h\n}\n"
	for _, c := range []struct {
		traceback string
		code      int
		dump      bool
	}{{"", 0, false}, {"all", 2, true}} {
		t.Setenv("GOTRACEBACK", c.traceback)
		var stderr bytes.Buffer
		p := serveTo(t, &stderr, t.TempDir(), text, "-conf", "stdin")
		p.signal(syscall.SIGQUIT)
		if code := p.exit(); code != c.code {
			t.Errorf("GOTRACEBACK=%s: exit %d, want %d", c.traceback, code, c.code)
		}
		if got := strings.Contains(stderr.String(), "goroutine "); got != c.dump {
			t.Errorf("GOTRACEBACK=%s: dump %v, want %v: %.200s", c.traceback, got, c.dump, stderr.String())
		}
	}

	// A SIGQUIT during lameduck ends the process, also without a dump.
	t.Setenv("GOTRACEBACK", "")
	var stderr bytes.Buffer
	p := serveTo(t, &stderr, t.TempDir(), text, "-conf", "stdin")
	p.signal(syscall.SIGTERM)
	p.until("lameduck")
	p.signal(syscall.SIGQUIT)
	if code := p.exit(); code != -1 || stderr.String() != "" {
		t.Errorf("SIGQUIT after SIGTERM: exit %d, want that of a signal; standard error: %.200s", code, stderr.String())
	}
}

func TestPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Addr().String())
	_, stderr, code := run(t, t.TempDir(), ".:"+port+" {\n bind 127.0.0.1\n whoami\n}\n", "-conf", "stdin")
	if code != 1 || !strings.Contains(stderr, "127.0.0.1:"+port) || !strings.Contains(stderr, "in use") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("port %s: got exit status %d and\n%s\nwant 1 and one line that the address is in use", port, code, stderr)
	}
}

func TestServeManifests(t *testing.T) {
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, t.TempDir(), "", "serve", "--manifests", examples, "--listen", "127.0.0.1:0")
	p.until("Try:")
	for range 2 {
		line := p.line()
		for strings.HasPrefix(line, "[INFO]") {
			line = p.line()
		}
		var port, name, qtype string
		if n, _ := fmt.Sscanf(line, "  dig @127.0.0.1 -p %s %s %s", &port, &name, &qtype); n < 2 {
			t.Fatalf("got line %q, want a dig command", line)
		}
		reply, err := ask("udp", port, name, max(dns.StringToType[qtype], dns.TypeA))
		if err != nil || len(reply.Answer) == 0 {
			t.Errorf("%s: got %v, error %v, want an answer", line, reply, err)
		}
	}
	p.stop()
}

// While standard output is not read, changes are served and signals are handled. The
// same is true after the reader has closed it.
func TestStandardOutputNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	service := func(last int) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.96.0.%d}}\n", last)
	}
	write(t, filepath.Join(dir, "m", "s.yaml"), service(0))
	at := unusedAddress(t) // the server cannot print its port
	read, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for _, size := range []int{1 << 16, 1} { // a byte may fit where a page does not
		if err := full.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(full, io.LimitReader(zeros{size}, 1<<24)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	c := program.Command(t, dir, "serve", "--manifests", "m", "--listen", at)
	c.Stdout, c.Stderr = full, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	full.Close()
	for last := range 4 {
		write(t, filepath.Join(dir, "m", "s.yaml"), service(last))
		want, got := fmt.Sprintf("10.96.0.%d", last), ""
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if reply, err := ask("udp", at, "s.default.svc.cluster.local.", dns.TypeA); err == nil && len(reply.Answer) == 1 {
				got = reply.Answer[0].(*dns.A).A.String()
			}
		}
		if got != want {
			t.Errorf("s.default.svc.cluster.local A: got %s, want %s", got, want)
		}
		if last == 2 {
			read.Close()
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	if err := c.Wait(); err != nil || !killed.Stop() {
		t.Errorf("after SIGTERM: got %v, want exit status 0 within a minute", err)
	}
}

// A zeros returns size zero bytes from each Read.
type zeros struct{ size int }

func (z zeros) Read(p []byte) (int, error) { return min(len(p), z.size), nil }
