package secondary

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// While another process replaces this one, only that writes the file. This process writes the newest version
// once it answers alone again, and asks the primary, whose NOTIFY messages the other one may have received.
func TestFileDuringHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "zone")
		c, p, log := startCopyIn(t, 0, nil, func(c *zoneCopy) { c.file = file })
		p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\n@ 5 SOA 6"}})
		theirs := []byte("written by the other process")
		content := func() string {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}

		c.files.Yield()
		if err := os.WriteFile(file, theirs, 0o600); err != nil {
			t.Fatal(err)
		}
		c.notify()
		time.Sleep(2 * saveInterval)
		if got := serialOf(c); got != 6 {
			t.Fatalf("got serial number %d, want 6\n%s", got, log)
		}
		if got := content(); got != string(theirs) {
			t.Errorf("the file while the other process writes it: got %q, want it unchanged", got)
		}

		p.set(0, map[uint16][]string{soaQuery: {newer}})
		c.files.Resume()
		c.Resume()
		time.Sleep(2 * time.Second)
		if got := p.asked(); got != "SOA" {
			t.Errorf("after a hand-over that has failed: got queries for %q, want SOA", got)
		}
		time.Sleep(2 * saveInterval)
		if got := content(); got == string(theirs) {
			t.Errorf("the file %v later: got %q, want the zone", 2*saveInterval, got)
		}

		c.files.Yield()
		if err := os.WriteFile(file, theirs, 0o600); err != nil {
			t.Fatal(err)
		}
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 7"}, ixfr: {"@ 5 SOA 7\n@ 5 SOA 6\n@ 5 SOA 7\n@ 5 SOA 7"}})
		c.notify()
		time.Sleep(2 * time.Second)
		c.Stop()
		if got := content(); got != string(theirs) {
			t.Errorf("the file after the end of this process: got %q, want it unchanged", got)
		}
	})
}
