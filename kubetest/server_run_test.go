package kubetest

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

// A daemon is the server as the command runs it, on loopback sockets.
type daemon struct {
	*testing.T
	at      string // address for queries
	ready   string // address of the directive ready, if any
	metrics metrics.Registry
	journal

	changed chan struct{} // has a value after a change of the Corefile

	mu      sync.Mutex
	text    string // its Corefile
	reloads int
}

// corefileOf returns a Corefile with the usual zones and these options of the
// kubernetes directive. $READY is replaced by an address.
func corefileOf(options ...string) string {
	return ". {\n errors\n ready $READY\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  " + strings.Join(options, "\n  ") + "\n }\n}\n"
}

// kubeconfig returns the option for the kubeconfig of srv.
func kubeconfig(t *testing.T, srv *Server) string {
	t.Helper()
	return "kubeconfig " + must(srv.Kubeconfig())(t)
}

// serve runs a server until the test ends.
func serve(t *testing.T, text string) *daemon {
	t.Helper()
	d := &daemon{T: t, text: text, ready: freeAddress(t), changed: make(chan struct{}, 1)}
	run := server.Run{
		Options: server.Options{
			Directives: builtin.Directives(),
			Listen:     []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
			Log:        server.NewLog(&d.journal, slog.LevelDebug), // where reloads by Changed are
			Metrics:    &d.metrics,
		},
		Read: func() corefile.Reading {
			d.mu.Lock()
			defer d.mu.Unlock()
			return corefile.ReadText("Corefile", []byte(strings.ReplaceAll(d.text, "$READY", d.ready)))
		},
		Changed: d.changed,
		Out:     &d.journal, Greeting: "[INFO] started",
	}
	// Not the test's context, which ends before the clients do.
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run.Serve(ctx); err != nil {
			t.Errorf("the server: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("the server's log:\n%s", d.log())
		}
	})
	chaintest.Eventually(t, "the server's start", func() bool { return d.logs("started") == 1 || t.Failed() })
	if t.Failed() {
		t.FailNow()
	}
	d.at = "127.0.0.1:" + regexp.MustCompile(`:(\d+) on 127\.0\.0\.1\n`).FindStringSubmatch(d.log())[1]
	return d
}

// reload replaces the Corefile, and returns when the server serves it.
func (d *daemon) reload(text string) {
	d.Helper()
	before := d.logs("Reloading complete")
	d.startReload(text)
	chaintest.Eventually(d.T, "the reload", func() bool {
		if d.logs("Reload failed") > 0 {
			d.Fatalf("the reload failed, want it to succeed:\n%s", text)
		}
		return d.logs("Reloading complete") > before
	})
}

// startReload replaces the Corefile, which differs from that of before by a comment at least. A
// signal would reach the servers of all tests of the process.
func (d *daemon) startReload(text string) {
	d.mu.Lock()
	d.reloads++
	d.text = fmt.Sprintf("%s# change %d\n", text, d.reloads)
	d.mu.Unlock()
	d.changed <- struct{}{}
}

// metric returns the value of a series, in the notation of the text format; -1 if
// there is none.
func (d *daemon) metric(series string) float64 {
	d.Helper()
	var text strings.Builder
	if err := d.metrics.WriteText(&text); err != nil {
		d.Fatal(err)
	}
	lines := bufio.NewScanner(strings.NewReader(text.String()))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return must(strconv.ParseFloat(value, 64))(d.T)
		}
	}
	return -1
}

// count returns a counter of the kubernetes directive for one resource.
func (d *daemon) count(counter, resource string) int {
	d.Helper()
	return int(d.metric(fmt.Sprintf("seamark_kubernetes_%s_total{resource=%q}", counter, resource)))
}

// age returns the age of one resource's data in seconds.
func (d *daemon) age(resource string) float64 {
	d.Helper()
	return d.metric(fmt.Sprintf("seamark_kubernetes_data_age_seconds{resource=%q}", resource))
}

// A journal is a server's log.
type journal struct {
	writing sync.Mutex
	written strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.written.Write(p)
}

func (j *journal) log() string {
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.written.String()
}

// logs counts the lines that contain all of these words.
func (j *journal) logs(words ...string) (n int) {
lines:
	for line := range strings.Lines(j.log()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		n++
	}
	return n
}

// checkReady checks the response of the directive ready.
func (d *daemon) checkReady(ready bool) {
	d.Helper()
	code, text := page(d.T, "http://"+d.ready+"/ready")
	names, reasons, _ := strings.Cut(text, "\n")
	waits := code == http.StatusServiceUnavailable && names == "kubernetes" && strings.HasPrefix(reasons, "kubernetes: ")
	if ready && (code != http.StatusOK || text != "OK") || !ready && !waits {
		d.Errorf("/ready: got %d %s, want ready %v", code, text, ready)
	}
}

// freeAddress returns a free loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + freeport.Reserve(t)
}
