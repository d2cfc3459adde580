package template

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// plan sets up the template directives of a Corefile of one block, whose zone is org.
func plan(text string) (*config.Block, error) {
	text = strings.Replace(text, ".:53 {", "org:53 {", 1)
	return chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "template", Setup: Setup})
}

// fakeMetadata provides the metadata x/y.
type fakeMetadata string

func (t fakeMetadata) Metadata(_ *dns.Query, key string) (string, bool) {
	return string(t), key == "x/y"
}

// A fakeForward is the handler below template. It refuses TXT queries, parks all
// others and answers them with an A record.
type fakeForward struct{}

func (fakeForward) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeTXT {
		return dns.Wait
	}
	q.RCode = wire.Refused
	return dns.Done
}

func (fakeForward) Resolve(_ context.Context, q *dns.Query) error {
	q.RA = true
	q.Answer.Append(wire.Answers, wire.AppendAddress(nil, wire.OwnerIsQuestion, 5, netip.AddrFrom4([4]byte{192, 0, 2, 7})), 1)
	return nil
}

// A testBlock is a running server block without sockets.
type testBlock struct {
	*chaintest.Server
	t     testing.TB
	block *config.Block
}

func run(t testing.TB, text string) *testBlock {
	t.Helper()
	b, err := plan(text)
	if err != nil {
		t.Fatal(err)
	}
	b.Offer(metadata{})
	b.Offer(fakeMetadata(`a"b\`))
	b.SetDirective("forward")
	b.Handle(fakeForward{})
	if errs := b.Planned(); len(errs) > 0 {
		t.Fatal(errs)
	}
	chain := b.Chain.CopyFor("dns://:53", "org.")
	chain.View = "v"
	r := &testBlock{t: t, block: b, Server: chaintest.NewServer(t, map[string]*dns.Chain{".": chain})}
	r.Prepare = func(q *dns.Query) {
		q.Peer, q.Local = netip.MustParseAddrPort("10.0.0.1:53012"), netip.MustParseAddrPort("10.0.0.2:53")
	}
	return r
}

// exchange returns the reply and the error that caused SERVFAIL.
func (r *testBlock) exchange(name []byte, qtype wire.Type) ([]byte, error) {
	packet := wire.AppendRequest(nil, 4, wire.FlagRD, name, qtype)
	packet = append(packet, 0, 0, 41, 1232>>8, 1232&255, 0, 0, 0, 0, 0, 0)
	packet[11] = 1
	return r.serve(packet)
}

func (r *testBlock) serve(packet []byte) ([]byte, error) {
	reply := r.Serve(packet, dns.TCP)
	return reply, r.Err
}

// dig returns the response code and the records of the reply as text.
func (r *testBlock) dig(name string, qtype wire.Type) string {
	r.t.Helper()
	n, err := wire.ParseName(name)
	if err != nil {
		r.t.Fatal(err)
	}
	reply, _ := r.exchange([]byte(n), qtype)
	return text(r.t, reply)
}

func text(t testing.TB, reply []byte) string {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	code := mdns.RcodeToString[m.Rcode]
	if m.Authoritative {
		code += " aa"
	}
	lines := []string{code}
	for i, rrs := range [][]mdns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range rrs {
			if opt, ok := rr.(*mdns.OPT); ok {
				for _, o := range opt.Option {
					lines = append(lines, o.String())
				}
				continue
			}
			lines = append(lines, []string{"", ";authority ", ";additional "}[i]+strings.ReplaceAll(rr.String(), "\t", " "))
		}
	}
	return strings.Join(lines, "\n")
}

// Templates have the data that the reference page lists.
func TestTemplateData(t *testing.T) {
	r := run(t, strings.ReplaceAll(`.:53 {
	template IN TXT Example.ORG {
		match ^nothing ^(?P<host>[a-z]+)-(\d+)[.](?P<rest>.*)$
		var large size() > 20
		var labels split(name(), `+"`.`"+`)
		answer "{{ .Name }} 0 TXT {{ .Class }} {{ .Type }} {{ .Zone }} {{ .Remote }}"
		answer "{{ .Name }} 0 TXT {{ .Group.host }} {{ index .Group '2' }} {{ index .Match 2 }} {{ len .Match }}"
		answer "{{ .Name }} 0 TXT {{ parseInt (index .Match 2) 10 8 | printf '%02x' }}"
		answer "{{ .Name }} 0 TXT {{ .Question.Name }} {{ .Question.Qtype }} {{ .Question.Qclass }}"
		answer "{{ .Name }} 0 TXT {{ .Message.Id }} {{ .Message.Opcode }} {{ .Message.RecursionDesired }} {{ (index .Message.Question 0).Name }}"
		answer "{{ .Name }} 0 TXT '{{ .Meta 'x/none' }}' {{ .Meta 'x/y' | printf '%q' }}"
		answer "{{ .Name }} 0 TXT {{ .Var.large }} {{ index .Var.labels 1 }} {{ .Regex | len }}"
		answer "{{ .Group.host }} 0 TXT {{ with .Group }}{{ .host }}{{ $.Type }}{{ end }}" "{{ if eq .Type 'A' }}{{ .Name }} 0 A 192.0.2.1{{ end }}"
	}
}`, `'`, `\"`))
	packet := wire.AppendRequest(nil, 4711, wire.FlagRD, []byte("\x06Web-42\x07example\x03org\x00"), wire.TypeTXT)
	reply, err := r.serve(packet)
	if err != nil {
		t.Fatal(err)
	}
	const want = `NOERROR aa
Web-42.example.org. 0 IN TXT "IN" "TXT" "example.org." "10.0.0.1"
Web-42.example.org. 0 IN TXT "web" "42" "42" "4"
Web-42.example.org. 0 IN TXT "2a"
Web-42.example.org. 0 IN TXT "Web-42.example.org." "16" "1"
Web-42.example.org. 0 IN TXT "4711" "0" "true" "Web-42.example.org."
Web-42.example.org. 0 IN TXT "" "a\"b\\"
Web-42.example.org. 0 IN TXT "true" "example" "39"
web. 0 IN TXT "webTXT"`
	if got := text(t, reply); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFailures(t *testing.T) {
	r := run(t, `.:53 {
	template IN A {
		match ^(?P<a>[^.]*)[.]org
		answer "{{ .Name }} 60 IN A 192.0.2.{{ .Group.a }}"
	}
	template IN AAAA {
		answer "{{ .Name }} 60 IN AAAA fd00::{{ parseInt .Name 10 8 }}"
	}
	template IN MX {
		answer "{{ .Name }} 60 IN MX 10 a."
		authority "{{ .Name }} 60 IN MX {{ .Message.Id }} a. b."
	}
	template IN SSHFP {
		answer "{{ .Name }} 60 IN SSHFP 1 1 {{ .Message.Id }}F"
	}
	template IN TYPE65280 {
		var value fromJSON(name())
		answer "{{ .Name }} 60 IN TXT {{ .Var.value }}"
	}
}`)
	for _, c := range []struct {
		name  string
		qtype wire.Type
		err   string
	}{
		{"x.org", wire.TypeA, `template: answer "{{ .Name }} 60 IN A 192.0.2.{{ .Group.a }}": generated "x.org. 60 IN A 192.0.2.x": bad A A: "192.0.2.x"`},
		{"x.org", wire.TypeAAAA, `template: answer "{{ .Name }} 60 IN AAAA fd00::{{ parseInt .Name 10 8 }}": RR:1:32: executing "RR" at <parseInt .Name 10 8>: error calling parseInt: strconv.ParseUint: parsing "x.org.": invalid syntax`},
		{"x.org", wire.TypeMX, `template: authority "{{ .Name }} 60 IN MX {{ .Message.Id }} a. b.": generated "x.org. 60 IN MX 4 a. b.": garbage after rdata: "b."`},
		{"x.org", 44, `template: answer "{{ .Name }} 60 IN SSHFP 1 1 {{ .Message.Id }}F": generated "x.org. 60 IN SSHFP 1 1 4F": malformed SSHFP record`},
		{"x.org", 65280, `template: var "fromJSON(name())": invalid character 'x' looking for beginning of value, at character 1 of fromJSON(name())`},
	} {
		for range 2 {
			if got := r.dig(c.name, c.qtype); got != "SERVFAIL" {
				t.Errorf("%s %s: got %s, want SERVFAIL", c.name, c.qtype, got)
			}
			var e *Error
			if err := r.Err; !errors.As(err, &e) || err.Error() != c.err {
				t.Errorf("%s %s\ngot  %v\nwant %s", c.name, c.qtype, err, c.err)
			}
		}
	}
	if got := r.dig("org", wire.TypeA); got != "SERVFAIL" || r.Err != errUnmatched {
		t.Errorf("org A: got %s, error %v; want SERVFAIL, %v", got, r.Err, errUnmatched)
	}
	if got := r.dig("7.org", wire.TypeA); got != "NOERROR aa\n7.org. 60 IN A 192.0.2.7" {
		t.Errorf("7.org A: got %s, want the address 192.0.2.7", got)
	}
	const want = `coredns_template_matches_total{server="dns://:53",zone="org.",view="v",class="IN",type="A"} 3
coredns_template_matches_total{server="dns://:53",zone="org.",view="v",class="IN",type="AAAA"} 2
coredns_template_matches_total{server="dns://:53",zone="org.",view="v",class="IN",type="MX"} 2
coredns_template_matches_total{server="dns://:53",zone="org.",view="v",class="IN",type="SSHFP"} 2
coredns_template_matches_total{server="dns://:53",zone="org.",view="v",class="IN",type="other"} 2
coredns_template_rr_failures_total{server="dns://:53",zone="org.",view="v",class="IN",type="A",section="answer",template="{{.Name}} 60 IN A 192.0.2.{{.Group.a}}"} 2
coredns_template_rr_failures_total{server="dns://:53",zone="org.",view="v",class="IN",type="MX",section="authority",template="{{.Name}} 60 IN MX {{.Message.Id}} a. b."} 2
coredns_template_rr_failures_total{server="dns://:53",zone="org.",view="v",class="IN",type="SSHFP",section="answer",template="{{.Name}} 60 IN SSHFP 1 1 {{.Message.Id}}F"} 2
coredns_template_template_failures_total{server="dns://:53",zone="org.",view="v",class="IN",type="AAAA",section="answer",template="{{.Name}} 60 IN AAAA fd00::{{parseInt .Name 10 8}}"} 2
coredns_template_template_failures_total{server="dns://:53",zone="org.",view="v",class="IN",type="other",section="var",template="fromJSON(name())"} 2
`
	var page, series strings.Builder
	if err := r.block.Metrics.WriteText(&page); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page.String()) {
		if !strings.HasPrefix(line, "#") {
			series.WriteString(line)
		}
	}
	if series.String() != want {
		t.Errorf("got\n%s\nwant\n%s", series.String(), want)
	}
}

// The target of a CNAME record is followed even if the query must be parked. The other
// records of the template follow its answer.
func TestCNAMETargetParked(t *testing.T) {
	r := run(t, `.:53 {
	template IN ANY {
		match ^a[.]
		answer "{{ .Name }} 60 IN CNAME {{ .Type }}.net."
		additional "{{ .Name }} 60 IN TXT {{ .Zone }}"
		ederror 4 forged
		fallthrough
	}
}`)
	for _, c := range []struct {
		qtype wire.Type
		want  string
	}{
		{wire.TypeA, "NOERROR aa\na.org. 60 IN CNAME A.net.\nA.net. 5 IN A 192.0.2.7"},
		{wire.TypeTXT, "REFUSED aa\na.org. 60 IN CNAME TXT.net."},
		{wire.TypeCNAME, "NOERROR aa\na.org. 60 IN CNAME CNAME.net."},
		{wire.TypeANY, "NOERROR aa\na.org. 60 IN CNAME ANY.net."},
	} {
		want := c.want + "\n;additional a.org. 60 IN TXT \"org.\"\n4 (Forged Answer): (forged)"
		if got := r.dig("a.org", c.qtype); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.qtype, got, want)
		}
	}
}

