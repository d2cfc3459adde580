package file

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// runAuto starts a server block for the root with the directive auto.
func runAuto(t *testing.T, text string) *server {
	t.Helper()
	return runSetup(t, SetupAuto, text, nil)
}

// Without reload the directory is scanned each minute, besides what the system reports.
func TestAutoReloadDefault(t *testing.T) {
	s := runAuto(t, "auto {\n directory "+t.TempDir()+"\n}")
	if got := config.Find[*Auto](s.Plan)[0].options.reload; got != time.Minute {
		t.Errorf("got a scan each %v, want each minute", got)
	}
}

// A file whose zone is in none of the directive's zones is not served to secondaries either.
func TestAutoOtherZone(t *testing.T) {
	dir := t.TempDir()
	for _, zone := range []string{"a.example.org", "org", "internal.corp"} {
		write(t, filepath.Join(dir, "db."+zone), fmt.Sprintf(head, 1)+"* A 192.0.2.1\n")
	}
	s := runAuto(t, "auto example.org {\n directory "+dir+"\n}")
	a := config.Find[*Auto](s.Plan)[0]
	var followed []wire.Name
	a.Follow(func(origin wire.Name) { followed = append(followed, origin) })()
	if want := []wire.Name{"\x01a\x07example\x03org\x00"}; !slices.Equal(followed, want) {
		t.Errorf("Follow: got the zones %v, want %v", followed, want)
	}

	for origin, served := range map[wire.Name]bool{
		"\x01a\x07example\x03org\x00": true, "\x03org\x00": false, "\x08internal\x04corp\x00": false,
	} {
		if got := a.Version(origin) != nil; got != served {
			t.Errorf("Version of %s: got one: %v, want %v", origin, got, served)
		}
		s.ask("www."+origin.String(), wire.TypeA)
		if _, got := a.Metadata(s.Last, "zone/wildcard"); got != served {
			t.Errorf("metadata of a name in %s: got some: %v, want %v", origin, got, served)
		}
	}
}

// Zones appear with their files, change and disappear with them.
func TestAutoFollowsDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "db.a.example.org"), fmt.Sprintf(head, 1)+"www A 192.0.2.1\n")
	write(t, filepath.Join(dir, "sub", "db.b.example.org"), fmt.Sprintf(head, 1)+"www A 192.0.2.2\n")
	write(t, filepath.Join(dir, "..data", "db.c.example.org"), fmt.Sprintf(head, 1))
	write(t, filepath.Join(dir, "db.bad.example.org"), "bad")
	s := runAuto(t, "auto {\n directory "+dir+"\n reload 1h\n}")
	a := config.Find[*Auto](s.Plan)[0]
	changes := make(chan wire.Name, 100)
	defer a.Follow(func(origin wire.Name) { changes <- origin })()
	await := func(name, want string) {
		t.Helper()
		chaintest.Eventually(t, name+" "+want, func() bool { return s.ask(name, wire.TypeA) == want })
	}
	await("www.a.example.org", "NOERROR c0000201")
	await("www.b.example.org", "NOERROR c0000202")
	await("www.c.example.org", "SERVFAIL") // no handler answers
	write(t, filepath.Join(dir, "db.a.example.org"), fmt.Sprintf(head, 2)+"www A 192.0.2.3\n")
	await("www.a.example.org", "NOERROR c0000203")
	write(t, filepath.Join(dir, "db.bad.example.org"), fmt.Sprintf(head, 1)+"www A 192.0.2.4\n")
	await("www.bad.example.org", "NOERROR c0000204")
	write(t, filepath.Join(dir, "new", "db.d.example.org"), fmt.Sprintf(head, 1)+"www A 192.0.2.5\n")
	await("www.d.example.org", "NOERROR c0000205")
	if err := os.Remove(filepath.Join(dir, "db.a.example.org")); err != nil {
		t.Fatal(err)
	}
	await("www.a.example.org", "SERVFAIL")
	if a.Version("\x01a\x07example\x03org\x00") != nil || a.Version("\x01d\x07example\x03org\x00") == nil {
		t.Error("Version: want zone d.example.org, and a.example.org removed")
	}
	seen := map[wire.Name]int{}
	chaintest.Eventually(t, "changes", func() bool {
		select {
		case origin := <-changes:
			seen[origin]++
		default:
		}
		return seen["\x01a\x07example\x03org\x00"] >= 2 && seen["\x01b\x07example\x03org\x00"] >= 1 &&
			seen["\x03bad\x07example\x03org\x00"] >= 1 && seen["\x01d\x07example\x03org\x00"] >= 1
	})
}

