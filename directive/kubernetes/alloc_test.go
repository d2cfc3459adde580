package kubernetes

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
)

// An allocCase is a query whose answer must not allocate.
type allocCase struct{ name, query, qtype string }

func allocCases() []allocCase {
	return []allocCase{
		{"ClusterIP A", "api.shop.svc.cluster.local.", "A"},
		{"ClusterIP AAAA NODATA", "api.shop.svc.cluster.local.", "AAAA"},
		{"search path NXDOMAIN", "www.example.com.shop.svc.cluster.local.", "A"},
		{"headless A, 3 endpoints", "db.shop.svc.cluster.local.", "A"},
		{"headless A, 60 endpoints", "big.shop.svc.cluster.local.", "A"},
		{"endpoint A", "db-1.db.shop.svc.cluster.local.", "A"},
		{"dashed endpoint A", "10-1-0-41.big.shop.svc.cluster.local.", "A"},
		{"ClusterIP SRV", "_http._tcp.api.shop.svc.cluster.local.", "SRV"},
		{"headless SRV, 3 endpoints", "_sql._tcp.db.shop.svc.cluster.local.", "SRV"},
		{"headless SRV, 60 endpoints", "_http._tcp.big.shop.svc.cluster.local.", "SRV"},
		{"headless port A", "_sql._tcp.db.shop.svc.cluster.local.", "A"},
		{"ClusterIP PTR", "1.0.96.10.in-addr.arpa.", "PTR"},
		{"endpoint PTR", "2.0.0.10.in-addr.arpa.", "PTR"},
		{"IPv6 PTR", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", "PTR"},
		{"reverse NXDOMAIN", "9.0.0.10.in-addr.arpa.", "PTR"},
		{"reverse ENT", "0.10.in-addr.arpa.", "PTR"},
		{"pod A", "10-2-3-4.shop.pod.cluster.local.", "A"},
		{"pod AAAA", "fd00--2-1.shop.pod.cluster.local.", "AAAA"},
		{"SOA", "cluster.local.", "SOA"},
		{"TXT dns-version", "dns-version.cluster.local.", "TXT"},
		{"ExternalName inside", "alias.shop.svc.cluster.local.", "A"},
		{"ExternalName nobody's", "far.shop.svc.cluster.local.", "A"},
		{"multi-cluster endpoint A", "db-0.eu.west.db.shop.svc.clusterset.local.", "A"},
		{"multi-cluster SRV", "_sql._tcp.db.shop.svc.clusterset.local.", "SRV"},
		{"zone A", "zone-b.prefer._zone.db.shop.svc.cluster.local.", "A"},
	}
}

// shop is a cluster with a thousand more Services.
func shop(tb testing.TB) *server { return shopWith(tb, func(*directive) {}) }

// shopWith is shop with other options.
func shopWith(tb testing.TB, change func(*directive)) *server {
	d := defaultOptions()
	change(&d)
	d.pods, d.zonal = podsInsecure, true
	d.zones, d.multicluster = append(d.zones, "clusterset.local."), []string{"clusterset.local."}
	objects := append(headlessWithEndpoints(60),
		clusterIP("shop", "api", "http 80/tcp, https 443/tcp", "10.96.0.1", "fd00:0:96::1"),
		clusterIP("shop", "v4", "http 80/tcp", "10.96.0.2"),
		headless("shop", "db"),
		slice("shop", "db-1", "db", "sql 5432/tcp", "db-0=10.0.0.1@zone-a", "db-1=10.0.0.2@zone-b", "db-2=10.0.0.3@zone-b"),
		external("shop", "alias", "v4.shop.svc.cluster.local"),
		external("shop", "far", "www.example.net"),
		imported(headless("shop", "db")),
		inCluster("eu.west", slice("shop", "db-x", "db", "sql 5432/tcp", "db-0=10.0.9.1", "db-1=10.0.9.2")),
	)
	for i := range 1000 {
		objects = append(objects, &cluster.Service{Namespace: "shop", Name: fmt.Sprintf("svc-%d", i), ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})}})
	}
	return start(tb, d, objects...)
}

// answerer returns a function that answers one packet as a reader does, from Serve to the
// sealed reply, and one that returns the reply.
func (s *server) answerer(tb testing.TB, c allocCase) (run func(), last func() []byte) {
	packet := request(tb, c.query, mdns.StringToType[c.qtype], 1232)
	q, lent := dns.NewQuery(nil), make([]byte, 4096)
	now := time.Now()
	return func() {
		q.Reset(packet, dns.UDP, now)
		s.Port.Serve(q, lent)
	}, q.Reply
}

// A cluster answer allocates nothing.
func TestAnswersAllocateNothing(t *testing.T) {
	s := shop(t)
	for _, c := range allocCases() {
		run, last := s.answerer(t, c)
		run() // The memory of a sub-query is allocated once for each reader.
		if n := testing.AllocsPerRun(200, run); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", c.name, n)
		}
		if m := parse(t, last()); len(m.Answer)+len(m.Ns) == 0 {
			t.Errorf("%s: got %s, want records", c.name, digest(m))
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	s := shop(b)
	for _, c := range allocCases() {
		b.Run(c.name, func(b *testing.B) {
			run, last := s.answerer(b, c)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(len(last())), "bytes")
		})
	}
}
