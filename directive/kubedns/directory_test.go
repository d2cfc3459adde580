//go:build unix

package kubedns

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/test/chaintest"
)

// Each change of the ConfigMap is noticed by an event, or without events by the next
// poll.
func TestDirectory(t *testing.T) {
	t.Run("events", func(t *testing.T) { changes(t, false) })
	t.Run("poll", func(t *testing.T) { changes(t, true) })
}

func changes(t *testing.T, noEvents bool) {
	m := newMount(t, stub("10.0.0.1"))
	w := startDirectory(t, m.dir, noEvents)
	want := []string{configText("10.0.0.1")}
	w.becomes(want...)
	next := func(data map[string]string, config string) {
		t.Helper()
		m.swap(data)
		want = append(want, config)
		w.becomes(want...)
	}
	next(stub("10.0.0.2"), configText("10.0.0.2"))
	next(stub("10.0.0.3"), configText("10.0.0.3"))
	all := stub("10.0.0.3")
	all[upstreams], all[federations] = `["8.8.8.8"]`, "a=b"
	next(all, configText("10.0.0.3")+" upstreams=[8.8.8.8:53] federation=a:b")
	next(map[string]string{upstreams: `["8.8.8.8"]`}, "upstreams=[8.8.8.8:53]")
	next(nil, "")
	next(stub("10.0.0.4"), configText("10.0.0.4"))
	if lines := w.said("level=WARN"); len(lines) > 0 {
		t.Errorf("got warnings %q, want none", lines)
	}
	w.counts(7, 0, true)
	w.stop()
	if w.shows(`seamark_kubedns_config_valid{source=%q} 1`, m.dir) {
		t.Error("seamark_kubedns_config_valid after Run: got a series, want none")
	}
}

// Other text with the same meaning counts as a change but is not applied.
func TestDirectoryEqual(t *testing.T) {
	m := newMount(t, stub("10.0.0.1"))
	w := startDirectory(t, m.dir, false)
	w.becomes(configText("10.0.0.1"))
	m.swap(map[string]string{stubDomains: `{"acme.local":["10.0.0.1:53"]}`, upstreams: `[]`})
	w.counts(2, 0, true)
	m.swap(stub("10.0.0.2"))
	w.becomes(configText("10.0.0.1"), configText("10.0.0.2"))
}

// A directory with plain files works like a mounted ConfigMap.
func TestDirectoryFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "config")
	w := startDirectory(t, dir, false)
	w.becomes("") // there is none yet
	must(t, os.Mkdir(dir, 0o755))
	write(t, filepath.Join(dir, "stubDomains"), stub("10.0.0.1")[stubDomains])
	w.becomes("", configText("10.0.0.1"))

	// Names that are not keys of a ConfigMap.
	write(t, filepath.Join(dir, ".upstreamNameservers"), `["8.8.8.8"]`)
	must(t, os.Mkdir(filepath.Join(dir, upstreams), 0o755))
	write(t, filepath.Join(dir, upstreams, upstreams), `["8.8.8.8"]`)
	must(t, os.Mkdir(filepath.Join(dir, "more"), 0o755))
	write(t, filepath.Join(dir, "more", federations), `a=b`)
	write(t, filepath.Join(dir, "README"), "stub domains of the lab")
	write(t, filepath.Join(dir, federations), "c=d")
	w.becomes("", configText("10.0.0.1"), configText("10.0.0.1")+" federation=c:d")

	// A file that is reached by another name.
	other := filepath.Join(t.TempDir(), "other")
	write(t, other, "e=f")
	must(t, os.Remove(filepath.Join(dir, federations)))
	must(t, os.Link(other, filepath.Join(dir, federations)))
	w.becomes("", configText("10.0.0.1"), configText("10.0.0.1")+" federation=c:d", configText("10.0.0.1")+" federation=e:f")
	write(t, other, "g=h")
	w.becomes("", configText("10.0.0.1"), configText("10.0.0.1")+" federation=c:d", configText("10.0.0.1")+" federation=e:f", configText("10.0.0.1")+" federation=g:h")

	must(t, os.RemoveAll(dir))
	chaintest.Eventually(t, "the default", func() bool { all := w.calls(); return all[len(all)-1] == "" })
	if lines := w.said("unknown key"); len(lines) != 1 || !strings.Contains(lines[0], "key=README") || !strings.Contains(lines[0], "DEBUG") {
		t.Errorf("got %q in the log, want one debug message about the unknown key README", lines)
	}
}

// An incomplete write causes no error, and the write is not missed.
func TestDirectoryHalfWritten(t *testing.T) { synctest.Test(t, directoryHalfWritten) }

func directoryHalfWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, stubDomains)
	write(t, path, stub("10.0.0.1")[stubDomains])
	w := startDirectory(t, dir, true)
	w.becomes(configText("10.0.0.1"))
	text := stub("10.0.0.2")[stubDomains]
	for cut := range 8 { // emptied first
		write(t, path, text[:cut*3])
		time.Sleep(retryDelay / 5)
	}
	write(t, path, text)
	w.becomes(configText("10.0.0.1"), configText("10.0.0.2"))
	w.counts(2, 0, true)

	// An incomplete file that stays is invalid.
	write(t, path, text[:20])
	w.counts(2, 1, false)
	write(t, path, text)
	w.counts(3, 1, true)
	w.becomes(configText("10.0.0.1"), configText("10.0.0.2"))
}

// A mistake is logged once and the last valid state remains in use until the next
// valid one.
func TestDirectoryInvalid(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for _, c := range []struct {
		name string
		data map[string]string
		want string // in the log
	}{
		{"port", stub("1.1.1.1:123456789"), `1.1.1.1:123456789`},
		{"dollars", stub("$$$$"), `$$$$`},
		{"four upstreams", map[string]string{upstreams: `["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]`}, `want at most 3 nameservers, got 4`},
		{"not UTF-8", map[string]string{federations: "a=\xff"}, `federations: want UTF-8`},
		{"not UTF-8 elsewhere", map[string]string{"logo": "\x89PNG\xff"}, `logo: want UTF-8`},
		{"too large", map[string]string{"logo": strings.Repeat("a", maxFile+1)}, `logo: larger than 4 MB`},
		{"two keys", map[string]string{stubDomains: "{", upstreams: "["}, `; upstreamNameservers: want a JSON array`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMount(t, stub("10.0.0.1"))
			w := startDirectory(t, m.dir, false)
			w.becomes(configText("10.0.0.1"))
			m.swap(c.data)
			w.counts(1, 1, false)
			lines := w.said("level=WARN")
			if len(lines) != 1 || !strings.Contains(lines[0], c.want) || !strings.Contains(lines[0], `msg="Refused kube-dns's ConfigMap" configmap=`+m.dir+" ") || !strings.HasSuffix(lines[0], " in_use=\"last valid state\"\n") {
				t.Errorf("got warnings %q, want one with %q", lines, c.want)
			}
			m.swap(stub("10.0.0.1"))
			w.counts(2, 1, true)
			if lines := w.said("valid again"); len(lines) != 1 {
				t.Errorf("got %q in the log, want one message that the ConfigMap is valid again", lines)
			}
			m.swap(stub("10.0.0.2"))
			w.becomes(configText("10.0.0.1"), configText("10.0.0.2"))
		})
	}
}

// The defaults are in use before the first valid state.
func TestDirectoryInvalidFirst(t *testing.T) {
	m := newMount(t, stub("$$$$"))
	w := startDirectory(t, m.dir, false)
	w.becomes("")
	w.counts(0, 1, false)
	if lines := w.said("in_use=defaults"); len(lines) != 1 {
		t.Errorf("got %q in the log, want one refusal that keeps the defaults", lines)
	}
	m.swap(stub("10.0.0.1"))
	w.becomes("", configText("10.0.0.1"))
	w.counts(1, 1, true)
}

func TestDirectoryUnreadable(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, stubDomains), 0o600))
	w := startDirectory(t, dir, false)
	w.becomes("")
	if lines := w.said("stubDomains: not a regular file"); len(lines) != 1 {
		t.Errorf("FIFO: got log %q, want one \"stubDomains: not a regular file\"", w.log())
	}
	file := filepath.Join(dir, stubDomains)
	must(t, os.Remove(file))
	write(t, file, stub("10.0.0.1")[stubDomains])
	w.becomes("", configText("10.0.0.1"))

	v := startDirectory(t, file, false)
	v.becomes("")
	if lines := v.said(`error="not a directory"`); len(lines) != 1 {
		t.Errorf("file in place of the directory: got log %q, want one \"not a directory\"", v.log())
	}
}

