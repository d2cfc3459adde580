package cmd_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// background runs a program of another project until the end of the test.
func background(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		stuck := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		defer stuck.Stop()
		_ = c.Wait()
	})
}

// The first signal ends the wait for a FIFO that is written on and on: the report has what came before.
func TestShadowFIFOInterrupted(t *testing.T) {
	long(t)
	t.Parallel()
	traffic, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}

	command, out, stderr := shadowOfExamples(t, "--pcap", fifo)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
	defer stuck.Stop()

	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Write(traffic); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "16 queries with a response") {
			if err := command.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r, code := ended(t, command, out); code != 0 || r.Answered != 16 {
		t.Errorf("got %+v and status %d, want 16 queries with a response and 0", r, code)
	}
}

// queryFive sends five queries to the server at a port of 127.0.0.1, of which two are over TCP.
func queryFive(t *testing.T, port string) {
	t.Helper()
	for _, network := range []string{"udp", "tcp", "udp", "tcp", "udp"} {
		if _, err := ask(network, port, "web.shop.svc.cluster.local.", dns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
}

// Captures of the usual programs on the loopback interface, piped.
func TestShadowCaptured(t *testing.T) {
	long(t)
	t.Parallel()
	for _, c := range []struct {
		program string
		args    string // PORT is the port
	}{
		{"tcpdump", "-i lo -s 0 -U -w - port PORT"},
		{"tcpdump", "-i any -s 0 -U -w - port PORT"}, // Linux cooked, each packet twice or more
		{"dumpcap", "-i lo -f port&PORT -w - -q"},
	} {
		t.Run(c.program+" "+c.args, func(t *testing.T) {
			path := debian.Program(t, c.program)
			server := shadowServer(t, "")
			defer server.stop()
			args := strings.Fields(strings.ReplaceAll(c.args, "PORT", server.ports[0]))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "&", " ")
			}
			capturing := exec.Command(path, args...)
			packets, pipe, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer packets.Close()
			capturing.Stdout = pipe
			stderr, err := capturing.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			background(t, capturing)
			_ = pipe.Close()
			var text strings.Builder
			for lines := bufio.NewReader(stderr); ; {
				line, err := lines.ReadString('\n')
				text.WriteString(line)
				if strings.Contains(text.String(), "permission") {
					t.Skipf("capturing is not permitted: %s", text.String())
				}
				if err != nil {
					t.Fatalf("%s ended: %s", c.program, text.String())
				}
				if strings.Contains(line, "istening on") || strings.HasPrefix(line, "File: ") {
					break
				}
			}
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // ends with the program
			command := program.Command(t, t.TempDir(), "shadow", "--pcap", "-", "--port", server.ports[0], "--manifests", absolute(t, "../examples"), "--limit", "5", "--output", "json", "--quiet")
			var out bytes.Buffer
			command.Stdin, command.Stdout, command.Stderr = packets, &out, os.Stderr
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			queryFive(t, server.ports[0])
			r, code := ended(t, command, &out)
			if code != 0 || r.Answered != 5 || r.Same != 5 {
				t.Errorf("got %+v and status %d, want five equal answers", r, code)
			}
		})
	}
}

// Other servers send dnstap messages to the command.
func TestShadowServers(t *testing.T) {
	long(t)
	t.Parallel()
	const zone = `$ORIGIN cluster.local.
@ 5 SOA ns.dns hostmaster 1 7200 1800 86400 5
@ 5 NS ns.dns
ns.dns 5 A 10.96.0.10
web.shop.svc 5 A 10.96.10.10
`
	for _, c := range []struct{ program, args, module, configuration string }{
		{"unbound", "-d -c CONF", "", `server:
  interface: 127.0.0.1@PORT
  do-daemonize: no
  use-syslog: no
  chroot: ""
  username: ""
  pidfile: ""
  directory: "DIR"
  local-zone: "cluster.local." static
  local-data: "web.shop.svc.cluster.local. 5 IN A 10.96.10.10"
remote-control:
  control-enable: no
dnstap:
  dnstap-enable: yes
  dnstap-bidirectional: yes
  dnstap-socket-path: "SOCKET"
  dnstap-log-client-query-messages: yes
  dnstap-log-client-response-messages: yes
`},
		{"knotd", "-c CONF", "/usr/lib/*/knot/modules-*/dnstap.so", `server:
  rundir: "DIR"
  listen: 127.0.0.1@PORT
database:
  storage: "DIR/db"
mod-dnstap:
  - id: tap
    sink: unix:SOCKET
template:
  - id: default
    storage: "DIR"
    global-module: mod-dnstap/tap
zone:
  - domain: cluster.local
    file: zone
`},
		{"named", "-g -c CONF", "", `options {
  directory "DIR";
  pid-file "DIR/pid";
  session-keyfile none;
  listen-on port PORT { 127.0.0.1; };
  listen-on-v6 { none; };
  recursion no;
  dnstap { client; auth; };
  dnstap-output unix "SOCKET";
};
controls { };
zone "cluster.local" { type primary; file "zone"; };
`},
	} {
		t.Run(c.program, func(t *testing.T) {
			path := debian.Program(t, c.program)
			if c.module != "" {
				debian.Program(t, c.module)
			}
			dir, err := os.MkdirTemp("", "shadow") // short, for the path of a socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			socket, port := filepath.Join(dir, "s"), freeport.Reserve(t)
			file := filepath.Join(dir, "conf")
			write(t, filepath.Join(dir, "zone"), zone)
			write(t, file, strings.NewReplacer("DIR", dir, "PORT", port, "SOCKET", socket).Replace(c.configuration))
			command, _, out := listenShadow(t, "unix:"+socket, "--manifests", absolute(t, "../examples"), "--limit", "50")
			server := exec.Command(path, strings.Fields(strings.ReplaceAll(c.args, "CONF", file))...)
			background(t, server)
			// The server drops messages until it is connected, and may fail until it is ready.
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
					for _, network := range []string{"udp", "tcp"} {
						_, _ = ask(network, port, "web.shop.svc.cluster.local.", dns.TypeA)
					}
				}
			}()
			r, code := ended(t, command, out)
			close(stop)
			<-stopped
			for _, g := range r.Groups {
				if !strings.HasPrefix(g.Cause, "SERVFAIL") && !strings.HasPrefix(g.Cause, "REFUSED") {
					t.Errorf("got a difference: %+v", g)
				}
			}
			if code > 1 || r.Answered != 50 || r.Compared != 50 || r.Same < 25 {
				t.Errorf("got %+v and status %d, want 50 queries with equal answers", r, code)
			}
		})
	}
}
