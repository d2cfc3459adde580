package cmd_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/program"
)

// A process is a running server.
type process struct {
	*exec.Cmd
	t      *testing.T
	ports  []string      // the ports in the lines about zones and addresses
	before []string      // the lines of output up to the greeting
	lines  chan string   // the lines after it
	done   chan struct{} // closed when the process has ended
}

// serve starts a server and waits for its greeting.
func serve(t *testing.T, dir, in string, args ...string) *process {
	t.Helper()
	return serveTo(t, os.Stderr, dir, in, args...)
}

func serveTo(t *testing.T, stderr io.Writer, dir, in string, args ...string) *process {
	t.Helper()
	return start(t, program.Command(t, dir, args...), stderr, in)
}

// start runs c and waits for its greeting.
func start(t *testing.T, c *exec.Cmd, stderr io.Writer, in string) *process {
	t.Helper()
	p := launch(t, c, stderr, in)
	p.greeting()
	return p
}

// launch runs c.
func launch(t *testing.T, c *exec.Cmd, stderr io.Writer, in string) *process {
	t.Helper()
	p := &process{Cmd: c, t: t, lines: make(chan string, 1000), done: make(chan struct{})}
	p.Stdin, p.Stderr = strings.NewReader(in), stderr
	p.WaitDelay = 10 * time.Second // for a child that keeps the output open
	r, w := io.Pipe()
	p.Stdout = w
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait()
		w.Close()
		close(p.done)
	}()
	t.Cleanup(p.end)
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			select {
			case p.lines <- lines.Text():
			default: // a query log that no test reads
			}
		}
	}()
	return p
}

// greeting waits for the greeting of the process.
func (p *process) greeting() {
	p.t.Helper()
	for {
		line := p.line()
		p.before = append(p.before, line)
		if strings.HasPrefix(line, "linux/") {
			return
		}
		if before, _, _ := strings.Cut(line, " on "); strings.Contains(before, ".:") {
			p.ports = append(p.ports, before[strings.LastIndex(before, ":")+1:])
		}
	}
}

// end kills the process if it still runs, and logs its output if the test has failed.
func (p *process) end() {
	_ = p.Process.Kill()
	<-p.done
	if p.t.Failed() {
		text := strings.Join(p.before, "\n")
		for line := range p.lines {
			text += "\n" + line
		}
		p.t.Logf("output of process %d that no check has read:\n%s", p.Process.Pid, text)
	}
}

func (p *process) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the server ended, want another line of output")
		}
		return line
	case <-time.After(time.Minute):
		p.t.Fatal("no line of output within a minute")
	}
	return ""
}

// until reads lines up to one that contains text.
func (p *process) until(text string) {
	p.t.Helper()
	for !strings.Contains(p.line(), text) {
	}
}

// never checks that the rest of the output does not contain text. The process has ended. Its log is on the
// standard output.
func (p *process) never(text string) {
	p.t.Helper()
	for line := range p.lines {
		if strings.Contains(line, text) {
			p.t.Errorf("got the line %q, want none with %q", line, text)
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stop sends SIGTERM and checks that the exit status is 0.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		p.t.Errorf("exit status after SIGTERM: got %d, want 0", code)
	}
}

func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Fatal("the server did not end within a minute")
	}
	return p.ProcessState.ExitCode()
}

func ask(network, port, name string, qtype uint16) (*dns.Msg, error) {
	c := dns.Client{Net: network, Timeout: 10 * time.Second}
	at := port
	if !strings.Contains(port, ":") {
		at = "127.0.0.1:" + port
	}
	reply, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, qtype), at)
	return reply, err
}
