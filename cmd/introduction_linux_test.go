package cmd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/seamark/seamark/test/program"
)

// openTerminal returns both ends of a pseudoterminal.
func openTerminal(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudoterminal: %v", err)
	}
	t.Cleanup(func() { _ = control.Close() })

	var number, unlock uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlock} {
		if _, _, err := syscall.Syscall(syscall.SYS_IOCTL, control.Fd(), request, uintptr(unsafe.Pointer(value))); err != 0 {
			t.Skipf("no pseudoterminal: %v", err)
		}
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminal: %v", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return control, terminal
}

// On a terminal, the program's name alone explains the program where there is no Corefile, and
// serves where there is one. Without a terminal, TestServeWithoutCorefile has what CoreDNS does.
func TestNameAloneOnTerminal(t *testing.T) {
	_, terminal := openTerminal(t)
	alone := func(dir string, args ...string) (string, int) {
		var stderr bytes.Buffer
		c := program.Command(t, dir, args...)
		c.Stdin, c.Stdout, c.Stderr = terminal, terminal, &stderr
		_ = c.Run()
		return stderr.String(), c.ProcessState.ExitCode()
	}

	if got, code := alone(t.TempDir()); code != 2 || !strings.Contains(got, "seamark doctor") || strings.Count(got, "\n") != 6 {
		t.Errorf("without a Corefile: got status %d and\n%s\nwant 2 and six lines", code, got)
	}

	dir := t.TempDir()
	write(t, filepath.Join(dir, "Corefile"), ". {\n whoam\n}\n")
	if got, code := alone(dir); code != 1 || !strings.Contains(got, "Corefile:2: unknown directive") {
		t.Errorf("with an invalid Corefile: got status %d and\n%s\nwant 1 and its error", code, got)
	}
	if got, code := alone(t.TempDir(), "-conf", "nowhere"); code != 1 || !strings.Contains(got, "nowhere") {
		t.Errorf("with a flag: got status %d and\n%s\nwant 1 and an error about the file", code, got)
	}
}

// The help shows the commands of today. Those of older generations, which help --all lists, work and
// have their pages in the manual.
func TestHelpOlderGenerations(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args  string
		older bool
	}{{"--help", false}, {"-h", false}, {"help", false}, {"help --all", true}} {
		out, stderr, code := run(t, dir, "", strings.Fields(c.args)...)
		shown := strings.Contains(out, "\n  dnsmasq-nanny ") && strings.Contains(out, "\n  kube2sky ")
		if shown != c.older || code != 0 || !strings.Contains(out, "\n  doctor ") || !strings.Contains(out, "Older generations") {
			t.Errorf("%s: status %d, older commands %t, want 0 and %t\n%s%s", c.args, code, shown, c.older, out, stderr)
		}
	}
	if out, _, code := run(t, dir, "", "help", "sidecar"); code != 0 || !strings.Contains(out, "seamark sidecar") {
		t.Errorf("help sidecar: status %d\n%s", code, out)
	}
	if out, _, _ := run(t, dir, "", "__complete", "dnsm"); !strings.Contains(out, "dnsmasq-nanny") {
		t.Errorf("completion of dnsm: got\n%s\nwant dnsmasq-nanny", out)
	}
}