// Each change between valid and invalid is logged once, however often the directory
// is polled.
func TestDirectoryAlternating(t *testing.T) {
	for _, noEvents := range []bool{false, true} {
		rounds := func(t *testing.T) {
			const rounds = 6
			m := newMount(t, stub("10.0.0.1"))
			w := startDirectory(t, m.dir, noEvents)
			w.becomes(configText("10.0.0.1"))
			for i := range rounds {
				m.swap(stub("1.1.1.1:123456789"))
				w.counts(1+i, 1+i, false)
				if noEvents {
					time.Sleep(3 * retryDelay) // a few more polls
				}
				m.swap(stub("10.0.0.1"))
				w.counts(2+i, 1+i, true)
			}
			w.becomes(configText("10.0.0.1"))
			w.stop()
			if n, m := len(w.said("Refused")), len(w.said("valid again")); n != rounds || m != rounds || strings.Count(w.log(), "\n") != 1+2*rounds {
				t.Errorf("got %d refusals and %d returns in the log, want %d each\n%s", n, m, rounds, w.log())
			}
		}
		t.Run(fmt.Sprintf("no events %v", noEvents), func(t *testing.T) {
			if noEvents {
				synctest.Test(t, rounds)
			} else {
				rounds(t)
			}
		})
	}
}

// Both keys always come from the same version, whenever the mount is replaced, and
// files that vanish during a read cause no error.
func TestDirectorySwaps(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	data := func(i int) map[string]string {
		d := stub(fmt.Sprintf("10.0.0.%d", i))
		d[upstreams] = fmt.Sprintf(`["10.0.0.%d"]`, i)
		return d
	}
	const last = 60
	m := newMount(t, data(1))
	w := startDirectory(t, m.dir, false)
	random := rand.New(rand.NewPCG(1, 2))
	for i := 2; i <= last; i++ {
		m.swap(data(i))
		time.Sleep(time.Duration(random.Int64N(int64(2 * retryDelay)))) // so that some versions are read and others are not
	}
	whole := func(i int) string {
		return fmt.Sprintf("%s upstreams=[10.0.0.%d:53]", configText(fmt.Sprintf("10.0.0.%d", i)), i)
	}
	chaintest.Eventually(t, "the last", func() bool { all := w.calls(); return len(all) > 0 && all[len(all)-1] == whole(last) })
	at := 0
	for _, call := range w.calls() {
		i := at + 1
		for i <= last && whole(i) != call {
			i++
		}
		if i > last {
			t.Fatalf("after version %d: got %s, want a later version", at, call)
		}
		at = i
	}
	if lines := w.said("level=WARN"); len(lines) > 0 {
		t.Errorf("got warnings %q, want none", lines)
	}
}

// load waits for the target of a link, and reports a link that stays broken.
func TestDirectoryDangling(t *testing.T) { synctest.Test(t, directoryDangling) }

func directoryDangling(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("..data/stubDomains", filepath.Join(dir, stubDomains)))
	w := &watcher{T: t}
	s, unregister := newState(dir, w.logger(), new(metrics.Registry), nil, w.apply)
	defer unregister()
	d := Source{Dir: dir}
	files := watch.New([]string{dir}, watch.Options{Poll: time.Hour, NoEvents: true})
	defer files.Close()
	later := time.AfterFunc(retryDelay, func() {
		_ = os.Mkdir(filepath.Join(dir, "..v1"), 0o755)
		_ = os.WriteFile(filepath.Join(dir, "..v1", stubDomains), []byte(stub("10.0.0.1")[stubDomains]), 0o600)
		_ = os.Symlink("..v1", filepath.Join(dir, "..data"))
	})
	defer later.Stop()
	d.load(t.Context(), files, s)
	w.becomes(configText("10.0.0.1"))
	must(t, os.Remove(filepath.Join(dir, "..data")))
	for range 2 {
		d.load(t.Context(), files, s)
	}
	w.becomes(configText("10.0.0.1"))
	if lines := w.said("level=WARN"); len(lines) != 1 || !strings.Contains(lines[0], `error="stubDomains: broken symbolic link" in_use="last valid state"`) {
		t.Errorf("got warnings %q, want one about the broken link", lines)
	}
}

// A mounted ConfigMap is complete as soon as its ..data link is replaced: the links
// of its keys follow one by one.
func TestDirectoryLinksMissing(t *testing.T) {
	m := newMount(t, map[string]string{upstreams: `["8.8.8.8"]`, federations: "a=b"})
	must(t, os.Remove(filepath.Join(m.dir, upstreams)))
	must(t, os.Symlink("..data/stubDomains", filepath.Join(m.dir, stubDomains)))
	data, err := ReadDirectory(m.dir)
	if err != nil || len(data) != 2 || data[upstreams] != `["8.8.8.8"]` || data[federations] != "a=b" {
		t.Errorf("a link is missing and one is stale: ReadDirectory = %q, %v, want both keys of ..data", data, err)
	}
}
