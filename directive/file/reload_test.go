package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

// later makes a file look as if it had been written long after it was read.
func later(t *testing.T, path string, hours int) {
	t.Helper()
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Duration(hours)*time.Hour)); err != nil {
		t.Fatal(err)
	}
}

const never = " {\n reload 0\n}" // the tests look themselves

func TestChangesByTheSerial(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+never, nil)
	for i, c := range []struct {
		serial  int
		address string
		want    string
		warned  bool
	}{
		{1, "192.0.2.2", "NOERROR c0000201", true},
		{2, "192.0.2.3", "NOERROR c0000203", false},
		{1, "192.0.2.4", "NOERROR c0000204", false}, // backwards is another one, too
		{1, "192.0.2.5", "NOERROR c0000204", true},
	} {
		write(t, db, fmt.Sprintf(head, c.serial)+"a A "+c.address+"\n")
		later(t, db, i+1)
		s.source().look()
		s.source().look() // does nothing
		got := s.ask("a.example.org", wire.TypeA)
		warning := s.log.take("WARN")
		if got != c.want || strings.Count(warning, "its serial has not") != map[bool]int{true: 1}[c.warned] {
			t.Errorf("step %d: %s, want %s, log %q", i, got, c.want, warning)
		}
	}
}

func TestChangesByTheTime(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+" {\n reload 0\n reload_by_mtime\n}", nil)
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.2\n")
	later(t, db, 1)
	s.source().look()
	if got := s.ask("a.example.org", wire.TypeA); got != "NOERROR c0000202" {
		t.Error(got)
	}
}

// A writer that is not done when its file is read is waited for, though the
// serial stays the same.
func TestHalfAFileIsReadAgain(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1))
	s := run(t, "file "+db+never, nil)
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.2\n")
	if err := os.Chtimes(db, time.Time{}, s.source().last.when.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	s.source().look()
	if got := s.ask("a.example.org", wire.TypeA); got != "NOERROR c0000202" {
		t.Error(got)
	}
}

// A file with an error changes nothing, and is said and counted once.
func TestABrokenFileKeepsTheZone(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+never, nil)
	for i, c := range []struct{ text, log, failed, want string }{
		{fmt.Sprintf(head, 2) + "a A 192.0.2.300\n", `"plugin/file: ` + db + `:3: bad A A: \"192.0.2.300\""`, "1", "NOERROR c0000201"},
		{"", `"plugin/file: ` + db + `: no SOA record for example.org."`, "2", "NOERROR c0000201"},
		{fmt.Sprintf(head, 3) + "a A 192.0.2.3\n", "", "2", "NOERROR c0000203"},
	} {
		write(t, db, c.text)
		later(t, db, i+1)
		for range 3 {
			s.source().look()
		}
		if got := s.log.take("ERROR"); got != c.log {
			t.Errorf("step %d: log %s, want %s", i, got, c.log)
		}
		if got := s.ask("a.example.org", wire.TypeA); got != c.want || s.failed() != c.failed {
			t.Errorf("step %d: %s, want %s; %s failed, want %s", i, got, c.want, s.failed(), c.failed)
		}
	}
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	s.source().look()
	if got := s.log.take("ERROR"); got != `"plugin/file: `+db+`: no such file or directory"` {
		t.Errorf("log %s", got)
	}
	if got := s.ask("a.example.org", wire.TypeA); got != "NOERROR c0000203" {
		t.Errorf("after the file had gone: %s", got)
	}
}

// What cannot be read, though it is there, is said and counted once.
func TestWhatIsNoFileIsSaidOnce(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+never, nil)
	if err := errors.Join(os.Remove(db), os.Mkdir(db, 0o755)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.source().look()
	}
	if got := s.log.take("ERROR"); got != `"plugin/file: `+db+`: not a file"` || s.failed() != "1" {
		t.Errorf("%s failed, log %s", s.failed(), got)
	}
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	write(t, db, fmt.Sprintf(head, 2)+"a A 192.0.2.2\n")
	s.source().look()
	if got := s.ask("a.example.org", wire.TypeA); got != "NOERROR c0000202" {
		t.Error(got)
	}
}

// A file that could not be opened is looked at again when it may be.
func TestModeIsPartOfAVersion(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1))
	s := run(t, "file "+db+never, nil)
	if err := os.Chmod(db, 0o644); err != nil {
		t.Fatal(err)
	}
	if !s.source().last.stale() {
		t.Error("it is the same as before")
	}
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in ten seconds: not %s", what)
		}
	}
}

