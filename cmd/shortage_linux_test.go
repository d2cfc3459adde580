package cmd_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/program"
	"github.com/seamark/seamark/test/race"
)

// Clients with more TCP connections than the process has file descriptors get an
// answer over each, and leave descriptors for upstreams.
func TestFewDescriptors(t *testing.T) {
	long(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(
		"example.org:0 {\n bind 127.0.0.1\n whoami\n}\nstub.:0 {\n bind 127.0.0.1\n forward . %s\n}\n", startNamedServer(t, "stub")))
	c := program.Command(t, dir, "-conf", "Corefile")
	c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n 64 && exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	p := start(t, c, os.Stderr, "")
	at := "127.0.0.1:" + p.ports[0]
	query := new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA)
	for i := range 200 {
		// Each address is another client.
		d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
		conn, err := d.Dial("tcp", at)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, _, err := (&dns.Client{Timeout: 20 * time.Second}).ExchangeWithConn(query, &dns.Conn{Conn: conn}); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	reply, err := ask("udp", p.ports[1], "a.stub.", dns.TypeA)
	if err != nil || len(reply.Answer) != 1 {
		t.Errorf("a.stub. A: got %v, error %v, want one address from the upstream", reply, err)
	}
	p.stop()
	p.never("too many open files")
}

// A log on a full disk loses lines and nothing else.
func TestLogOnFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	dir := t.TempDir()
	at := unusedAddress(t) // the server cannot print its port
	write(t, filepath.Join(dir, "Corefile"), "example.org {\n log\n errors\n whoami\n}\n")
	c := program.Command(t, dir, "serve", "--conf", "Corefile", "--listen", at)
	c.Stdout, c.Stderr = full, full
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: c, t: t, done: make(chan struct{})}
	go func() { _ = c.Wait(); close(p.done) }()
	deadline := time.Now().Add(time.Minute)
	for n := 0; n < 100; {
		if _, err := ask("udp", at, "a.example.org.", dns.TypeA); err == nil {
			n++
		} else if time.Now().After(deadline) {
			t.Fatalf("a.example.org. A: %v after %d answers", err, n)
		}
	}
	p.stop()
}

// 10,000 idle TCP connections, of a hundred clients, cost at most 20 MB, and queries over them,
// over other connections and over UDP are answered.
func TestManyIdleConnections(t *testing.T) {
	long(t)
	count := 10_000
	if race.Enabled { // which needs more memory, and a second for 500 connections
		count = 1_000
	}
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(count)+500 {
		t.Skipf("the limit of file descriptors is %d, error %v", limit.Cur, err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), "example.org:0 {\n bind 127.0.0.1\n whoami\n}\n")
	p := serve(t, dir, "", "-conf", "Corefile")
	defer p.stop()
	answered := func(network string) {
		t.Helper()
		if reply, err := ask(network, p.ports[0], "a.example.org.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeSuccess {
			t.Errorf("a.example.org. A over %s: got %v, error %v, want an answer", network, reply, err)
		}
	}
	answered("tcp")
	before := residentMemory(t, p)
	query := new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA)
	var last net.Conn
	for i := range count {
		d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 7, byte(i%100+1))}}
		conn, err := d.Dial("tcp", "127.0.0.1:"+p.ports[0])
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		if last = conn; i%100 == 0 {
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			if _, _, err := (&dns.Client{Timeout: 20 * time.Second}).ExchangeWithConn(query, &dns.Conn{Conn: conn}); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
	}
	after := residentMemory(t, p)
	t.Logf("%d connections: %.1f MB of resident memory, and %.1f MB before", count, after, before)
	if after-before > 20 && !race.Enabled {
		t.Errorf("%d connections: %.1f MB of resident memory more, want at most 20", count, after-before)
	}
	if _, _, err := (&dns.Client{Timeout: 20 * time.Second}).ExchangeWithConn(query, &dns.Conn{Conn: last}); err != nil {
		t.Errorf("the last connection: %v", err)
	}
	answered("tcp")
	answered("udp")
}

// On a full disk, lines of the log are lost, and a pidfile is an error that leaves no file.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "Corefile"), "example.org:0 {\n bind 127.0.0.1\n log\n errors\n whoami\n}\n")
	// onFullDisk returns the server on a file system without space, which only it sees.
	onFullDisk := func(args ...string) *exec.Cmd {
		c := program.Command(t, dir, append([]string{"-conf", "Corefile"}, args...)...)
		const script = `mount -t tmpfs -o size=16k tmpfs disk && : >disk/log && : >disk/pid && { cat /dev/zero >disk/fill 2>/dev/null; rm disk/pid; exec "$0" "$@" 2>>disk/log; }`
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", script, c.Path}, c.Args[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return c
	}
	p := start(t, onFullDisk(), os.Stderr, "")
	for range 100 {
		if reply, err := ask("udp", p.ports[0], "a.example.org.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeSuccess {
			t.Fatalf("a.example.org. A: got %v, error %v, want an answer", reply, err)
		}
	}
	in := func(name string) string {
		return fmt.Sprintf("/proc/%d/root%s", p.Process.Pid, filepath.Join(disk, name))
	}
	if text, err := os.ReadFile(in("log")); err != nil || len(text) > 0 {
		t.Errorf("got a log of %d bytes with error %v, want no space for it", len(text), err)
	}
	if err := os.WriteFile(in("probe"), []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing another file: got error %v, want %v", err, syscall.ENOSPC)
	}
	p.stop()

	c := onFullDisk("-pidfile", "disk/pid")
	c.Args[2] = strings.Replace(c.Args[2], "exec", "", 1) + "; ls disk >&2"
	c.Args[2] = strings.Replace(c.Args[2], " 2>>disk/log", "", 1)
	text, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "writing the process ID: write disk/pid: no space left on device") || strings.Contains(string(text), "\npid\n") {
		t.Errorf("a pidfile on a full disk: got error %v and\n%s\nwant that it cannot be written, and no file", err, text)
	}
}
