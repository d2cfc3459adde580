package cmd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/program"
)

// A command whose output cannot be written has failed.
func TestOutputNotWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no device that is full: %v", err)
	}
	defer full.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good"), ".:0 {\n    whoami\n}\n")
	write(t, filepath.Join(dir, "ugly"), ".:0 {\nwhoami\n}\n")
	for _, args := range []string{"version", "version -o json", "--version", "--plugins", "--help", "check good", "check good -o json", "plan good", "fmt --diff ugly", "convert -- dnsmasq --cache-size=1000", "completion bash"} {
		c := program.Command(t, dir, strings.Fields(args)...)
		var stderr bytes.Buffer
		c.Stdout, c.Stderr = full, &stderr
		_ = c.Run() // the status is checked
		if code := c.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("seamark %s >/dev/full: got error output %q, status %d, want the cause and status 1", args, stderr.String(), code)
		}
	}
}

// Errors have escapes in place of control characters of their input.
func TestErrorControlCharacters(t *testing.T) {
	for _, args := range [][]string{{"check", "a\x1b[31m"}, {"fmt", "a\x1b[31m"}, {"diff", "--against", "127.0.0.1", "--manifests", "a\x1b[31m"}, {"diff", "--against", "a\x1b[31m:x"}} {
		_, stderr, code := run(t, t.TempDir(), "", args...)
		if !strings.Contains(stderr, `a\u001b[31m`) && !strings.Contains(stderr, `a\x1b[31m`) || strings.Contains(stderr, "\x1b") || code == 0 {
			t.Errorf("seamark %q: got error output %q, status %d, want an escape", args, stderr, code)
		}
	}
}
