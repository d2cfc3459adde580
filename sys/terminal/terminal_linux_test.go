package terminal

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// /dev/null is a character device, and no terminal; a pseudoterminal is one.
func TestIs(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for _, stream := range []any{null, strings.NewReader(""), nil} {
		if Is(stream) {
			t.Errorf("%T: got a terminal, want none", stream)
		}
	}

	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudoterminal: %v", err)
	}
	defer func() { _ = pty.Close() }()
	if !Is(pty) {
		t.Error("pseudoterminal: got no terminal, want one")
	}
	if got := Columns(null); got != 0 {
		t.Errorf("/dev/null: got %d columns, want 0", got)
	}

	for set, want := range map[uint16]int{0: 80, 132: 132} {
		if err := unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: set}); err != nil {
			t.Fatal(err)
		}
		if got := Columns(pty); got != want {
			t.Errorf("pseudoterminal of %d columns: got %d, want %d", set, got, want)
		}
	}
}
