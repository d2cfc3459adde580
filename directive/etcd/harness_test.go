package etcd

import (
	"context"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// plan sets up the directive etcd without starting it.
func plan(directive string) (*Handler, error) {
	text := ".:53 {\n" + directive + "\n}\n"
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "etcd", Setup: Setup})
	if err != nil {
		return nil, err
	}
	return config.Find[*Handler](b)[0], nil
}

// handler returns a Handler with an empty, synced index.
func handler(t testing.TB, directive string) *Handler {
	t.Helper()
	h, err := plan(directive)
	if err != nil {
		t.Fatal(err)
	}
	h.seed = maphash.MakeSeed()
	h.index.beginList()
	h.index.endList()
	return h
}

// keyValues parses lines KEY JSON.
func keyValues(text string) (all []keyValue) {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, keyValue{key: []byte(key), value: []byte(strings.TrimSpace(value))})
		}
	}
	return all
}

// An upstream takes the place of forward: it has some records and parks each query.
type upstream struct {
	records []mdns.RR
	queries map[string]int
	inline  bool
	failing bool

	onQuery func() // called for each query, unless nil
}

func (w *upstream) ServeDNS(q *dns.Query) dns.Verdict {
	if w.inline {
		w.answer(q)
		return dns.Done
	}
	return dns.Wait
}

func (w *upstream) Resolve(_ context.Context, q *dns.Query) error {
	w.answer(q)
	return nil
}

func (w *upstream) answer(q *dns.Query) {
	if w.onQuery != nil {
		w.onQuery()
	}
	q.RA = true
	name := wire.Name(q.Name()).String()
	if w.queries == nil {
		w.queries = map[string]int{}
	}
	w.queries[name+" "+q.Type.String()]++
	if w.failing {
		q.Fail(wire.ServFail)
		return
	}
	exists := false
	for again := true; again; {
		again = false
		for _, rr := range w.records {
			if !strings.EqualFold(rr.Header().Name, name) {
				continue
			}
			exists = true
			if cname, ok := rr.(*mdns.CNAME); ok || rr.Header().Rrtype == uint16(q.Type) {
				m := &mdns.Msg{Answer: []mdns.RR{rr}}
				packed, err := m.Pack()
				if err != nil {
					panic(err)
				}
				if _, err := q.Answer.AppendRecord(wire.Answers, packed, wire.HeaderLen); err != nil {
					panic(err)
				}
				if ok {
					name, again = cname.Target, true
				}
			}
		}
	}
	if !exists {
		q.RCode = wire.NXDomain
	}
}

// A server is a handler with the chain around it.
type server struct {
	*chaintest.Server
	h        *Handler
	upstream *upstream
}

// serve returns a server with h in front of the upstream w, for the given zones.
func serve(t testing.TB, h *Handler, w *upstream, zones ...string) *server {
	t.Helper()
	c := chaintest.NewChain("etcd", h)
	if w != nil {
		c.Add("upstream", w)
	}
	h.stateKey = c.NewStateKey()
	chains := map[string]*dns.Chain{}
	for _, zone := range zones {
		chains[zone] = c
	}
	return &server{chaintest.NewServer(t, chains), h, w}
}

func packet(t testing.TB, name, qtype string, size uint16) []byte {
	t.Helper()
	m := chaintest.Query(name, qtype)
	if size > 0 {
		m.SetEdns0(size, false)
	}
	return chaintest.Pack(t, m)
}

// exchange sends a query over TCP.
func (s *server) exchange(name, qtype string) *mdns.Msg {
	return s.Ask(chaintest.Query(name, qtype), dns.TCP)
}

// digest returns the compared parts of a reply: the response code, the flags, and each
// section's records, sorted. The numbers of SOA records are omitted.
func digest(m *mdns.Msg) string {
	var b strings.Builder
	b.WriteString(mdns.RcodeToString[m.Rcode])
	if m.Authoritative {
		b.WriteString(" aa")
	}
	if m.Truncated {
		b.WriteString(" tc")
	}
	b.WriteString("\n")
	for i, section := range [][]mdns.RR{m.Answer, m.Ns, m.Extra} {
		var lines []string
		for _, rr := range section {
			line := strings.Join(strings.Fields(rr.String()), " ")
			if soa, ok := rr.(*mdns.SOA); ok {
				line = fmt.Sprintf("%s %d IN SOA %s %s", soa.Hdr.Name, soa.Hdr.Ttl, soa.Ns, soa.Mbox)
			}
			lines = append(lines, []string{"answer ", "authority ", "additional "}[i]+line)
		}
		for _, line := range slices.Sorted(slices.Values(lines)) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// A replay has keys, and queries with their replies. Its text has the lines
//
//	option TEXT          an option of the directive
//	zones NAME...        the zones of the directive
//	upstream RECORD      a record of the upstream
//	/KEY JSON
//	query NAME TYPE      a query; the next lines are the reply as digest writes it. The word differs
//	                     behind it means that CoreDNS has another reply (kubetest's TestEtcdReplay).
type replay struct {
	file      string
	options   []string
	zones     []string
	records   []mdns.RR
	keys      string
	exchanges []exchange
}

type exchange struct {
	name, qtype, want string
	line              int
}

// replays reads the files of testdata/skydns.
func replays(t testing.TB) (all []replay) {
	t.Helper()
	files, err := os.ReadDir("testdata/skydns")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile("testdata/skydns/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, readReplay(t, f.Name(), string(text)))
	}
	return all
}

func readReplay(t testing.TB, file, text string) replay {
	t.Helper()
	r := replay{file: file}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '/':
			r.keys += line + "\n"
		case word == "option":
			r.options = append(r.options, rest)
		case word == "zones":
			r.zones = strings.Fields(rest)
		case word == "upstream":
			rr, err := mdns.NewRR(rest)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, n, err)
			}
			r.records = append(r.records, rr)
		case word == "query":
			words := strings.Fields(rest)
			r.exchanges = append(r.exchanges, exchange{name: words[0], qtype: words[1], line: n})
		case len(r.exchanges) > 0:
			r.exchanges[len(r.exchanges)-1].want += line + "\n"
		default:
			t.Fatalf("%s:%d: unknown line %q", file, n, line)
		}
	}
	return r
}

// directive returns the replay's directive etcd.
func (r *replay) directive() string {
	return "etcd " + strings.Join(r.zones, " ") + " {\n" + strings.Join(r.options, "\n") + "\n}"
}

// serve returns a server with h for the replay's queries.
func (r *replay) serve(t testing.TB, h *Handler) *server {
	zones := r.zones
	var w *upstream
	if r.records != nil {
		w, zones = &upstream{records: r.records}, []string{"."}
	}
	return serve(t, h, w, zones...)
}

// run sends every query to s and compares the replies.
func (r *replay) run(t *testing.T, s *server) {
	t.Helper()
	for _, q := range r.exchanges {
		if got := digest(s.exchange(q.name, q.qtype)); got != sorted(q.want) {
			t.Errorf("%s:%d: %s %s\ngot\n%swant\n%s", r.file, q.line, q.name, q.qtype, got, sorted(q.want))
		}
	}
}

// sorted sorts the records of each section.
func sorted(want string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(want, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\n") + "\n"
	}
	rank := map[string]int{"answer": 1, "authority": 2, "additional": 3}
	slices.SortStableFunc(lines[1:], func(a, b string) int {
		wordA, _, _ := strings.Cut(a, " ")
		wordB, _, _ := strings.Cut(b, " ")
		if d := rank[wordA] - rank[wordB]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return strings.Join(lines, "")
}