// The zones of a directory that cannot be read are kept, and it is read again soon. Those of one that has been
// removed are not.
func TestAutoDirectoryUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "db.a.example.org"), fmt.Sprintf(head, 1))
	write(t, filepath.Join(dir, "sub", "db.b.example.org"), fmt.Sprintf(head, 1))
	d := config.Find[*Auto](runAuto(t, "auto {\n directory "+dir+"\n reload 1h\n}").Plan)[0].dir
	for _, c := range []struct {
		path  string
		err   error
		zones int
		again bool
	}{
		{"sub", syscall.EIO, 1, true}, {"sub", fs.ErrNotExist, 0, false}, {".", syscall.ESTALE, 2, true}, {"other", syscall.EACCES, 0, true},
	} {
		s := scan{directory: d, old: d.files.Load(), next: new(File), bad: map[string]string{}}
		if err := s.visit(dir+string(filepath.Separator)+c.path, nil, &fs.PathError{Op: "open", Path: c.path, Err: c.err}); err != nil {
			t.Error(err)
		}
		if n := len(s.next.zones.All()); n != c.zones || s.again != c.again || len(s.bad) != 1 {
			t.Errorf("%s, %v: got %d zones, again %v and %d errors; want %d, %v and 1", c.path, c.err, n, s.again, len(s.bad), c.zones, c.again)
		}
		for origin, z := range s.next.zones.All() { // the directory's entries may have been read in part
			if s.add(z.path, origin); len(s.bad) != 1 {
				t.Errorf("%s, %v: got the errors %v, want none of the file that is kept", c.path, c.err, s.bad)
			}
		}
	}
}

// The first file of a zone in the order of the paths is served. The pattern selects
// files, and the template names their zones.
func TestAutoPattern(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1", "org.example.zone"), fmt.Sprintf(head, 1)+"www A 192.0.2.1\n")
	write(t, filepath.Join(dir, "2", "org.example.zone"), fmt.Sprintf(head, 1)+"www A 192.0.2.2\n")
	write(t, filepath.Join(dir, "org.example.zone.bak"), "bad")
	s := runAuto(t, "auto example.org {\n directory "+dir+" ^(.*)\\.(.*)\\.zone$ {2}.{1}\n reload 0\n}")
	if got, want := s.ask("www.example.org", wire.TypeA), "NOERROR c0000201"; got != want {
		t.Errorf("www.example.org A: got %s, want %s", got, want)
	}
	if got, want := s.log.Take("WARN"), `"auto: Ignored file" file=`+dir+`/2/org.example.zone error="zone example.org. is already served from `+dir+`/1/org.example.zone"`; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

func TestAutoSetupErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"auto", "Corefile:2: auto: missing directory: name the directory of the zone files"},
		{"auto {\n directory / a(b\n}", "Corefile:3: auto: directory: missing ORIGIN_TEMPLATE after REGEXP"},
		{"auto {\n directory / a(b c\n}", "Corefile:3: auto: directory: error parsing regexp: missing closing ): `a(b`"},
		{"auto {\n directory / ab c\n}", `Corefile:3: auto: directory: want a group in parentheses in REGEXP, got "ab"`},
		{"auto {\n directory / (a)b {1}.{2}\n}", `Corefile:3: auto: directory: ORIGIN_TEMPLATE has the group {2}, which is not in REGEXP (a)b`},
		{"auto {\n directory / (?P<zone>a)b {Zone}\n}", `Corefile:3: auto: directory: ORIGIN_TEMPLATE has the group {Zone}, which is not in REGEXP (?P<zone>a)b`},
		{"auto {\n directory /\n reload 1ms\n}", `Corefile:4: auto: reload: want 0 or at least 10ms, got "1ms"`},
	} {
		_, _, err := planSetup(SetupAuto, c.text)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	b, _, err := planSetup(SetupAuto, "auto {\n directory /nosuch\n}")
	if err != nil || len(b.Warnings()) != 1 || !strings.Contains(b.Warnings()[0].Error(), "/nosuch") {
		t.Errorf("missing directory: got %v, warnings %v, want one warning", err, b.Warnings())
	}
}

// FindZone finds the part of a zone that auto answers for.
func TestAutoFindZone(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "db.example.org"), fmt.Sprintf(head, 1))
	write(t, filepath.Join(dir, "db.a.sub.example.org"), fmt.Sprintf(head, 1))
	write(t, filepath.Join(dir, "db.example.com"), fmt.Sprintf(head, 1))
	s := runAuto(t, "auto b.sub.example.org sub.example.org {\n directory "+dir+"\n}")
	a := config.Find[*Auto](s.Plan)[0]
	for name, want := range map[string]string{
		"x.b.sub.example.org": "sub.example.org", "sub.example.org": "sub.example.org", "x.a.sub.example.org": "a.sub.example.org",
		"example.org": "", "x.example.org": "", "example.com": "", "xsub.example.org": "",
	} {
		n, _ := wire.ParseName(name)
		length := 0
		if want != "" {
			w, _ := wire.ParseName(want)
			length = len(w)
		}
		if got := a.FindZone([]byte(n)); got != length {
			t.Errorf("%s: got a zone of %d bytes, want %d", name, got, length)
		}
	}
}