// A CNAME record that leads to its own name is a loop, as one through other names; asked for as such
// it is an answer.
func TestCNAMEToItself(t *testing.T) {
	r := run(t, `.:53 {
	template IN ANY self.org {
		answer "{{ .Name }} 60 IN CNAME a.self.org."
	}
	template IN ANY pair.org {
		answer "{{ .Name }} 60 IN CNAME a.other.org."
	}
	template IN ANY other.org {
		answer "{{ .Name }} 60 IN CNAME a.pair.org."
	}
}`)
	for _, c := range []struct {
		name  string
		qtype wire.Type
		want  string
	}{
		{"a.self.org", wire.TypeA, "SERVFAIL"},
		{"A.Self.org", wire.TypeTXT, "SERVFAIL"},
		{"b.self.org", wire.TypeAAAA, "SERVFAIL"},
		{"a.pair.org", wire.TypeA, "SERVFAIL"},
		{"a.self.org", wire.TypeCNAME, "NOERROR"},
		{"a.self.org", wire.TypeANY, "NOERROR"},
	} {
		if got, _, _ := strings.Cut(r.dig(c.name, c.qtype), " "); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.name, c.qtype, got, c.want)
		}
	}
}

// Constant records do not allocate. A regular expression needs the name as text,
// which is one allocation.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		match string
		limit float64
	}{{"", 0}, {"match ^[a-z]+[.]example[.]org[.]$", 1}} {
		r := run(t, `.:53 {
	template IN A org {
		`+c.match+`
		answer "{{ .Name }} 60 IN A 192.0.2.53"
		authority "example.org. 60 IN NS ns.example.org."
	}
}`)
		packet := wire.AppendRequest(nil, 4, 0, []byte("\x03www\x07example\x03org\x00"), wire.TypeA)
		if reply, err := r.serve(packet); err != nil || len(reply) < 40 {
			t.Fatalf("%q: got %x, error %v; want a reply with two records", c.match, reply, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = r.serve(packet) }); n > c.limit {
			t.Errorf("%q: got %v allocations, want at most %v", c.match, n, c.limit)
		}
	}
}

// metadata selects every query, as the metadata directive does.
type metadata struct{}

func (metadata) HasMetadata([]byte) bool { return true }
