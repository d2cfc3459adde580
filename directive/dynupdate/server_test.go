package dynupdate_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

const (
	secret = "Xo8kIYhTMDRuAn0z2AJ2jhN4Nq6Z5dGXlaCrqrhhk0A="
	seed   = `$ORIGIN example.org.
$TTL 60
@ SOA ns.example.org. hostmaster.example.org. 10 3600 600 86400 30
@ NS ns.example.org.
@ NS ns2.example.org.
ns A 192.0.2.53
ns2 A 192.0.2.54
a A 192.0.2.1
a A 192.0.2.2
a TXT "one"
m MX 10 Mail.example.org.
alias CNAME a
*.wild TXT "wild"
sub NS ns.sub
ns.sub A 192.0.2.55
d DNAME example.net.
`
	// patience is how long a client waits for a reply: a busy machine may need seconds.
	patience = 20 * time.Second
)

// A world is a server with a zone that can be updated.
type world struct {
	t        testing.TB
	at       netip.AddrPort
	dir      string
	text     string
	plan     *server.Plan
	budget   *memory.Budget
	registry *metrics.Registry
	log      *chaintest.Log
}

// newWorld starts a server whose dynupdate has more lines. DIR in them is the directory of the seed.
func newWorld(t testing.TB, lines ...string) *world {
	w := &world{t: t, at: netip.MustParseAddrPort("127.0.0.1:" + freeport.Reserve(t)), dir: t.TempDir(), registry: new(metrics.Registry)}
	w.write("seed", seed)
	w.text = w.block(lines...)
	w.start()
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Logf("log of the server:\n%.6000s", w.log)
		}
	})
	return w
}

// block returns a server block. Lines that begin with + are beside dynupdate.
func (w *world) block(lines ...string) string {
	var inside, beside strings.Builder
	for _, l := range lines {
		l = strings.ReplaceAll(l, "DIR", w.dir)
		if text, ok := strings.CutPrefix(l, "+"); ok {
			fmt.Fprintln(&beside, text)
		} else {
			fmt.Fprintln(&inside, l)
		}
	}
	return fmt.Sprintf("example.org {\n tsig {\n secret key. %s\n secret narrow. %[1]s\n secret other. %[1]s\n }\n"+
		"dynupdate {\n file %s/seed\n allow key. * *\n allow narrow. a.example.org. A\n %s}\n%s}\n",
		secret, w.dir, inside.String(), beside.String())
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// try starts a plan with w.text in place of the running one.
func (w *world) try() (*server.Plan, error) {
	blocks, err := corefile.Parse("Corefile", []byte(w.text))
	if err != nil {
		w.t.Fatal(err)
	}
	log := new(chaintest.Log)
	options := server.Options{
		Directives: builtin.Directives(), Listen: []netip.AddrPort{w.at}, Metrics: w.registry, Memory: w.budget,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	plan, err := server.NewPlan(blocks, options)
	if err == nil {
		err = plan.Start(context.Background(), w.plan)
	}
	if err == nil {
		w.log = log
	}
	return plan, err
}

// start starts the server, or reloads it.
func (w *world) start() {
	w.t.Helper()
	plan, err := w.try()
	if err != nil {
		w.t.Fatalf("%s\n%v", w.text, err)
	}
	w.plan = plan
}

func (w *world) stop() {
	if w.plan != nil {
		w.plan.Stop(context.Background())
		w.plan = nil
	}
}

// exchange sends a message, signed with a key unless that is "".
func (w *world) exchange(m *mdns.Msg, network, key string) *mdns.Msg {
	w.t.Helper()
	c := &mdns.Client{Net: network, Timeout: patience}
	if key != "" {
		c.TsigSecret = map[string]string{key: secret, strings.ToLower(key): secret}
		m.SetTsig(key, mdns.HmacSHA256, 300, time.Now().Unix())
	}
	r, _, err := c.Exchange(m, w.at.String())
	if err != nil && (r == nil || r.Rcode != mdns.RcodeNotAuth) { // which is an error for the library
		w.t.Fatalf("%v\n%v", err, m)
	}
	return r
}

// message returns an update by lines such as "add NAME TTL TYPE DATA", "delete NAME [TYPE [DATA]]",
// "yxrrset NAME TYPE [DATA]", "nxrrset NAME TYPE", "yxdomain NAME" and "nxdomain NAME". Names are
// relative to example.org.
func message(t testing.TB, lines ...string) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg).SetUpdate("example.org.")
	for _, line := range lines {
		words := strings.SplitN(line, " ", 4)
		name := words[1]
		switch {
		case name == "@":
			name = "example.org."
		case !strings.HasSuffix(name, "."):
			name += ".example.org."
		}
		record := func(text string) []mdns.RR {
			rr, err := mdns.NewRR(text)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return []mdns.RR{rr}
		}
		header := func() []mdns.RR {
			return []mdns.RR{&mdns.ANY{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.StringToType[words[2]]}}}
		}
		bare := []mdns.RR{&mdns.ANY{Hdr: mdns.RR_Header{Name: name}}}

		switch do := words[0]; {
		case do == "add":
			m.Insert(record(name + " " + words[2] + " " + words[3]))
		case do == "delete" && len(words) == 2:
			m.RemoveName(bare)
		case do == "delete" && len(words) == 3:
			m.RemoveRRset(header())
		case do == "delete":
			m.Remove(record(name + " 0 " + words[2] + " " + words[3]))
		case do == "yxrrset" && len(words) == 4:
			m.Used(record(name + " 0 " + words[2] + " " + words[3]))
		case do == "yxrrset":
			m.RRsetUsed(header())
		case do == "nxrrset":
			m.RRsetNotUsed(header())
		case do == "yxdomain":
			m.NameUsed(bare)
		case do == "nxdomain":
			m.NameNotUsed(bare)
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return m
}

// update sends an update and checks the response code.
func (w *world) update(want int, lines ...string) {
	w.t.Helper()
	r := w.exchange(message(w.t, lines...), "udp", "key.")
	if r.Rcode != want || r.Opcode != mdns.OpcodeUpdate || !r.Response || !r.Authoritative || r.IsTsig() == nil {
		w.t.Errorf("%q: got %v, want a signed reply %s", lines, r, mdns.RcodeToString[want])
	}
}

// lookup returns the answer of a query as sorted lines, or else its response code.
func (w *world) lookup(name, qtype string) string {
	w.t.Helper()
	if name == "@" {
		name = "example.org."
	} else {
		name += ".example.org."
	}
	r := w.exchange(new(mdns.Msg).SetQuestion(name, mdns.StringToType[qtype]), "udp", "")
	if len(r.Answer) == 0 {
		return mdns.RcodeToString[r.Rcode]
	}
	var lines []string
	for _, rr := range r.Answer {
		h := rr.Header()
		lines = append(lines, fmt.Sprintf("%d %s", h.Ttl, strings.TrimPrefix(rr.String(), h.String())))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// expect checks the answer of a query.
func (w *world) expect(name, qtype, want string) {
	w.t.Helper()
	if got := w.lookup(name, qtype); got != want {
		w.t.Errorf("%s %s: got %q, want %q", name, qtype, got, want)
	}
}

// serial returns the serial number of the zone.
func (w *world) serial() uint32 {
	w.t.Helper()
	r := w.exchange(new(mdns.Msg).SetQuestion("example.org.", mdns.TypeSOA), "udp", "")
	soa, ok := r.Answer[0].(*mdns.SOA)
	if !ok {
		w.t.Fatalf("got %v, want a SOA record", r)
	}
	return soa.Serial
}
