package hosts

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A journal collects log lines. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// count returns the number of lines that contain words.
func (j *journal) count(words string) (n int) {
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

// write replaces a file.
func write(t testing.TB, file, text string) {
	t.Helper()
	spare := filepath.Join(t.TempDir(), "spare")
	if err := os.WriteFile(spare, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(spare, file); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the condition is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("condition not met within a minute: %s", what)
		}
	}
}

// below answers REFUSED to the queries that fall through.
type below struct{}

func (below) ServeDNS(q *dns.Query) dns.Verdict {
	q.Fail(wire.Refused)
	return dns.Done
}

// An asker sends queries to a handler, one at a time, without sockets.
type asker struct {
	handler *Handler
	port    dns.Port
	query   *dns.Query
	lent    []byte
	local   netip.AddrPort // destination of the queries
}

func newAsker(t testing.TB, h *Handler) *asker {
	t.Helper()
	c := new(dns.Chain)
	c.Add("hosts", h)
	c.Add("below", below{})
	mux := dns.NewMux(dns.NewParkingLot(1), nil)
	if err := mux.Route(wire.Root, c); err != nil {
		t.Fatal(err)
	}
	a := &asker{handler: h, query: dns.NewQuery(nil), lent: make([]byte, 1<<17)}
	a.port.Swap(mux)
	return a
}

func packet(t testing.TB, name, qtype string) []byte {
	t.Helper()
	p, err := new(mdns.Msg).SetQuestion(name, mdns.StringToType[qtype]).Pack()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

func (a *asker) send(packet []byte, proto dns.Proto) []byte {
	a.query.Reset(packet, proto, time.Time{})
	a.query.Local = a.local
	if a.port.Serve(a.query, a.lent) != dns.Answered {
		return nil
	}
	return a.query.Reply()
}

func (a *asker) ask(t testing.TB, name, qtype string, proto dns.Proto) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(a.send(packet(t, name, qtype), proto)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// digest returns the response code, aa, and the RDATA of the answer section.
func (a *asker) digest(t testing.TB, name, qtype string) string {
	t.Helper()
	m := a.ask(t, name, qtype, dns.TCP)
	words := []string{mdns.RcodeToString[m.Rcode]}
	if m.Authoritative {
		words = append(words, "aa")
	}
	for _, rr := range m.Answer {
		words = append(words, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(words, " ")
}

// check expects an answer with this RDATA.
func (a *asker) check(t testing.TB, name, qtype string, ttl60 bool, data ...string) {
	t.Helper()
	want := strings.Join(append([]string{"NOERROR aa"}, data...), " ")
	if got := a.digest(t, name, qtype); got != want {
		t.Errorf("%s %s: got %s, want %s", name, qtype, got, want)
	}
	if m := a.ask(t, name, qtype, dns.TCP); ttl60 && m.Answer[0].Header().Ttl != 60 {
		t.Errorf("%s %s: TTL %d, want 60", name, qtype, m.Answer[0].Header().Ttl)
	}
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
