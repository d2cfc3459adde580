package admin_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/operate/adminclient"
)

// unixCorefile listens on the Unix socket PATH.
func unixCorefile(path string) string { return ". {\n admin unix " + path + "\n whoami\n}\n" }

// status returns the error of a request to a Unix socket.
func status(t *testing.T, path string) error {
	t.Helper()
	c, err := adminclient.New("unix:"+path, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Address() != "unix:"+path {
		t.Errorf("address of the client: got %s, want unix:%s", c.Address(), path)
	}
	s, err := c.Status(t.Context())
	if err == nil && s.Summary == "" {
		t.Errorf("status through %s: got %+v, want a summary", path, s)
	}
	return err
}

// The socket is private, remains the same over a reload, and is removed at the end.
func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	w := serve(t, unixCorefile(path))
	if err := status(t, path); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(path)
	if err != nil || before.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: got mode %v and error %v, want 0600", before.Mode(), err)
	}
	if err := w.load(unixCorefile(path) + "example.org {\n admin unix " + path + "\n whoami\n}\n"); err != nil {
		t.Fatal(err)
	}
	if err := status(t, path); err != nil {
		t.Errorf("after a reload: %v", err)
	}
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("after a reload: got error %v or another file, want the same socket", err)
	}
	other := filepath.Join(t.TempDir(), "other.sock")
	if err := w.load(unixCorefile(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the old socket after a reload with another path: got error %v, want that it does not exist", err)
	}
	if err := status(t, other); err != nil {
		t.Errorf("the new socket: %v", err)
	}
	w.stop()
	if err := w.load(". {\n whoami\n}\n"); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(filepath.Dir(other)); len(files) > 0 || err != nil {
		t.Errorf("after the end: got the files %v and error %v, want none", files, err)
	}
}

// A socket on which no process listens is replaced. One of a running process and other files
// are not.
func TestUnixInUse(t *testing.T) {
	dir := t.TempDir()
	stale, live, file := filepath.Join(dir, "stale"), filepath.Join(dir, "live"), filepath.Join(dir, "file")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: live, Net: "unix"}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, unixCorefile(stale))
	if err := status(t, stale); err != nil {
		t.Errorf("in place of a stale socket: %v", err)
	}
	for path, want := range map[string]string{
		live: "another process listens at " + live, file: file + " exists and is not a socket", filepath.Join(dir, "none", "sock"): "no such file or directory",
	} {
		if err := w.load(unixCorefile(path)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "listening on unix:"+path) {
			t.Errorf("%s: got error %v, want %q", path, err, want)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "text" {
		t.Errorf("the file: got %q and error %v, want it unchanged", text, err)
	}
	if c, err := net.Dial("unix", live); err != nil {
		t.Errorf("the socket of another process: %v", err)
	} else {
		_ = c.Close()
	}
}
