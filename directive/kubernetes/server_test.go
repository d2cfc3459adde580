package kubernetes

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
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

func (d directive) newIndex() *Index {
	ix := NewIndex(settings{ttl: d.ttl, ignoreEmpty: d.ignoreEmpty}, d.kinds(), slog.New(slog.DiscardHandler))
	if d.tables {
		ix.tableFrom = 1
	}
	return ix
}

func (d directive) handler(t testing.TB, ix *Index) *Handler {
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
	s.query.UDPLimit = wire.MaxUDPReply // as with "bufsize 4096"
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

// An imported is a Service made from a ServiceImport.
type imported struct{ *cluster.Service }

// load puts objects into the index like the first lists of a source.
func load(ix *Index, objects ...cluster.Object) *Index {
	var lists [cluster.Kinds][]cluster.Object
	for _, o := range objects {
		kind := cluster.Namespaces
		switch o := o.(type) {
		case *cluster.Service:
			kind = cluster.Services
		case *cluster.Slice:
			kind = cluster.Slices
			if o.Cluster != "" {
				kind = cluster.ImportSlices
			}
		case *cluster.Pod:
			kind = cluster.Pods
		case imported:
			lists[cluster.Imports] = append(lists[cluster.Imports], o.Service)
			continue
		}
		lists[kind] = append(lists[kind], o)
	}
	for kind := range cluster.Kinds {
		if ix.listedKinds.Load()>>kind&1 == 0 { // The directive does not watch the kind.
			relist(ix, kind, lists[kind])
		}
	}
	return ix
}

// relist sends the index a list as a source does: in groups, the last one smaller,
// and then its end.
func relist(ix *Index, kind cluster.Kind, list []cluster.Object) {
	listed := make(map[cluster.Key]bool, len(list))
	for group := range slices.Chunk(list, 7) {
		for _, o := range group {
			listed[o.Key()] = true
		}
		ix.Put(kind, group...)
	}
	ix.Listed(kind, func(key cluster.Key) bool { return listed[key] })
}

// start returns a server of these objects.
func start(t testing.TB, d directive, objects ...cluster.Object) *server {
	t.Helper()
	return serve(t, d, d.handler(t, load(d.newIndex(), objects...)))
}

func namespaceObject(name string) *cluster.Namespace { return &cluster.Namespace{Name: name} }

// clusterIP returns a Service; ports parses ps.
func clusterIP(ns, name, ps string, ips ...string) *cluster.Service {
	s := &cluster.Service{Namespace: ns, Name: name, Ports: ports(ps)}
	for _, ip := range ips {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(ip))
	}
	return s
}

func headless(ns, name string) *cluster.Service {
	return &cluster.Service{Namespace: ns, Name: name, Headless: true}
}

func external(ns, name, target string) *cluster.Service {
	return &cluster.Service{Namespace: ns, Name: name, ExternalName: target}
}

// ports parses "http 80/tcp, 9090/tcp".
func ports(text string) (ps []cluster.Port) {
	for field := range strings.SplitSeq(text, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		var p cluster.Port
		format, into := "%d/%s", []any{&p.Port, &p.Protocol}
		if strings.Contains(field, " ") {
			format, into = "%s "+format, append([]any{&p.Name}, into...)
		}
		if _, err := fmt.Sscanf(field, format, into...); err != nil {
			panic(field + ": " + err.Error())
		}
		ps = append(ps, p)
	}
	return ps
}

// slice returns an EndpointSlice. Endpoints are written as "10.0.0.1", "db-0=10.0.0.1",
// "10.0.0.1@zone-a", and with a leading "!" if they are not ready.
func slice(ns, name, service, ps string, endpoints ...string) *cluster.Slice {
	var buf []byte
	for _, text := range endpoints {
		e := cluster.Endpoint{Ready: true}
		if rest, ok := strings.CutPrefix(text, "!"); ok {
			e.Ready, text = false, rest
		}
		if host, rest, ok := strings.Cut(text, "="); ok {
			e.Hostname, text = host, rest
		}
		text, e.Zone, _ = strings.Cut(text, "@")
		e.Addr = netip.MustParseAddr(text)
		buf = cluster.AppendEndpoint(buf, e)
	}
	return &cluster.Slice{Namespace: ns, Name: name, Service: service, Ports: ports(ps), Endpoints: cluster.Endpoints(buf)}
}

// inCluster returns the slice as imported from another cluster.
func inCluster(id string, s *cluster.Slice) *cluster.Slice {
	s.Cluster = id
	return s
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
