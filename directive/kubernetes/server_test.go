package kubernetes

import (
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/wire"
)

// A directive is the options of a test's handler.
type directive struct {
	zones        []string
	multicluster []string // the zones of ServiceImports
	ttl          uint32
	pods         podMode
	zonal        bool
	kubedns      bool
	wildcards    bool
	ignoreEmpty  bool
	noEndpoints  bool
	through      bool
	throughZones []string
	local        []netip.Addr
	tables       bool // Services with few endpoints have tables, too.
}

// defaultOptions returns the options that most Corefiles have.
func defaultOptions() directive {
	return directive{zones: []string{"cluster.local.", "in-addr.arpa.", "ip6.arpa."}, ttl: 5}
}

// kinds returns the kinds of objects that the options need.
func (d directive) kinds() []cluster.Kind {
	return cluster.Options{NoEndpoints: d.noEndpoints, Pods: d.pods == podsVerified, Multicluster: len(d.multicluster) > 0}.Kinds()
}

func (d directive) newIndex() *index.Index {
	set := index.Settings{TTL: d.ttl, IgnoreEmpty: d.ignoreEmpty}
	if d.tables {
		set.TableFrom = 1
	}
	return index.New(set, d.kinds(), chaintest.QuietLog())
}

func (d directive) handler(t testing.TB, ix *index.Index) *Handler {
	t.Helper()
	h := &Handler{ttl: d.ttl, podMode: d.pods, zonal: d.zonal, kubeDNS: d.kubedns, wildcards: d.wildcards, local: d.local, scans: slots.New(1, 1), index: ix, server: serverLabels}
	h.fallThrough = config.Fallthrough{On: d.through, Zones: names(t, d.throughZones)}
	if err := h.setZones(corefile.Directive{}, names(t, d.zones), names(t, d.multicluster)); err != nil {
		t.Fatal(err)
	}
	return h
}

func names(t testing.TB, texts []string) (names []wire.Name) {
	t.Helper()
	for _, s := range texts {
		n, err := wire.ParseName(s)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, n)
	}
	return names
}

// otherZones is the handler below kubernetes, for all other names. www.example.com has an
// address; no other name exists. Without a SOA record its NXDOMAIN differs from the
// cluster's.
type otherZones struct{}

const otherZone = "example.com."

func (otherZones) ServeDNS(q *dns.Query) dns.Verdict {
	if string(q.Name()) != "\x03www\x07example\x03com\x00" {
		q.RCode = wire.NXDomain
	} else if q.Type == wire.TypeA {
		q.Answer.Append(wire.Answers, wire.AppendAddress(nil, wire.OwnerIsQuestion, 60, netip.MustParseAddr("192.0.2.80")), 1)
	}
	return dns.Done
}

// A server has the chain of kubernetes and, below it, otherZones. It serves the zones of these
// two only.
type server struct{ *chaintest.Server }

func serve(t testing.TB, d directive, h *Handler) *server {
	t.Helper()
	return serveChain(t, chaintest.NewChain("kubernetes", h, "world", otherZones{}), d.zones...)
}

// serveChain returns a server of another chain, which has these zones besides otherZone.
func serveChain(t testing.TB, c *dns.Chain, zones ...string) *server {
	t.Helper()
	chains := map[string]*dns.Chain{otherZone: c}
	for _, zone := range zones {
		chains[zone] = c
	}
	s := &server{chaintest.NewServer(t, chains)}
	s.Prepare = func(q *dns.Query) {
		if q.Proto == dns.UDP {
			q.ReplyLimit = wire.MaxUDPReply // as with "bufsize 4096"
		}
	}
	return s
}

// request packs a query for name, which may be in any case.
func request(t testing.TB, name string, qtype uint16, edns uint16) []byte {
	t.Helper()
	m := chaintest.Query(name, mdns.Type(qtype).String())
	if edns > 0 {
		m.SetEdns0(edns, false)
	}
	return chaintest.Pack(t, m)
}

// ask sends a query over TCP and parses the reply.
func (s *server) ask(t testing.TB, name, qtype string) *mdns.Msg {
	t.Helper()
	return parse(t, s.Serve(request(t, name, mdns.StringToType[qtype], 0), dns.TCP))
}

// askUDP sends a query over UDP, with an EDNS size (0: without EDNS).
func (s *server) askUDP(t testing.TB, name, qtype string, size uint16) (*mdns.Msg, int) {
	t.Helper()
	reply := s.Serve(request(t, name, mdns.StringToType[qtype], size), dns.UDP)
	return parse(t, reply), len(reply)
}

func parse(t testing.TB, reply []byte) *mdns.Msg {
	t.Helper()
	return chaintest.Unpack(t, reply)
}

// text returns records one per line, with spaces for tabs.
func text(rrs []mdns.RR) string {
	var b strings.Builder
	for _, rr := range rrs {
		b.WriteString(strings.Join(strings.Fields(rr.String()), " ") + "\n")
	}
	return b.String()
}

// digest returns the code and the records of each section of a reply.
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
	for i, rrs := range [][]mdns.RR{m.Answer, m.Ns, m.Extra} {
		for line := range strings.Lines(text(rrs)) {
			b.WriteString([]string{"", "authority: ", "additional: "}[i] + line)
		}
	}
	return b.String()
}

// check compares the digest of a reply; lines of want may be indented.
func (s *server) check(t testing.TB, name, qtype, want string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(want)) {
		lines = append(lines, strings.TrimSpace(line)+"\n")
	}
	if got, want := digest(s.ask(t, name, qtype)), strings.Join(lines, ""); got != want {
		t.Errorf("%s %s\ngot:\n%swant:\n%s", name, qtype, got, want)
	}
}

// Short names for the functions that make objects.
var (
	namespaceObject = clustertest.Namespace
	clusterIP       = clustertest.ClusterIP
	headless        = clustertest.Headless
	external        = clustertest.ExternalName
	slice           = clustertest.Slice
	inCluster       = clustertest.InCluster
	imported        = clustertest.Import
	ports           = clustertest.Ports
	load            = clustertest.Load[*index.Index]
	relist          = clustertest.List
)

// start returns a server of these objects.
func start(t testing.TB, d directive, objects ...cluster.Object) *server {
	t.Helper()
	return serve(t, d, d.handler(t, load(d.newIndex(), objects...)))
}
