package cmd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// startActivated starts a server as systemd does for a socket unit: the sockets are
// the descriptors from 3 on, and LISTEN_PID is the server's process ID.
func startActivated(t *testing.T, dir string, files []*os.File) *process {
	t.Helper()
	c := program.Command(t, dir, "-conf", "Corefile")
	c.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	c.Env = append(c.Env, fmt.Sprintf("LISTEN_FDS=%d", len(files)))
	c.ExtraFiles = files
	return start(t, c, os.Stderr, "")
}

// openSockets opens a TCP and a UDP socket of one address, as systemd does.
func openSockets(t *testing.T) (files []*os.File, address string) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:"+freeport.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, s := range []interface{ File() (*os.File, error) }{tcp.(*net.TCPListener), udp.(*net.UDPConn)} {
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files, tcp.Addr().String()
}

// With socket activation a restart loses no query: those sent while no server runs
// wait in the sockets.
func TestSocketActivationRestart(t *testing.T) {
	long(t)
	t.Parallel()
	files, at := openSockets(t)
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(at)
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(".:%s {\n bind 127.0.0.1\n kubernetes cluster.local {\n  manifests objects\n }\n}\n", port))
	if err := os.Mkdir(filepath.Join(dir, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "objects", "a.yaml"), service)
	p := startActivated(t, dir, files)
	l := startLoad(t, serviceName, func() string { return at })
	restarts := 0
	for ; !l.done() && !t.Failed(); restarts++ {
		p.stop()
		p = startActivated(t, dir, files)
		l.more(5000)
	}
	l.wait(restarts)
	p.stop()
}

// A descriptor that is no socket is reported. Queries to a socket that no server block
// uses are refused.
func TestSocketActivationErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), ".:0 {\n bind 127.0.0.1\n whoami\n}\n")
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := program.Command(t, dir, "-conf", "Corefile")
	c.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	c.Env = append(c.Env, "LISTEN_FDS=1")
	c.ExtraFiles = []*os.File{file}
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "want a listening TCP socket or a UDP socket") {
		t.Errorf("a file as the inherited descriptor: got %v, %s, want an error about it", err, out)
	}

	files, at := openSockets(t)
	p := startActivated(t, dir, files)
	defer p.stop()
	if log := strings.Join(p.before, "\n"); !strings.Contains(log, "Queries to an inherited socket are refused: no server block listens there address="+at) {
		t.Errorf("an unused socket: got log\n%s\nwant a warning about it", log)
	}
	if reply, err := ask("udp", at, "a.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeRefused {
		t.Errorf("a query to an unused socket: got %v, error %v, want REFUSED", reply, err)
	}
}
