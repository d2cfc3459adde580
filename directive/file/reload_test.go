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

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// later sets the time stamp of a file to hours from now: long after it was read.
func later(t *testing.T, path string, hours int) {
	t.Helper()
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Duration(hours)*time.Hour)); err != nil {
		t.Fatal(err)
	}
}

const never = " {\n reload 0\n}" // these tests call reload

func TestReloadSerial(t *testing.T) {
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
		{1, "192.0.2.4", "NOERROR c0000204", false}, // a smaller serial number is another one
		{1, "192.0.2.5", "NOERROR c0000204", true},
	} {
		write(t, db, fmt.Sprintf(head, c.serial)+"a A "+c.address+"\n")
		later(t, db, i+1)
		s.source().reload()
		s.source().reload() // does nothing: the file is the same
		got := s.ask("a.example.org", wire.TypeA)
		warning := s.log.Take("WARN")
		if got != c.want || strings.Count(warning, "serial number unchanged") != map[bool]int{true: 1}[c.warned] {
			t.Errorf("step %d: serial %d: got %s, want %s; warned %v, logged %q", i, c.serial, got, c.want, c.warned, warning)
		}
	}
}

func TestReloadByMtime(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+" {\n reload 0\n reload_by_mtime\n}", nil)
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.2\n")
	later(t, db, 1)
	s.source().reload()
	if got, want := s.ask("a.example.org", wire.TypeA), "NOERROR c0000202"; got != want {
		t.Errorf("a.example.org A: got %s, want %s", got, want)
	}
}

// A file that was read while a program wrote it is read again, although its serial
// number is the same.
func TestReloadIncompleteFile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1))
	s := run(t, "file "+db+never, nil)
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.2\n")
	if err := os.Chtimes(db, time.Time{}, s.source().latest.readAt.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	s.source().reload()
	if got, want := s.ask("a.example.org", wire.TypeA), "NOERROR c0000202"; got != want {
		t.Errorf("a.example.org A: got %s, want %s", got, want)
	}
}

// A file with an error does not change the zone. It is logged and counted once.
func TestReloadFileWithError(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+never, nil)
	failure := `"file: Failed to reload zone file" file=` + db + ` error=`
	for i, c := range []struct{ text, log, failed, want string }{
		{fmt.Sprintf(head, 2) + "a A 192.0.2.300\n", failure + `"` + db + `:3: bad A A: \"192.0.2.300\""`, "1", "NOERROR c0000201"},
		{"", failure + `"` + db + `: no SOA record for example.org."`, "2", "NOERROR c0000201"},
		{fmt.Sprintf(head, 3) + "a A 192.0.2.3\n", "", "2", "NOERROR c0000203"},
	} {
		write(t, db, c.text)
		later(t, db, i+1)
		for range 3 {
			s.source().reload()
		}
		if got := s.log.Take("ERROR"); got != c.log {
			t.Errorf("step %d: logged %s, want %s", i, got, c.log)
		}
		if got := s.ask("a.example.org", wire.TypeA); got != c.want || s.failed() != c.failed {
			t.Errorf("step %d: a.example.org A: got %s, want %s; %s failed, want %s", i, got, c.want, s.failed(), c.failed)
		}
	}
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	s.source().reload()
	if got, want := s.log.Take("ERROR"), failure+`"`+db+`: no such file or directory"`; got != want {
		t.Errorf("file removed: logged %s, want %s", got, want)
	}
	if got, want := s.ask("a.example.org", wire.TypeA), "NOERROR c0000203"; got != want {
		t.Errorf("file removed: a.example.org A: got %s, want %s", got, want)
	}
}

// A directory in place of the file is logged and counted once.
func TestReloadDirectory(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	s := run(t, "file "+db+never, nil)
	if err := errors.Join(os.Remove(db), os.Mkdir(db, 0o755)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.source().reload()
	}
	want := `"file: Failed to reload zone file" file=` + db + ` error="` + db + `: not a regular file"`
	if got := s.log.Take("ERROR"); got != want || s.failed() != "1" {
		t.Errorf("%s failed, want 1; logged %s, want %s", s.failed(), got, want)
	}
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	write(t, db, fmt.Sprintf(head, 2)+"a A 192.0.2.2\n")
	s.source().reload()
	if got, want := s.ask("a.example.org", wire.TypeA), "NOERROR c0000202"; got != want {
		t.Errorf("a.example.org A: got %s, want %s", got, want)
	}
}

