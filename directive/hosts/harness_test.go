package hosts

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

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

// below answers REFUSED to the queries that fall through.
type below struct{}

func (below) ServeDNS(q *dns.Query) dns.Verdict {
	q.Fail(wire.Refused)
	return dns.Done
}

// An asker sends queries to a handler.
type asker struct {
	*chaintest.Server
	handler *Handler
	local   netip.AddrPort // destination of the queries
}

func newAsker(t testing.TB, h *Handler) *asker {
	t.Helper()
	a := &asker{handler: h}
	a.Server = chaintest.NewServer(t, map[string]*dns.Chain{".": chaintest.NewChain("hosts", h, "below", below{})})
	a.Prepare = func(q *dns.Query) { q.Local = a.local }
	return a
}

func packet(t testing.TB, name, qtype string) []byte {
	t.Helper()
	return chaintest.Pack(t, chaintest.Query(name, qtype))
}

func (a *asker) ask(t testing.TB, name, qtype string, proto dns.Proto) *mdns.Msg {
	t.Helper()
	return a.Ask(chaintest.Query(name, qtype), proto)
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
