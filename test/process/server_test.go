//go:build unix

package process

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// limit is how long a condition may take on a busy machine.
	limit = time.Minute
	// attempt bounds one of several attempts.
	attempt = 10 * time.Second
	poll    = 10 * time.Millisecond
)

// A process is a server with its output.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

func startProcess(t testing.TB, c *exec.Cmd) *process {
	p := &process{t: t, cmd: c, ended: make(chan struct{})}
	c.Stdout, c.Stderr = p, p
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = c.Wait()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("output:\n%s", p.output())
		}
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// stop kills the process and waits for its end.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// startsOrEnds waits until the process has started or ended, and reports whether it has started.
func (p *process) startsOrEnds() bool {
	for end := time.Now().Add(limit); ; time.Sleep(poll) {
		select {
		case <-p.ended:
			return false
		default:
		}
		// Both servers write their name and version when they have started.
		if text := p.output(); strings.Contains(text, "CoreDNS-1.") || strings.Contains(text, "Seamark") {
			return true
		}
		if time.Now().After(end) {
			p.t.Fatalf("neither started nor ended within %v:\n%s", limit, p.output())
		}
	}
}

func (p *process) awaitServing() {
	if !p.startsOrEnds() {
		p.t.Fatalf("the server has ended:\n%s", p.output())
	}
}
