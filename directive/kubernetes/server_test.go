package kubernetes

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
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
	return index.New(set, d.kinds(), slog.New(slog.DiscardHandler))
}

func (d directive) handler(t testing.TB, ix *index.Index) *Handler {
	t.Helper()
	h := &Handler{ttl: d.ttl, podMode: d.pods, zonal: d.zonal, kubeDNS: d.kubedns, wildcards: d.wildcards, local: d.local, scans: make(chan struct{}, 1), index: ix, server: serverLabels}
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

// A server answers without sockets. Its chain is kubernetes and, below it,
// otherZones. It serves the zones of these two only.
type server struct {
	port  dns.Port
	query *dns.Query
	later replySender // the replies to queries that were parked
	lent  []byte
}

func serve(t testing.TB, d directive, h *Handler) *server {
	t.Helper()
	chain := new(dns.Chain)
	chain.Add("kubernetes", h)
	chain.Add("world", otherZones{})
	mux := dns.NewMux(dns.NewParkingLot(1<<10), nil)
	for _, zone := range names(t, append([]string{otherZone}, d.zones...)) {
		if err := mux.Route(zone, chain); err != nil {
			t.Fatal(err)
		}
	}
	s := newReader()
	s.port.Swap(mux)
	return s
}

func newReader() *server {
	later := replySender{make(chan []byte)}
	return &server{query: dns.NewQuery(later), later: later, lent: make([]byte, 1<<17)}
}

// send sends a packet to the server and returns the sealed reply.
func (s *server) send(packet []byte, proto dns.Proto) []byte {
	s.query.Reset(packet, proto, time.Time{})
	if proto == dns.UDP {
		s.query.ReplyLimit = wire.MaxUDPReply // as with "bufsize 4096"
	}
	switch s.port.Serve(s.query, s.lent) {
	case dns.Answered:
		return s.query.Reply()
	case dns.Parked:
		s.query = dns.NewQuery(s.later)
		return <-s.later.replies
	}
	return nil
}

// request packs a query for name, which may be in any case.
func request(t testing.TB, name string, qtype uint16, edns uint16) []byte {
	t.Helper()
	m := new(mdns.Msg)
	m.SetQuestion(name, qtype)
	m.Id = 4711
	if edns > 0 {
		m.SetEdns0(edns, false)
	}
	packet, err := m.Pack()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return packet
}

// ask sends a query over TCP and parses the reply.
func (s *server) ask(t testing.TB, name, qtype string) *mdns.Msg {
	t.Helper()
	return parse(t, s.send(request(t, name, mdns.StringToType[qtype], 0), dns.TCP))
}

// askUDP sends a query over UDP, with an EDNS size (0: without EDNS).
func (s *server) askUDP(t testing.TB, name, qtype string, size uint16) (*mdns.Msg, int) {
	t.Helper()
	reply := s.send(request(t, name, mdns.StringToType[qtype], size), dns.UDP)
	return parse(t, reply), len(reply)
}

func parse(t testing.TB, reply []byte) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("reading %x: %v", reply, err)
	}
	return m
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

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