// A version is stale when the mode of its file has changed: a file without read
// permission may have become readable.
func TestVersionStaleMode(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1))
	s := run(t, "file "+db+never, nil)
	if err := os.Chmod(db, 0o644); err != nil {
		t.Fatal(err)
	}
	if !s.source().latest.stale() {
		t.Error("the zone is not stale after chmod, want it stale")
	}
}

// A mounted ConfigMap consists of links into a directory that is replaced. The
// change takes effect without polling.
func TestFollowConfigMap(t *testing.T) {
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
		chaintest.Eventually(t, want, func() bool { return s.ask("a.example.org", wire.TypeA) == want })
	}
}

// There are events too for a zone file that is a symbolic link, or that has another
// name in another directory, such as a file mounted into a container.
func TestFollowOtherDirectory(t *testing.T) {
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
				chaintest.Eventually(t, want, func() bool { return s.ask("a.example.org", wire.TypeA) == want })
			}
		})
	}
}

// Polling finds a change that has no event: in a directory that was created after
// the watch.
func TestFollowPolls(t *testing.T) {
	folder := t.TempDir()
	db := filepath.Join(folder, "db")
	part := filepath.Join(folder, "sub", "deep", "part")
	write(t, db, fmt.Sprintf(head, 1)+"$INCLUDE sub/deep/part\n")
	write(t, part, "a A 192.0.2.1\n")
	s := run(t, "file "+db+" {\n reload 20ms\n reload_by_mtime\n}", nil)
	if err := os.Rename(filepath.Join(folder, "sub"), filepath.Join(folder, "gone")); err != nil {
		t.Fatal(err)
	}
	chaintest.Eventually(t, "logged", func() bool { return strings.Contains(s.log.String(), "failed to open") })
	write(t, part, "a A 192.0.2.2\n")
	chaintest.Eventually(t, "changed", func() bool { return s.ask("a.example.org", wire.TypeA) == "NOERROR c0000202" })
}

// While a zone changes, each answer comes from one version: its serial number and
// its TXT record belong together.
func TestAnswersDuringReloads(t *testing.T) {
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
			source.reload()
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
				t.Fatalf("example.org ANY: malformed reply %x", reply)
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
			t.Fatalf("example.org ANY: got TXT record %s beside serial %d, want the same number", number, serial)
		}
		versions[number] = true
	}
	writer.Wait()
	if last := fmt.Sprintf("%010d", 59); !versions[last] || len(versions) < 2 {
		t.Errorf("got %d versions in %d answers, want at least 2; got the last one, %s: %v", len(versions), asked, last, versions[last])
	}
}

// A reload of the Corefile reads the file again regardless of its serial number and
// keeps the source. A plan that is not started has no effect.
func TestCorefileReload(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.1\n")
	first := run(t, "file "+db+never, nil)
	write(t, db, fmt.Sprintf(head, 1)+"a A 192.0.2.2\n")
	later(t, db, 1)
	if _, _, err := plan("file " + db); err != nil {
		t.Fatal(err)
	}
	if got, want := first.ask("a.example.org", wire.TypeA), "NOERROR c0000201"; got != want {
		t.Errorf("after a plan: a.example.org A: got %s, want %s", got, want)
	}
	second := run(t, "file "+db+never, first)
	if second.source() != first.source() {
		t.Error("same options: got another source, want the same")
	}
	if got, want := second.ask("a.example.org", wire.TypeA), "NOERROR c0000202"; got != want {
		t.Errorf("after a reload: a.example.org A: got %s, want %s", got, want)
	}
	third := run(t, "file "+db+" {\n reload 1h\n}", second)
	if third.source() == second.source() {
		t.Error("other options: got the same source, want another")
	}
}
