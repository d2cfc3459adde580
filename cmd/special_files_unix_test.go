//go:build unix

package cmd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/test/program"
)

// fifo makes a FIFO that has no writer.
func fifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file that is a FIFO, a device or a directory is refused with a reason, and never waited for.
func TestSpecialFilesAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	fifo(t, filepath.Join(dir, "fifo"))
	for _, file := range []string{"fifo", "/dev/zero", "."} {
		for _, directive := range []string{
			"tls FILE FILE", "tls FILE FILE FILE", "admin localhost:1 {\ntoken FILE\n}", "tsig {\nsecrets FILE\n}",
			"file FILE a.test", "geoip FILE", "forward . tls://127.0.0.1 {\ntls FILE FILE\n}",
			"forward . tls://127.0.0.1 {\ntls FILE\n}", "prometheus localhost:1 {\ntls FILE FILE\n}",
			"kubernetes a.test {\nkubeconfig FILE\n}", "kubernetes a.test {\nendpoint https://127.0.0.1:1\ntls FILE FILE FILE\n}",
			"loadbalance weighted FILE", "autopath FILE", "import FILE",
		} {
			if file == "." && strings.HasPrefix(directive, "import") {
				continue
			}
			write(t, filepath.Join(dir, "Corefile"), "example.org {\n"+strings.ReplaceAll(directive, "FILE", file)+"\nwhoami\n}\n")
			_, stderr, code := run(t, dir, "", "check", "--strict", "Corefile")
			if code == 0 || !strings.Contains(stderr, "not a regular file") && !strings.Contains(stderr, "directory") {
				t.Errorf("%s as %s: got status %d and error output %q, want a refusal with its reason", file, directive, code, stderr)
			}
		}
	}
}

// A Corefile that is a FIFO is refused, and the server ends at a signal while it reads standard
// input, which has no end.
func TestCorefileFromPipes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	fifo(t, filepath.Join(dir, "fifo"))
	if _, stderr, code := run(t, dir, "", "-conf", "fifo"); code != 1 || !strings.Contains(stderr, "read fifo: not a regular file") {
		t.Errorf("-conf fifo: got status %d and error output %q", code, stderr)
	}
	if out, stderr, code := run(t, dir, ".:1053 {\nwhoami\n}\n", "check", "/dev/stdin"); code != 0 {
		t.Errorf("check /dev/stdin: got %q, error output %q and status %d", out, stderr, code)
	}

	for _, conf := range []string{"stdin", "/dev/stdin"} {
		c := program.Command(t, dir, "-conf", conf)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// A pipe holds 64 KB: once more is written, the process reads.
		if _, err := in.Write(bytes.Repeat([]byte("#\n"), 64<<10)); err != nil {
			t.Fatal(err)
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case err := <-ended:
			if _, ok := err.(*exec.ExitError); !ok {
				t.Errorf("-conf %s, SIGTERM: got %v, want the end by the signal", conf, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("-conf %s: the process has not ended a minute after SIGTERM", conf)
			_ = c.Process.Kill()
			<-ended
		}
		_ = in.Close()
	}
}

// The pidfile is neither a link, which would be followed, nor a FIFO.
func TestPidfileFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), ".:0 {\nbind 127.0.0.1\nwhoami\n}\n")
	write(t, filepath.Join(dir, "precious"), "content")
	fifo(t, filepath.Join(dir, "fifo"))
	if err := os.Symlink("precious", filepath.Join(dir, "pid")); err != nil {
		t.Fatal(err)
	}

	for _, args := range []string{"-pidfile pid", "-pidfile fifo"} {
		_, stderr, code := run(t, dir, "", append([]string{"-conf", "Corefile", "-quiet"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(stderr, "symbolic link") && !strings.Contains(stderr, "fifo: no such device") {
			t.Errorf("%s: got status %d and error output %q, want a refusal", args, code, stderr)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "precious")); err != nil || string(text) != "content" {
		t.Errorf("the target of the link: got %q, %v; want it unchanged", text, err)
	}
}
