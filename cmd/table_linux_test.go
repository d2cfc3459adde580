package cmd_test

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	mdns "github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
	"golang.org/x/sys/unix"
)

// openNarrow returns both ends of a pseudoterminal with 80 columns.
func openNarrow(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, terminal = openTerminal(t)
	if err := unix.IoctlSetWinsize(int(control.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return control, terminal
}

// onTerminal returns what a command writes to a terminal.
func onTerminal(t *testing.T, dir string, args ...string) string {
	t.Helper()
	control, terminal := openNarrow(t)
	written := make(chan string)
	go func() {
		text, _ := io.ReadAll(control) // its end is an error
		written <- string(text)
	}()
	c := program.Command(t, dir, args...)
	c.Stdout, c.Stderr = terminal, terminal
	_ = c.Run() // the status of status is that of the server
	_ = terminal.Close()
	return strings.ReplaceAll(<-written, "\r\n", "\n")
}

// Long names are shortened in the middle on a terminal of 80 columns, so that each row has one line.
// Programs get them whole, as text and as JSON.
func TestLongNamesOnTerminal(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port, admin := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	zone := strings.Repeat("z", 60) + ".cluster.local."
	name := "first." + strings.Repeat("n", 60) + ".shop.svc." + zone
	write(t, filepath.Join(dir, "Corefile"), ".:"+port+" {\n bind 127.0.0.1\n admin 127.0.0.1:"+admin+
		"\n kubernetes "+zone+" {\n  manifests "+examples+"\n }\n}\n")
	server := serve(t, dir, "", "-conf", "Corefile")
	defer server.stop()
	at := "--admin=127.0.0.1:" + admin
	commandShows(t, dir, "Healthy", "status", at)
	if _, err := ask("udp", port, name, mdns.TypeA); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		command, begin, end, whole string
	}{
		{"top names", "first.nnn", "cluster.local.", name},
		{"top nxdomain", "first.nnn", "cluster.local.", name},
		{"status", "data zzzzz", "cluster.local.", zone},
	} {
		args := append(strings.Fields(c.command), at)
		commandShows(t, dir, c.whole, args...)
		commandShows(t, dir, c.whole, append(args, "-o", "json")...)

		got, shortened := onTerminal(t, dir, append(args, "--color=never")...), false
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			i, j := strings.Index(line, c.begin), strings.LastIndex(line, c.end)
			shortened = shortened || i >= 0 && j > i && strings.Contains(line[i:j], "…")
			if n := utf8.RuneCountInString(line); n > 80 && i >= 0 { // sentences may have two lines
				t.Errorf("%s: got %d columns, want 80 at most: %q", c.command, n, line)
			}
		}
		if !shortened || strings.Contains(got, c.whole) {
			t.Errorf("%s: got\n%s\nwant %q shortened in the middle", c.command, got, c.whole)
		}
	}
	testTailOnTerminal(t, dir, at, port, name)
}

// testTailOnTerminal tests the lines of a tail, which goes on until it is interrupted.
func testTailOnTerminal(t *testing.T, dir, at, port, name string) {
	control, terminal := openNarrow(t)
	tail := program.Command(t, dir, "tail", at)
	tail.Stdout, tail.Stderr = terminal, io.Discard
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}

	shown := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(control); lines.Scan(); {
			if line := lines.Text(); strings.Contains(line, "first") {
				shown <- line
				return
			}
		}
		close(shown)
	}()
	asked, end := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer asked.Stop()
	for {
		select {
		case line := <-shown:
			line = strings.TrimSpace(line)
			if utf8.RuneCountInString(line) > 80 || !strings.Contains(line, "…") || !strings.HasSuffix(line, " kubernetes from shop") {
				t.Errorf("tail: got %q, want 80 columns at most, a shortened name and the directive", line)
			}
		case <-asked.C:
			_, _ = ask("udp", port, name, mdns.TypeA) // the tail may begin later
			continue
		case <-end:
			t.Error("tail: got no line with the name")
		}
		break
	}
	if err := tail.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = tail.Wait() // TestTailSlowOutput has the status
}
