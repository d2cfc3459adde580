package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
)

// A mount is a directory to which a kubelet mounts a ConfigMap: each key is a link to
// a file in the directory that ..data links to. A change replaces that link.
type mount struct {
	t   testing.TB
	dir string
	n   int
	at  time.Time // of the last change
}

func (m *mount) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// put replaces the data of the ConfigMap in the same steps as a kubelet.
func (m *mount) put(keys map[string]string) {
	m.t.Helper()
	m.n++
	data, next := filepath.Join(m.dir, "..data"), filepath.Join(m.dir, "..data_tmp")
	old, _ := os.Readlink(data)
	folder := time.Now().UTC().Format("..2006_01_02_15_04_05.") + fmt.Sprint(m.n)
	m.must(os.Mkdir(filepath.Join(m.dir, folder), 0o755))
	for key, text := range keys {
		m.must(os.WriteFile(filepath.Join(m.dir, folder, key), []byte(text), 0o644))
	}
	m.must(os.Symlink(folder, next))
	m.must(os.Rename(next, data))
	m.at = time.Now()
	for key := range keys {
		if _, err := os.Lstat(filepath.Join(m.dir, key)); err != nil {
			m.must(os.Symlink(filepath.Join("..data", key), filepath.Join(m.dir, key)))
		}
	}
	links, err := filepath.Glob(filepath.Join(m.dir, "[^.]*"))
	m.must(err)
	for _, link := range links {
		if _, stays := keys[filepath.Base(link)]; !stays {
			m.must(os.Remove(link))
		}
	}
	if old != "" {
		m.must(os.RemoveAll(filepath.Join(m.dir, old)))
	}
}

// serve runs a server with these lines in the braces of hosts until the test ends,
// and returns its address. It finds changes by file events only.
func serve(t testing.TB, log *chaintest.Log, lines ...string) (at string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Corefile")
	text := ".:0 {\n bind 127.0.0.1\n hosts {\n  reload 1h\n  ttl 30\n  " + strings.Join(lines, "\n  ") + "\n }\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	directives := []config.Directive{{Name: "bind", Setup: directive.SetupBind}, {Name: "hosts", Setup: Setup, Answers: true}}
	said := new(chaintest.Log)
	r := server.Run{
		Options: server.Options{Directives: directives, Log: server.NewLog(log, slog.LevelInfo), Metrics: new(metrics.Registry)},
		Read:    func() corefile.Reading { return corefile.Read(file) },
		Out:     said, Greeting: "greeting",
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	chaintest.Eventually(t, "the server's greeting", func() bool { return said.Count("greeting") > 0 || t.Failed() })
	port := 0
	if _, err := fmt.Sscanf(said.String(), ".:%d on 127.0.0.1", &port); err != nil {
		t.Fatalf("greeting of the server: got %q, want the port", said)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// digestOf returns the response code and the RDATA of a reply.
func digestOf(m *mdns.Msg) string {
	words := []string{mdns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		words = append(words, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(words, " ")
}

// A client sends one query after the other over one connection.
type client struct{ conn *mdns.Conn }

func dial(t testing.TB, network, at string) *client {
	t.Helper()
	conn, err := mdns.Dial(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn}
}

func (c *client) ask(name string) string {
	m := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	if err := c.conn.WriteMsg(m); err != nil {
		return err.Error()
	}
	reply, err := c.conn.ReadMsg()
	switch {
	case err != nil:
		return err.Error()
	case reply.Id != m.Id:
		return "a reply with another ID"
	}
	return digestOf(reply)
}

func (c *client) becomes(t testing.TB, name, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s", name, got)
		}
	}()
	chaintest.Eventually(t, name+": "+want, func() bool { got = c.ask(name); return got == want })
}

// load sends queries for names that every version has over UDP, over TCP, and over a
// new connection for each query, and expects the same answers until stop is called.
// stop returns the number of queries.
func load(t *testing.T, at string, want map[string]string) (stop func() (asked int64)) {
	t.Helper()
	var asked atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	from := func(what string, ask func(name string) string) {
		clients.Go(func() {
			for {
				for name, want := range want {
					select {
					case <-done:
						return
					case <-time.After(100 * time.Microsecond): // limits the load
					}
					asked.Add(1)
					if got := ask(name); got != want {
						t.Errorf("%s: %s: got %s, want %s", what, name, got, want)
						return
					}
				}
			}
		})
	}
	from("udp", dial(t, "udp", at).ask)
	from("udp", dial(t, "udp", at).ask)
	from("tcp", dial(t, "tcp", at).ask)
	from("tcp, once", func(name string) string {
		m, _, err := (&mdns.Client{Net: "tcp", Timeout: 10 * time.Second}).Exchange(new(mdns.Msg).SetQuestion(name, mdns.TypeA), at)
		if err != nil {
			return err.Error()
		}
		return digestOf(m)
	})
	stop = sync.OnceValue(func() int64 {
		close(done)
		clients.Wait()
		return asked.Load()
	})
	t.Cleanup(func() { stop() })
	return stop
}

// A mounted ConfigMap changes a thousand times under load. No query is lost, and each
// new name is served within a second.
func TestMounted(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	changes := race.Fewer(1000)
	for _, path := range []string{"key", "."} {
		t.Run(path, func(t *testing.T) {
			t.Parallel() // it mostly waits
			m := &mount{t: t, dir: t.TempDir()}
			version := func(i int) map[string]string {
				return map[string]string{
					"key":   fmt.Sprintf("10.0.0.1 always.test\n10.0.0.2 n%d.test\n10.0.%d.%d changes.test\n", i, i/250, i%250),
					"other": "10.0.0.3 other.test\n",
				}
			}
			m.put(version(0))
			log := new(chaintest.Log)
			at := serve(t, log, "file "+filepath.Join(m.dir, path))
			stays := map[string]string{"always.test.": "NOERROR 10.0.0.1", "none.test.": "NXDOMAIN"}
			if path == "." {
				stays["other.test."] = "NOERROR 10.0.0.3"
			}
			stop := load(t, at, stays)
			a := dial(t, "udp", at)
			// A second of queries: time in which the process does not run does not count.
			const pause = time.Millisecond
			const most = int(time.Second / pause)
			var took []time.Duration
			for i := 1; i <= changes && !t.Failed(); i++ {
				m.put(version(i))
				name, asks := fmt.Sprintf("n%d.test.", i), 1
				for got := a.ask(name); got != "NOERROR 10.0.0.2"; got, asks = a.ask(name), asks+1 {
					if got != "NXDOMAIN" || asks == most {
						t.Fatalf("%s A: got %s after %d queries, want NOERROR 10.0.0.2", name, got, asks)
					}
					<-time.After(pause)
				}
				took = append(took, time.Since(m.at))
				if got, want := a.ask("changes.test."), fmt.Sprintf("NOERROR 10.0.%d.%d", i/250, i%250); got != want {
					t.Errorf("version %d: changes.test. A: got %s, want %s", i, got, want)
				}
				if name := fmt.Sprintf("n%d.test.", i-1); a.ask(name) != "NXDOMAIN" {
					t.Errorf("%s A, of the previous version: want NXDOMAIN", name)
				}
			}
			asked := stop()
			if asked < int64(changes) {
				t.Errorf("%d queries, want at least %d", asked, changes)
			}
			if log.Count("WARN") > 0 {
				t.Errorf("want no warnings, logged\n%s", log)
			}
			slices.Sort(took)
			t.Logf("%d queries; time from a change to its answer: median %v, 99%% %v, longest %v", asked, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		})
	}
}
