package dnsmasq_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/compat/dnsmasq"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// TestOracle sends the same queries to the real dnsmasq and to a server with the Corefile
// for its options. Both use the same upstreams.
func TestOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	program := realDnsmasq(t)
	words := strings.NewReplacer("U1", upstream(t, "198.18.0.1"), "U2", upstream(t, "198.18.0.2"), "BAD", refuser(t), "DIR", testFiles(t))
	for _, c := range comparisons {
		t.Run(strings.ReplaceAll(c.args, "/", "|"), func(t *testing.T) {
			args := strings.Fields(words.Replace(c.args))
			theirs, ours := startTheirs(t, program, args), startOurs(t, args)
			expected := map[string]difference{}
			for _, d := range c.differ {
				expected[d.query] = d
			}
			for _, q := range c.queries {
				for _, again := range []string{"", " again"} { // the second answer may come from the cache
					a, b := ask(t, theirs, q), ask(t, ours, q)
					d, ok := expected[q]
					if again != "" && d.again != "" {
						d.theirs = d.again
					}
					switch {
					case !ok && a != b:
						t.Errorf("%s%s: got\n%s\nwant, from dnsmasq,\n%s", q, again, b, a)
					case ok && (a != d.theirs || b != d.ours):
						t.Errorf("%s%s: got\n%s\nwant\n%s\ndnsmasq: got\n%s\nwant\n%s\nreason: %s", q, again, b, d.ours, a, d.theirs, d.why)
					}
				}
				delete(expected, q)
			}
			for q := range expected {
				t.Errorf("expected difference of %s, which is not among the queries", q)
			}
		})
	}
}

func realDnsmasq(t *testing.T) string {
	t.Helper()
	return debian.Program(t, "dnsmasq")
}

func testFiles(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hosts":    "10.1.0.1 db db.internal.example\n10.1.0.2 web.internal.example www.internal.example\nfd00::2 web.internal.example\n198.18.9.9 a.example\n10.1.0.5 x.redirect.example\n",
		"d/one":    "10.2.0.1 one.dir.example\n",
		"d/two":    "10.2.0.2 two.dir.example\n",
		"conf":     "# a file\nserver=/other.example/U2 # it is not there\ntxt-record=quoted.example,\"a, b\",c\nlocal=/lan/\n",
		"cdir/a":   "host-record=a.conf.example,10.3.0.1\n",
		"cdir/b~":  "nonsense\n",
		"cdir/c.x": "host-record=c.conf.example,10.3.0.3\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "U2", "127.0.0.1#9")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// upstreamRecords are the records of the upstreams as in a zone file.
const upstreamRecords = `
a.example. 300 A 198.18.1.1
a.example. 300 AAAA 2001:470::1
a.example. 300 TXT "a"
many.example. 300 A 198.18.2.1
many.example. 300 A 198.18.2.2
many.example. 300 A 198.18.2.3
alias.example. 300 CNAME many.example.
mail.example. 300 MX 10 a.example.
short.example. 1 A 198.18.3.1
zero.example. 0 A 198.18.3.2
long.example. 100000 A 198.18.3.3
both.example. 300 A 198.18.4.1
both.example. 300 AAAA 2001:470::4
private.example. 300 A 10.9.9.9
private6.example. 300 AAAA fd00::9
inside.trusted.example. 300 A 10.9.9.8
loopback.example. 300 A 127.0.0.1
printer. 300 A 198.18.5.1
printer. 300 MX 10 a.example.
1.0.0.10.in-addr.arpa. 300 PTR private.example.
1.1.18.198.in-addr.arpa. 300 PTR a.example.
web.internal.example. 300 A 198.18.6.1
web.internal.example. 300 TXT "upstream"
x.redirect.example. 300 TXT "upstream"
`

// upstream starts a server with upstreamRecords, and with A and TXT records of who.* that
// have its address. servfail.example and refused.example have these response codes.
func upstream(t *testing.T, me string) string {
	byName := map[string][]dns.RR{}
	for line := range strings.Lines(upstreamRecords) {
		if rr, err := dns.NewRR(line); err != nil {
			t.Fatal(err)
		} else if rr != nil {
			byName[rr.Header().Name] = append(byName[rr.Header().Name], rr)
		}
	}
	soa, _ := dns.NewRR("example. 300 SOA ns.example. admin.example. 1 300 300 300 300")
	return dnsServer(t, dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		r.RecursionAvailable = true
		q := m.Question[0]
		name := strings.ToLower(q.Name)
		switch {
		case strings.HasPrefix(name, "who."):
			for _, text := range []string{" 300 A " + me, " 300 TXT " + me} {
				if rr, _ := dns.NewRR(name + text); rr.Header().Rrtype == q.Qtype {
					r.Answer = append(r.Answer, rr)
				}
			}
		case name == "servfail.example.":
			r.Rcode = dns.RcodeServerFailure
		case name == "refused.example.":
			r.Rcode = dns.RcodeRefused
		case byName[name] == nil:
			r.Rcode, r.Ns = dns.RcodeNameError, []dns.RR{soa}
		default:
			for next := name; next != ""; {
				at := next
				next = ""
				for _, rr := range byName[at] {
					if rr.Header().Rrtype == q.Qtype {
						r.Answer = append(r.Answer, rr)
					} else if c, ok := rr.(*dns.CNAME); ok {
						r.Answer, next = append(r.Answer, rr), c.Target
					}
				}
			}
			if len(r.Answer) == 0 {
				r.Ns = []dns.RR{soa}
			}
		}
		_ = w.WriteMsg(r)
	}))
}

