package kubernetes

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/wire"
)

// cost returns the CPU time of one query, and the size of its reply: the least of
// several batches, since interrupts only add. The caller has locked the thread.
func (s *server) cost(t *testing.T, name, qtype string, proto dns.Proto) (least time.Duration, size int) {
	t.Helper()
	packet := request(t, name, mdns.StringToType[qtype], 1232)
	now := time.Now()
	least = time.Hour
	q, lent := dns.NewQuery(nil), make([]byte, 4096)
	if proto == dns.TCP {
		lent = make([]byte, 1<<17)
	}
	for range 12 {
		const batch = 20
		start := bound.ThreadTime(t)
		for range batch {
			q.Reset(packet, proto, now)
			s.Port.Serve(q, lent)
		}
		least = min(least, (bound.ThreadTime(t)-start)/batch)
	}
	return least, len(q.Reply())
}

// kernelCost is what receiving a datagram and sending its reply cost at least, which
// the tests leave out.
const kernelCost = 2 * time.Microsecond

// An object of any size that the API accepts does not make an answer expensive: it
// costs at most 20 times as much as the address of a Service, for each 1,232 bytes
// of the reply.
func TestAnswerCostOfHugeObjects(t *testing.T) {
	bound.Only(t)
	bomb := headless("evil", "bomb")
	sliceOf := func(name string, ports []cluster.Port, es cluster.Endpoints) *cluster.Slice {
		return &cluster.Slice{Namespace: "evil", Name: name, Service: "bomb", Ports: ports, Endpoints: es}
	}
	const most = 100_000 // 1,000 endpoints with 100 addresses each
	plainEndpoint := func(i int) cluster.Endpoint { return cluster.Endpoint{Addr: clustertest.Addr4(i), Ready: true} }
	hostnamed := func(i int) cluster.Endpoint {
		return cluster.Endpoint{Addr: clustertest.Addr4(i), Hostname: fmt.Sprintf("h%d", i), Ready: true}
	}
	few := []cluster.Port{{Name: "p1", Protocol: "tcp", Port: 1}}
	var slices []cluster.Object
	for i := range 1000 {
		slices = append(slices, sliceOf(fmt.Sprintf("bomb-%04d", i), clustertest.ManyPorts(fmt.Sprintf("s%d-", i), 20), clustertest.Packed(10, func(j int) cluster.Endpoint { return plainEndpoint(10*i + j) })))
	}
	var sameAddr []cluster.Object
	for i := range 2000 {
		name := fmt.Sprintf("same-%d", i)
		sameAddr = append(sameAddr, headless("evil", name), slice("evil", name+"-1", name, "p1 1/tcp", "10.0.0.1"))
	}
	ports := clustertest.ManyPorts("p", 20000)
	zoned := func(i int) cluster.Endpoint {
		return cluster.Endpoint{Addr: clustertest.Addr4(i), Zone: fmt.Sprintf("zone-%d", i%3), Ready: true}
	}
	big := &cluster.Service{Namespace: "evil", Name: "bomb", ClusterIPs: []netip.Addr{clustertest.Addr4(1 << 23)}, Ports: ports}
	for _, c := range []struct {
		what    string
		objects []cluster.Object
		queries string
	}{
		{"20,000 ports of a Service", []cluster.Object{big}, "_p19999._tcp.BOMB SRV, _x._tcp.BOMB SRV, BOMB SRV, _tcp.BOMB SRV, BOMB ANY"},
		{"20,000 ports of 1,000 endpoints", []cluster.Object{bomb, sliceOf("bomb-1", ports, clustertest.Packed(1000, plainEndpoint))}, "_p1._tcp.BOMB SRV, _p1._tcp.BOMB A, _x._tcp.BOMB SRV, BOMB SRV, BOMB ANY, 10-0-3-1.BOMB SRV"},
		{"two slices of the same 1,000 endpoints with 20,000 ports", []cluster.Object{bomb, sliceOf("bomb-1", ports, clustertest.Packed(1000, plainEndpoint)), sliceOf("bomb-2", clustertest.ManyPorts("q", 20000), clustertest.Packed(1000, plainEndpoint))}, "_p1._tcp.BOMB SRV, _q1._tcp.BOMB SRV, _q1._tcp.BOMB A, BOMB SRV, 10-0-3-1.BOMB A, 1.3.0.10.in-addr.arpa PTR"},
		{"100,000 addresses", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, plainEndpoint))}, "BOMB A, BOMB AAAA, BOMB SRV, _p1._tcp.BOMB AAAA, _p1._tcp.BOMB SRV, 10-1-0-1.BOMB A, 10-255-0-1.BOMB A, x.BOMB A, 1.0.1.10.in-addr.arpa PTR, 1.0.1.10.in-addr.arpa A"},
		{"100,000 hostnames", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, hostnamed))}, "BOMB A, BOMB SRV, h99999.BOMB A, h99999.BOMB SRV, x.BOMB A, 1.0.1.10.in-addr.arpa PTR"},
		{"one hostname", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, func(i int) cluster.Endpoint {
			return cluster.Endpoint{Addr: clustertest.Addr4(i), Hostname: "h", Ready: true}
		}))}, "BOMB A, h.BOMB A, h.BOMB AAAA, x.BOMB A, h.BOMB SRV, BOMB SRV, 1.0.1.10.in-addr.arpa PTR"},
		{"one address", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, func(i int) cluster.Endpoint {
			return cluster.Endpoint{Addr: clustertest.Addr4(1), Hostname: fmt.Sprintf("h%d", i), Ready: true}
		}))}, "BOMB A, h99999.BOMB A, BOMB SRV, 1.0.0.10.in-addr.arpa PTR, 1.0.0.10.in-addr.arpa TXT"},
		{"one ready endpoint behind 99,999", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, func(i int) cluster.Endpoint {
			return cluster.Endpoint{Addr: clustertest.Addr4(i), Ready: i == most-1}
		}))}, "BOMB A, BOMB SRV, _p1._tcp.BOMB SRV, 10-1-134-159.BOMB A"},
		{"1,000 slices with 20 ports each", append([]cluster.Object{bomb}, slices...), "_s999-1._tcp.BOMB SRV, _x._tcp.BOMB A, BOMB SRV, BOMB A, 10-0-39-15.BOMB A, 15.39.0.10.in-addr.arpa PTR"},
		{"2,000 Services of one address", sameAddr, "1.0.0.10.in-addr.arpa PTR, 1.0.0.10.in-addr.arpa A, cluster.local NS, ns.dns.cluster.local A"},
		{"no topology zones, one slice", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, plainEndpoint))}, "zone-2.pin._zone.BOMB A, zone-2.pin._zone.BOMB SRV, zone-2.prefer._zone.BOMB A"},
		{"no ports beside some", []cluster.Object{bomb, sliceOf("bomb-1", nil, clustertest.Packed(most, plainEndpoint)), sliceOf("bomb-2", few, clustertest.Packed(1, func(int) cluster.Endpoint { return plainEndpoint(most) }))}, "BOMB SRV, _p1._tcp.BOMB SRV"},
		{"topology zones", []cluster.Object{bomb, sliceOf("bomb-1", few, clustertest.Packed(most, zoned))}, "zone-2.pin._zone.BOMB A, zone-2.pin._zone.BOMB AAAA, zone-9.pin._zone.BOMB A, zone-9.prefer._zone.BOMB A"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := withLocalAddresses("10.0.0.1")
			d.zonal = true
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			before := bound.ThreadTime(t)
			s := start(t, d, append(c.objects, namespaceObject("evil"), clusterIP("evil", "plain", "http 80/tcp", "10.96.0.1"))...)
			if took := bound.ThreadTime(t) - before; took > 5*time.Second {
				t.Errorf("processing the objects: %v of CPU time, want at most 5s", took)
			}
			base, _ := s.cost(t, "plain.evil.svc.cluster.local.", "A", dns.UDP)
			for _, q := range strings.Split(c.queries, ", ") {
				name, qtype, _ := strings.Cut(strings.ReplaceAll(q, "BOMB", "bomb.evil.svc.cluster.local"), " ")
				for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
					took, size := s.cost(t, name+".", qtype, proto)
					if proto == dns.TCP {
						size = wire.MaxMessage // addresses that do not fit are written before they are left out
					}
					most := 20 * (base + kernelCost) * time.Duration(1+size/1232)
					if took > most {
						t.Errorf("%s over %v: %v for a reply of %d bytes, want at most %v (%v for an address)", q, proto, took, size, most, base)
					}
				}
			}
		})
	}
}
