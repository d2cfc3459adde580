package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"
)

// The lines of files and directories are combined in their order. A missing one is
// logged once, and read when it is created.
func TestSeveralFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log := t.TempDir(), new(chaintest.Log)
		in := func(name string) string { return filepath.Join(dir, name) }
		write(t, in("first"), "10.0.0.1 all.test\n")
		write(t, in("second"), "10.0.0.2 all.test\n")
		a := followFiles(t, log, nil, in("first"), in("missing"), in("second"), in("folder"))
		a.becomes(t, "all.test.", "NOERROR aa 10.0.0.1 10.0.0.2")
		write(t, in("missing"), "10.0.0.3 all.test\n")
		a.becomes(t, "all.test.", "NOERROR aa 10.0.0.1 10.0.0.3 10.0.0.2")
		must(t, os.Mkdir(in("folder"), 0o755))
		write(t, in("folder/b"), "10.0.0.5 all.test\n")
		write(t, in("folder/a"), "10.0.0.4 all.test\n10.0.0.1 all.test\n")
		a.becomes(t, "all.test.", "NOERROR aa 10.0.0.1 10.0.0.3 10.0.0.2 10.0.0.4 10.0.0.5")
		must(t, os.Remove(in("second")))
		must(t, os.Remove(in("folder/b")))
		a.becomes(t, "all.test.", "NOERROR aa 10.0.0.1 10.0.0.3 10.0.0.2 10.0.0.4")
		if n := log.Count(fmt.Sprintf("msg=%q file=%s ", failedMessage, in("missing"))); n != 1 {
			t.Errorf("%d messages that a file is missing, want 1\n%s", n, log)
		}
		chaintest.Eventually(t, "a message that a file keeps its lines", func() bool {
			return log.Count(fmt.Sprintf("msg=%q file=%s ", keptMessage, in("second"))) == 1
		})
	})
}

// A file that is written all the time does not delay the others.
func TestFilesIndependent(t *testing.T) {
	dir := t.TempDir()
	restless := filepath.Join(dir, "restless")
	write(t, restless, "10.0.0.1 restless.test\n")
	m := &mount{t: t, dir: filepath.Join(dir, "mounted")}
	must(t, os.Mkdir(m.dir, 0o755))
	m.put(map[string]string{"key": "10.0.0.1 a.test\n"})
	at := serve(t, new(chaintest.Log), "file "+restless+" "+filepath.Join(m.dir, "key"))
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for size := 0; ; size++ {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond): // the interval of the writes, not a wait
				_ = os.WriteFile(restless, []byte("10.0.0.1 restless.test\n"+strings.Repeat("#", size)), 0o644)
			}
		}
	}()
	defer func() {
		close(done)
		<-ended
	}()
	c := dial(t, "udp", at)
	for i := range 20 {
		m.put(map[string]string{"key": fmt.Sprintf("10.0.0.1 n%d.test\n", i)})
		name := fmt.Sprintf("n%d.test.", i)
		chaintest.Eventually(t, name, func() bool { return c.ask(name) == "NOERROR 10.0.0.1" })
		bound.AtMost(t, name, time.Since(m.at), 4500*time.Millisecond) // watch waits 5s for the other file
	}
}

// A key of a mounted ConfigMap is removed and added again. Meanwhile a file keeps its
// lines; a directory does not.
func TestMountedKey(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for _, path := range []string{"key", "."} {
		t.Run(path, func(t *testing.T) {
			m, log := &mount{t: t, dir: t.TempDir()}, new(chaintest.Log)
			other := "10.0.0.9 other.test\n"
			m.put(map[string]string{"key": "10.0.0.1 a.test\n", "other": other})
			c := dial(t, "udp", serve(t, log, "file "+filepath.Join(m.dir, path)))
			c.becomes(t, "a.test.", "NOERROR 10.0.0.1")
			for i := 2; i < 12; i++ {
				m.put(map[string]string{"other": other})
				if path == "." {
					c.becomes(t, "a.test.", "NXDOMAIN")
					c.becomes(t, "other.test.", "NOERROR 10.0.0.9")
				} else {
					chaintest.Eventually(t, "a message that the file keeps its lines", func() bool { return log.Count(keptMessage) == i-1 })
					c.becomes(t, "a.test.", fmt.Sprintf("NOERROR 10.0.0.%d", i-1))
				}
				m.put(map[string]string{"key": fmt.Sprintf("10.0.0.%d a.test\n", i), "other": other})
				c.becomes(t, "a.test.", fmt.Sprintf("NOERROR 10.0.0.%d", i))
			}
			if n := log.Count("] hosts: Failed"); path == "." && n > 0 || n > 10 {
				t.Errorf("%d warnings, want 10 for a file and none for a directory\n%s", n, log)
			}
			// An empty key has no lines. It takes effect at once.
			m.put(map[string]string{"key": "", "other": other})
			c.becomes(t, "a.test.", "NXDOMAIN")
		})
	}
}

// A file keeps its lines, with one warning, if it changes to something that is not
// text.
func TestMountedGarbage(t *testing.T) {
	for _, path := range []string{"key", "."} {
		t.Run(path, func(t *testing.T) {
			m, log := &mount{t: t, dir: t.TempDir()}, new(chaintest.Log)
			m.put(map[string]string{"key": "10.0.0.1 a.test\n", "version": "10.0.0.1 v.test\n"})
			c := dial(t, "udp", serve(t, log, "file "+filepath.Join(m.dir, path), "file "+filepath.Join(m.dir, "version")))
			for i, garbage := range []string{
				"\xff\xfe1\x000\x00.\x000\x00.\x000\x00.\x002\x00 \x00a\x00.\x00t\x00e\x00s\x00t\x00\n\x00", // UTF-16
				"\xde\xad\xbe\xef \xfe\xff\n\x80\x81\n",
				"\x1f\x8b\x08\x00\x00\x00\x00\x00" + strings.Repeat("\xf0\x0f\n", 1000),
			} {
				m.put(map[string]string{"key": garbage, "version": fmt.Sprintf("10.0.1.%d v.test\n", i)})
				c.becomes(t, "v.test.", fmt.Sprintf("NOERROR 10.0.1.%d", i))
				c.becomes(t, "a.test.", "NOERROR 10.0.0.1")
				// The files are followed one by one: this one may be read last.
				chaintest.Eventually(t, "a warning", func() bool { return log.Count("no valid line: ") > i })
				if n := log.Count("] hosts: Failed"); n != i+1 || log.Count(keptMessage) != i+1 {
					t.Errorf("%d warnings, want %d\n%s", n, i+1, log)
				}
			}
			m.put(map[string]string{"key": "10.0.0.2 a.test\n", "version": "10.0.0.1 v.test\n"})
			c.becomes(t, "a.test.", "NOERROR 10.0.0.2")
			if n := log.Count("can be read again"); n != 1 {
				t.Errorf("%d messages that the file can be read again, want 1\n%s", n, log)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
