package cmd_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// The addresses of admin are passed to the new process, a TCP address and a Unix socket. A
// tail goes on. What was recorded is not passed. A process that cannot start leaves the
// socket to the old one.
func TestHandoverAdmin(t *testing.T) {
	dir, port, admin := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	corefile := func(more string) string {
		return fmt.Sprintf(".:%s {\n bind 127.0.0.1\n handover seamark.sock\n admin 127.0.0.1:%s\n whoami\n}\nb.example:%s {\n bind 127.0.0.1\n admin unix admin.sock\n whoami\n}\n%s", port, admin, port, more)
	}
	write(t, filepath.Join(dir, "Corefile"), corefile(""))
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	write(t, filepath.Join(dir, "broken"), corefile(fmt.Sprintf("c.example:%d {\n bind 127.0.0.1\n whoami\n}\n", used.Addr().(*net.TCPAddr).Port)))
	old := serve(t, dir, "", "-conf", "Corefile")
	tcp, unix := "--admin=127.0.0.1:"+admin, "--admin=unix:admin.sock"
	query := func(name string) {
		t.Helper()
		if _, err := ask("udp", port, name, dns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
	query("before.example.")
	query("before.b.example.")
	commandShows(t, dir, "before.example.", "top", "names", tcp)
	commandShows(t, dir, "before.b.example.", "top", "names", unix)
	socket, err := os.Lstat(filepath.Join(dir, "admin.sock"))
	if err != nil || socket.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("the socket: got %v and error %v, want mode 0600", socket, err)
	}
	if out, stderr, code := run(t, dir, "", "-conf", "broken"); code == 0 {
		t.Fatalf("with an address that is in use: got status 0\n%s%s", out, stderr)
	}
	old.until("Hand-over failed, continuing to serve")
	commandShows(t, dir, "Healthy", "status", tcp, unix)

	tail := program.Command(t, dir, "tail", unix)
	out, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := tail.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	messages := bufio.NewReader(stderr)
	message := func(want string) {
		t.Helper()
		if line, err := messages.ReadString('\n'); err != nil || line != want {
			t.Fatalf("tail: got %q and error %v, want %q", line, err, want)
		}
	}
	message("Showing the queries that unix:admin.sock answers. Ctrl-C ends.\n")
	next := serve(t, dir, "", "-conf", "Corefile")
	if code := old.exit(); code != 0 {
		t.Fatalf("exit status of the old process: got %d, want 0", code)
	}
	message("Connected to unix:admin.sock again: queries in between are not shown.\n")
	query("after.b.example.")
	lines := bufio.NewReader(out)
	_, _ = lines.ReadString('\n') // the headings
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, " after.b.example. ") {
		t.Errorf("tail: got %q and error %v, want the query to the new process", line, err)
	}
	if err := tail.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := tail.Wait(); err != nil {
		t.Errorf("tail after SIGINT: %v", err)
	}
	if after, err := os.Lstat(filepath.Join(dir, "admin.sock")); err != nil || !os.SameFile(socket, after) {
		t.Errorf("the socket after the hand-over: got error %v or another file, want the same", err)
	}
	commandShows(t, dir, "There are none.", "top", "names", tcp)
	if text := commandShows(t, dir, "after.b.example.", "top", "names", unix); strings.Contains(text, "before") {
		t.Errorf("top of the new process: got\n%s\nwant no query of the old one", text)
	}
	next.stop()
	if _, err := os.Lstat(filepath.Join(dir, "admin.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket after the exit: got error %v, want that it does not exist", err)
	}
}
