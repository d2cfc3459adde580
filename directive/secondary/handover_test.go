package secondary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
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

		c.server.Yield()
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
		c.server.Resume()
		c.Resume()
		time.Sleep(2 * time.Second)
		if got := p.asked(); got != "SOA" {
			t.Errorf("after a hand-over that has failed: got queries for %q, want SOA", got)
		}
		time.Sleep(2 * saveInterval)
		if got := content(); got == string(theirs) {
			t.Errorf("the file %v later: got %q, want the zone", 2*saveInterval, got)
		}

		c.server.Yield()
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

// withZone returns a copy that serves a zone which a primary confirmed at a time.
func withZone(t *testing.T, of options, text string, checked time.Time) *zoneCopy {
	t.Helper()
	z, err := receiveAll(nil, message(t, axfr, text))
	if err != nil {
		t.Fatal(err)
	}
	c := newCopy(of, nil, chaintest.QuietLog(), room{}, newServer(chaintest.QuietLog(), nil))
	c.checked = checked
	c.current.Store(z)
	return c
}

// saveCopies returns what a process passes that has some copies.
func saveCopies(t *testing.T, all ...*zoneCopy) []byte {
	t.Helper()
	var text bytes.Buffer
	from := newServer(chaintest.QuietLog(), nil)
	for _, c := range all {
		from.add(c)
	}
	if err := from.SaveState(&text); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// Whatever ends the process before, each zone that was received as a whole is used, and no other.
func TestReceiveIncomplete(t *testing.T) {
	now := time.Now()
	one := withZone(t, options{origin: origin, from: "one"}, "@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 5", now)
	two := withZone(t, options{origin: origin, from: "two"}, "@ 5 SOA 7\n@ 5 SOA 7", now)
	none := newCopy(options{origin: origin, from: "none"}, nil, chaintest.QuietLog(), room{}, newServer(chaintest.QuietLog(), nil))
	text, first := saveCopies(t, one, two, none), 0
	for _, c := range []*zoneCopy{one, two} {
		if part := saveCopies(t, c); bytes.HasPrefix(text, part) {
			first = len(part)
		}
	}

	for n := range len(text) + 1 {
		log, budget := new(chaintest.Log), memory.New(80<<20, memory.FromGroup)
		c := newServer(log.Logger(), nil)
		c.receive(bytes.NewReader(text[:n]), budget)

		want, complete := 0, n == 0 || n == first || n == len(text)
		if n >= first {
			want = 1
		}
		if n == len(text) {
			want = 2
		}
		if len(c.passed) != want || (log.Count("incomplete") == 0) != complete {
			t.Errorf("%d of %d bytes: got %d zones, want %d\n%s", n, len(text), len(c.passed), want, log)
		}
		c.drop()
		if used := budget.Part(memory.Transfers).Used; used != 0 {
			t.Errorf("%d of %d bytes: %d bytes reserved after drop, want 0", n, len(text), used)
		}
	}
}

// A zone for which there is no memory does not keep the next ones out.
func TestReceiveMemoryRefused(t *testing.T) {
	large := new(strings.Builder)
	fmt.Fprintln(large, "@ 5 SOA 5")
	for i := range 8000 {
		fmt.Fprintf(large, "n%d 5 TXT %s\n", i, strings.Repeat("x", 100))
	}
	text := saveCopies(t, withZone(t, options{origin: origin, from: "large"}, large.String()+"@ 5 SOA 5", time.Now()))
	text = append(text, saveCopies(t, withZone(t, options{origin: origin, from: "small"}, "@ 5 SOA 7\n@ 5 SOA 7", time.Now()))...)

	log, budget := new(chaintest.Log), memory.New(8<<20, memory.FromGroup)
	c := newServer(log.Logger(), nil)
	c.receive(bytes.NewReader(text), budget)
	if _, ok := c.take(options{origin: origin, from: "large"}); ok || log.Count("is transferred again") != 1 {
		t.Errorf("a zone without memory: got it %v, want one warning\n%s", ok, log)
	}
	held := budget.Part(memory.Transfers).Used
	if _, ok := c.take(options{origin: origin, from: "small"}); !ok || held == 0 || budget.Part(memory.Transfers).Used != 0 {
		t.Errorf("the zone after it: got it %v, with %d bytes reserved until then, want it and more than 0\n%s", ok, held, log)
	}
}

// Of two copies of one zone, which server blocks had, the newest version is for all copies of it.
func TestReceiveTwoCopies(t *testing.T) {
	of := options{origin: origin, from: "primary"}
	older := saveCopies(t, withZone(t, of, "@ 5 SOA 6\n@ 5 SOA 6", time.Now()))
	newer := saveCopies(t, withZone(t, of, "@ 5 SOA 7\n@ 5 SOA 7", time.Now()))
	for _, text := range [][]byte{slices.Concat(older, newer), slices.Concat(newer, older)} {
		budget := memory.New(80<<20, memory.FromGroup)
		c := newServer(chaintest.QuietLog(), nil)
		c.receive(bytes.NewReader(text), budget)

		for n := range 2 {
			at, ok := c.take(of)
			if !ok {
				t.Fatalf("copy %d: got no zone", n)
			}
			if serial, _ := at.zone.Serial(); serial != 7 {
				t.Errorf("copy %d: got serial number %d, want 7", n, serial)
			}
		}
		c.drop()
		if _, ok := c.take(of); ok || budget.Part(memory.Transfers).Used != 0 {
			t.Errorf("after drop: got a zone %v, and %d bytes reserved, want neither", ok, budget.Part(memory.Transfers).Used)
		}
	}
}

// A passed zone is served in place of the file's, and written, unless it has expired, is larger than
// max_size or comes from other primaries.
func TestLoadPassed(t *testing.T) {
	of := options{origin: origin, from: "primary", file: filepath.Join(t.TempDir(), "zone")}
	const old = "@ 5 SOA 5\n@ 5 SOA 5"
	passed := "@ 5 SOA 6\na 5 TXT " + strings.Repeat("x", 250) + "\nb 5 TXT " + strings.Repeat("x", 250) + "\n@ 5 SOA 6"
	if c := withZone(t, of, old, time.Now()); c.writeFile(c.current.Load(), c.checked) != nil {
		t.Fatal("no file")
	}

	for name, tt := range map[string]struct {
		from    string
		age     time.Duration
		maxSize int64
		serial  uint32
	}{
		"newer":           {"primary", time.Minute, 0, 6},
		"expired":         {"primary", 1000 * time.Hour, 0, 5},
		"max_size":        {"primary", time.Minute, 400, 5},
		"other primaries": {"other", time.Minute, 0, 5},
	} {
		from := of
		from.from = tt.from
		log := new(chaintest.Log)
		c := newCopy(of, []*client{new(client)}, log.Logger(), newRoom(memory.New(80<<20, memory.FromGroup), memory.Zones), newServer(chaintest.QuietLog(), nil))
		c.clients[0].limit.Store(tt.maxSize)
		c.server = newServer(log.Logger(), nil)
		c.server.receive(bytes.NewReader(saveCopies(t, withZone(t, from, passed, time.Now().Add(-tt.age)))), c.room.budget)

		s := schedule{copy: c}
		s.load()
		c.stopExpiry()
		if got := serialOf(c); got != tt.serial || s.unsaved != (tt.serial == 6) {
			t.Errorf("%s: got serial number %d, unsaved %v, want %d\n%s", name, got, s.unsaved, tt.serial, log)
		}
	}
}