// refuser starts a server that replies REFUSED to every query.
func refuser(t *testing.T) string {
	return dnsServer(t, dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(m, dns.RcodeRefused))
	}))
}

func dnsServer(t *testing.T, h dns.Handler) (addr string) {
	t.Helper()
	port := freeport.Reserve(t)
	for _, network := range []string{"udp", "tcp"} {
		ready := make(chan struct{})
		s := &dns.Server{Net: network, Addr: "127.0.0.1:" + port, Handler: h, NotifyStartedFunc: func() { close(ready) }}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.ListenAndServe() })
		select {
		case <-ready:
		case <-time.After(time.Minute):
			t.Fatal("the upstream did not start within a minute")
		}
		t.Cleanup(func() {
			_ = s.Shutdown()
			serving.Wait()
		})
	}
	return "127.0.0.1#" + port
}

func startTheirs(t *testing.T, program string, args []string) (addr string) {
	port := freeport.Reserve(t)
	all := []string{"-k", "--pid-file=", "--log-facility=-", "-p", port, "-a", "127.0.0.1", "-z"}
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--conf-file") }) {
		all = append(all, "--conf-file=")
	}
	if os.Getuid() == 0 {
		all = append(all, "--user=root")
	}
	c := exec.CommandContext(t.Context(), program, append(all, args...)...)
	if testing.Verbose() {
		c.Stderr = os.Stderr
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return ready(t, "127.0.0.1:"+port)
}

// startOurs serves the Corefile for the options.
func startOurs(t *testing.T, args []string) (addr string) {
	port := freeport.Reserve(t)
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--conf-file") }) {
		args = append([]string{"--conf-file="}, args...)
	}
	o, err := dnsmasq.Parse(append([]string{"-p", port, "-a", "127.0.0.1"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.Corefile(dnsmasq.Environment{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(text)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = server.NewLog(os.Stderr, slog.LevelInfo)
	}
	r := server.Run{
		Options: server.Options{Directives: builtin.Directives(), Port: 53, Log: log, Metrics: new(metrics.Registry)},
		Out:     io.Discard,
		Read:    func() corefile.Reading { return corefile.ReadText("(dnsmasq)", []byte(text)) },
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ready(t, "127.0.0.1:"+port)
}

// ready waits until the server at addr replies.
func ready(t *testing.T, addr string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		m := new(dns.Msg).SetQuestion("version.bind.", dns.TypeTXT)
		m.Question[0].Qclass = dns.ClassCHAOS
		c := dns.Client{Timeout: time.Second}
		if _, _, err := c.Exchange(m, addr); err == nil {
			return addr
		}
	}
	t.Fatalf("%s: no reply within a minute", addr)
	return ""
}

// ask sends the query NAME TYPE [CH|TTL] and returns the answer as text: response code,
// flags except for class CH, and records, with TTLs if the answer is authoritative or the
// query has TTL.
func ask(t *testing.T, addr, query string) string {
	t.Helper()
	words := strings.Fields(query)
	kind, ok := dns.StringToType[words[1]]
	if n, isNumber := strings.CutPrefix(words[1], "TYPE"); !ok && isNumber {
		value, err := strconv.ParseUint(n, 10, 16)
		ok, kind = err == nil, uint16(value)
	}
	if !ok {
		t.Fatalf("query %q: unknown type", query)
	}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(words[0]), kind)
	if strings.HasSuffix(query, " CH") {
		m.Question[0].Qclass = dns.ClassCHAOS
	}
	c := dns.Client{Timeout: 10 * time.Second}
	r, _, err := c.Exchange(m, addr)
	if err != nil {
		return err.Error()
	}
	out := dns.RcodeToString[r.Rcode]
	if r.Authoritative && m.Question[0].Qclass == dns.ClassINET {
		out += " aa"
	}
	if r.RecursionAvailable && m.Question[0].Qclass == dns.ClassINET {
		out += " ra"
	}
	var lines []string
	for _, rr := range r.Answer {
		h := rr.Header()
		ttl := ""
		switch {
		// dnsmasq marks a CNAME record of an upstream as its own, too. TTLs of upstreams decrease
		// while the test waits, so they are rounded.
		case strings.HasSuffix(query, " TTL"), r.Authoritative && h.Class == dns.ClassINET && h.Ttl > 290:
			ttl = fmt.Sprintf(" %d", (h.Ttl+5)/10*10)
		case r.Authoritative && h.Class == dns.ClassINET: // TTLs of upstreams decrease
			ttl = fmt.Sprintf(" %d", h.Ttl)
		}
		lines = append(lines, fmt.Sprintf("%s%s %s %s", strings.ToLower(h.Name), ttl, dns.Type(h.Rrtype), strings.TrimPrefix(rr.String(), h.String())))
	}
	slices.Sort(lines)
	for _, l := range lines {
		out += "; " + strings.ReplaceAll(l, "\t", " ")
	}
	return out
}
