package screen

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/cache"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/records"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// A fakeUpstream is an upstream server: its answers by name and type.
type fakeUpstream map[string]*mdns.Msg

// parseAnswers parses the answers of an upstream: a line "? NAME TYPE [RCODE]" for the
// query, then its records. + begins a record of the additional section, ^ one of the
// authority section.
func parseAnswers(t testing.TB, text string) fakeUpstream {
	t.Helper()
	w := fakeUpstream{}
	var m *mdns.Msg
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if fields[0] == "?" {
			m = new(mdns.Msg)
			if len(fields) > 3 {
				m.Rcode = mdns.StringToRcode[fields[3]]
			}
			w[fields[1]+". "+fields[2]] = m
			continue
		}
		rr, err := mdns.NewRR(strings.TrimLeft(line, "+^"))
		if err != nil {
			t.Fatal(err)
		}
		switch line[0] {
		case '+':
			m.Extra = append(m.Extra, rr)
		case '^':
			m.Ns = append(m.Ns, rr)
		default:
			m.Answer = append(m.Answer, rr)
		}
	}
	return w
}

// ServeDNS answers with the answer in w. Other TXT, ANY and PTR queries get a record
// that names the upstream.
func (w fakeUpstream) ServeDNS(to mdns.ResponseWriter, query *mdns.Msg) {
	m := new(mdns.Msg).SetReply(query)
	m.RecursionAvailable = true
	q := query.Question[0]
	if has := w[strings.ToLower(q.Name)+" "+mdns.TypeToString[q.Qtype]]; has != nil {
		m.Rcode, m.Answer, m.Ns, m.Extra = has.Rcode, has.Answer, has.Ns, slices.Clone(has.Extra)
	} else if q.Qtype == mdns.TypeTXT || q.Qtype == mdns.TypeANY || q.Qtype == mdns.TypePTR {
		rr, _ := mdns.NewRR(`. 60 TXT "upstream"`)
		if q.Qtype == mdns.TypePTR {
			rr, _ = mdns.NewRR(`. 60 PTR upstream.`)
		}
		rr.Header().Name = q.Name
		m.Answer = []mdns.RR{rr}
	}
	_ = to.WriteMsg(m)
}

// listen serves w over UDP until the test ends.
func listen(t testing.TB, w mdns.Handler) (addr netip.AddrPort) {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	s := &mdns.Server{PacketConn: udp, Handler: w, NotifyStartedFunc: func() { close(started) }}
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = s.Shutdown() // ActivateAndServe returns a better error
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return netip.MustParseAddrPort(udp.LocalAddr().String())
}

// plan sets up a block of cache, records, screen and forward.
func plan(text string, log *slog.Logger) (*config.Block, error) {
	b, err := chaintest.Setup(text, log,
		config.Directive{Name: "cache", Setup: cache.Setup}, config.Directive{Name: "records", Setup: records.Setup},
		config.Directive{Name: "screen", Setup: Setup}, config.Directive{Name: "forward", Setup: forward.Setup})
	if err != nil {
		return nil, err
	}
	return b, corefile.Sorted(b.Planned()...)
}

// A testBlock is a running server block without sockets of its own.
type testBlock struct {
	*chaintest.Block
	t   testing.TB
	log chaintest.Log
	at  time.Time // of the next query
}

// run starts a block with a forward to w.
func run(t testing.TB, lines string, w mdns.Handler) *testBlock {
	t.Helper()
	r := &testBlock{t: t}
	b, err := plan(".:53 {\n"+lines+"\nforward . "+listen(t, w).String()+"\n}", r.log.Logger())
	if err != nil {
		t.Fatal(err)
	}
	r.Block = chaintest.Run(t, b, nil)
	r.Prepare = r.prepare
	return r
}

// setBelow makes h the only handler below screen.
func (r *testBlock) setBelow(h dns.Handler) {
	c := chaintest.NewChain("screen", config.Find[*Screen](r.Plan)[0], "below", h)
	r.Server = chaintest.NewServer(r.t, map[string]*dns.Chain{".": c.CopyFor("dns://:53", ".")})
	r.Prepare = r.prepare
}

func (r *testBlock) prepare(q *dns.Query) {
	q.Start, q.Peer, q.Local = r.at, netip.MustParseAddrPort("10.0.0.1:53012"), netip.MustParseAddrPort("10.0.0.2:53")
}

// exchange returns the reply to one query with EDNS.
func (r *testBlock) exchange(name, qtype string, at time.Time) *mdns.Msg {
	r.t.Helper()
	m := chaintest.Query(name, qtype)
	m.SetEdns0(1232, false)
	return chaintest.Unpack(r.t, r.send(chaintest.Pack(r.t, m), at))
}

func (r *testBlock) send(packet []byte, at time.Time) []byte {
	r.at = at
	return r.Serve(packet, dns.UDP)
}

// metrics returns the values of seamark_screen_total by reason.
func (r *testBlock) metrics() string {
	var page strings.Builder
	if err := r.Plan.Metrics.WriteText(&page); err != nil {
		r.t.Fatal(err)
	}
	var counts []string
	for line := range strings.Lines(page.String()) {
		if rest, ok := strings.CutPrefix(line, `seamark_screen_total{reason="`); ok {
			counts = append(counts, strings.Replace(strings.TrimSpace(rest), `"}`, "", 1))
		}
	}
	slices.Sort(counts)
	return strings.Join(counts, ", ")
}

// digest returns the response code, AA, RA and the records of a reply as text.
func digest(m *mdns.Msg) string {
	text := mdns.RcodeToString[m.Rcode]
	if m.Authoritative {
		text += " aa"
	}
	if m.RecursionAvailable {
		text += " ra"
	}
	var lines []string
	for i, rrs := range [][]mdns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range rrs {
			if rr.Header().Rrtype != mdns.TypeOPT {
				lines = append(lines, "\n\t"+[]string{"", "^", "+"}[i]+strings.ReplaceAll(rr.String(), "\t", " "))
			}
		}
	}
	slices.Sort(lines)
	return text + strings.Join(lines, "")
}