// A ConfigMap is mounted as links into a folder that is exchanged whole. The
// change is seen without polling.
func TestChangesOfAConfigMap(t *testing.T) {
	mount := t.TempDir()
	version := func(n int) {
		write(t, filepath.Join(mount, fmt.Sprintf("..%d", n), "db"), fmt.Sprintf(head, n)+fmt.Sprintf("a A 192.0.2.%d\n", n))
		if err := os.Symlink(fmt.Sprintf("..%d", n), filepath.Join(mount, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version(1)
	if err := os.Symlink("..data/db", filepath.Join(mount, "db")); err != nil {
		t.Fatal(err)
	}
	s := run(t, "file "+filepath.Join(mount, "db")+" {\n reload 1h\n}", nil)
	for n := 2; n < 5; n++ {
		version(n)
		want := fmt.Sprintf("NOERROR c00002%02x", n)
		eventually(t, want, func() bool { return s.ask("a.example.org", wire.TypeA) == want })
	}
}

// A zone file that is a link, or has another name elsewhere as one that is
// mounted alone into a container, is written there: events tell of that, too.
func TestChangesInAnotherFolder(t *testing.T) {
	for name, link := range map[string]func(from, to string) error{"link": os.Symlink, "mount": os.Link} {
		t.Run(name, func(t *testing.T) {
			real, db := filepath.Join(t.TempDir(), "real"), filepath.Join(t.TempDir(), "db")
			write(t, real, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
			if err := link(real, db); err != nil {
				t.Fatal(err)
			}
			s := run(t, "file "+db+" {\n reload 1h\n}", nil)
			for n := 2; n < 5; n++ {
				if err := os.WriteFile(real, fmt.Appendf(nil, head+"a A 192.0.2.%d\n", n, n), 0o600); err != nil {
					t.Fatal(err)
				}
				want := fmt.Sprintf("NOERROR c00002%02x", n)
				eventually(t, want, func() bool { return s.ask("a.example.org", wire.TypeA) == want })
			}
		})
	}
}

// Without events a poll finds the change: of an included file in a folder that
// came after the watch began.
func TestChangesFoundByPolling(t *testing.T) {
	folder := t.TempDir()
	db := filepath.Join(folder, "db")
	part := filepath.Join(folder, "sub", "deep", "part")
	write(t, db, fmt.Sprintf(head, 1)+"$INCLUDE sub/deep/part\n")
	write(t, part, "a A 192.0.2.1\n")
	s := run(t, "file "+db+" {\n reload 20ms\n reload_by_mtime\n}", nil)
	if err := os.Rename(filepath.Join(folder, "sub"), filepath.Join(folder, "gone")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "logged", func() bool { return strings.Contains(s.log.String(), "failed to open") })
	write(t, part, "a A 192.0.2.2\n")
	eventually(t, "changed", func() bool { return s.ask("a.example.org", wire.TypeA) == "NOERROR c0000202" })
}

// While a zone changes again and again, each answer is of one version: its
// serial and its text belong together.
func TestNoAnswerIsOfTwoVersions(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	text := func(n int) string { return fmt.Sprintf(head, n) + fmt.Sprintf("@ TXT \"%010d\"\n", n) }
	write(t, db, text(1))
	s := run(t, "file "+db+never, nil)
	source := s.source()
	changed := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		defer close(changed)
		for n := 2; n < 60; n++ {
			broken := n%5 == 0
			body := text(n)
			if broken {
				body += "broken\n"
			}
			write(t, db, body)
			source.look()
		}
	})
	asked, versions := 0, map[string]bool{}
	for done := false; !done; asked++ {
		select {
		case <-changed:
			done = true
		default:
		}
		reply := s.reply("example.org", wire.TypeANY)
		off := wire.HeaderLen + len(origin) + 4
		var serial uint32
		var number string
		for range 2 {
			r, ok := wire.ReadRecord(reply, off)
			if !ok {
				t.Fatalf("malformed: %x", reply)
			}
			if rdata := reply[r.RData:r.Next]; r.Type == wire.TypeSOA {
				n := rdata[len(rdata)-20:]
				serial = uint32(n[0])<<24 | uint32(n[1])<<16 | uint32(n[2])<<8 | uint32(n[3])
			} else {
				number = string(rdata[1:])
			}
			off = r.Next
		}
		if fmt.Sprintf("%010d", serial) != number {
			t.Fatalf("serial %d beside text %s", serial, number)
		}
		versions[number] = true
	}
	writer.Wait()
	if last := fmt.Sprintf("%010d", 59); !versions[last] || len(versions) < 2 {
		t.Errorf("%d versions in %d answers, %s among them: %v", len(versions), asked, last, versions[last])
	}
}

// A reload of the Corefile reads the file anew, whatever its serial, and keeps
// following it; a plan that is given up changes nothing.
func TestReloadOfTheCorefile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	first := run(t, "file "+db+never, nil)
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.2\n")
	later(t, db, 1)
	if _, _, err := plan(t, "file "+db); err != nil {
		t.Fatal(err)
	}
	if got := first.ask("a.example.org", wire.TypeA); got != "NOERROR c0000201" {
		t.Errorf("after a plan alone: %s", got)
	}
	second := run(t, "file "+db+never, first)
	if second.source() != first.source() {
		t.Error("the file is not kept")
	}
	if got := second.ask("a.example.org", wire.TypeA); got != "NOERROR c0000202" {
		t.Errorf("after a reload: %s", got)
	}
	third := run(t, "file "+db+" {\n reload 1h\n}", second)
	t.Cleanup(func() { third.start.Stop() })
	if third.source() == second.source() {
		t.Error("other options, and the same is kept")
	}
}
