package kubernetes

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// manyServices is n Services with ClusterIPs in each of two namespaces.
func manyServices(n int) []cluster.Object {
	objects := []cluster.Object{namespaceObject("shop"), namespaceObject("mall")}
	for i := range n {
		for j, ns := range []string{"shop", "mall"} {
			s := clusterIP(ns, fmt.Sprintf("svc-%d", i), "http 80/tcp")
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(96 + j), byte(i >> 8), byte(i)})}
			objects = append(objects, s)
		}
	}
	return objects
}

// An answer has all matching records, or as many as fit and TC.
func TestWildcardsManyServices(t *testing.T) {
	const n = 1000
	d := defaultOptions()
	d.wildcards = true
	s := start(t, d, manyServices(n)...)
	for name, want := range map[string]int{
		"*.*.svc.cluster.local.":               2 * n,
		"*.shop.svc.cluster.local.":            n,
		"*.shop.*.cluster.local.":              n,
		"svc-7.*.svc.cluster.local.":           2,
		"svc-7.*.*.cluster.local.":             2,
		"svc-7.shop.*.cluster.local.":          1,
		"*.svc-7.shop.svc.cluster.local.":      1,
		"*.*.shop.svc.cluster.local.":          n,
		"_http._tcp.*.shop.svc.cluster.local.": n,
	} {
		m := s.ask(t, name, "A")
		if len(m.Answer) != want || m.Truncated {
			t.Errorf("%s: %d addresses, want %d", name, len(m.Answer), want)
		}
		seen := map[string]bool{}
		for _, rr := range m.Answer {
			seen[rr.(*mdns.A).A.String()] = true
			if rr.Header().Name != name {
				t.Fatalf("%s: got owner %s, want the query name", name, rr.Header().Name)
			}
		}
		if len(seen) != want {
			t.Errorf("%s: %d different addresses, want %d", name, len(seen), want)
		}
		m, size := s.askUDP(t, name, "A", 512)
		if m.Truncated != (want > 100) || size > 512 || len(m.Answer) == 0 {
			t.Errorf("%s: %d of %d addresses in %d bytes, tc=%v", name, len(m.Answer), want, size, m.Truncated)
		}
	}
	m := s.ask(t, "_http._tcp.*.shop.svc.cluster.local.", "SRV")
	if len(m.Answer) != n || m.Truncated {
		t.Errorf("%d SRV records, want %d", len(m.Answer), n)
	}
	for _, rr := range m.Answer {
		if srv := rr.(*mdns.SRV); srv.Weight != 1 {
			t.Fatalf("%d SRV records: got %s, want weight 1", n, srv)
		}
	}
	if m, size := s.askUDP(t, "*.*.svc.cluster.local.", "SRV", 1232); !m.Truncated || size > 1232 || len(m.Answer) < 10 {
		t.Errorf("*.*.svc SRV: got %d records in %d bytes, tc=%v, want at least 10 in 1232 bytes, truncated", len(m.Answer), size, m.Truncated)
	}
}

// Walks over the tables continue beside changes: records that stay are in every
// answer, and records that never existed in none.
func TestWildcardsDuringChanges(t *testing.T) {
	d := defaultOptions()
	d.wildcards = true
	ix := load(d.newIndex(), manyServices(20)...)
	h := d.handler(t, ix)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		s := serve(t, d, h)
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				m := s.ask(t, "*.shop.svc.cluster.local.", "A")
				stays := 0
				for _, rr := range m.Answer {
					switch ip, _ := netip.AddrFromSlice(rr.(*mdns.A).A.To4()); {
					case ip.As4()[1] == 96:
						stays++
					case ip.As4()[1] != 98:
						t.Errorf("*.shop A: got %s, an address of another namespace, want those of shop", ip)
					}
				}
				if stays != 20 {
					t.Errorf("got %d Services that do not change, want 20", stays)
				}
				if got := len(s.ask(t, "svc-3.*.svc.cluster.local.", "A").Answer); got != 2 {
					t.Errorf("svc-3.* A: got %d records, want 2", got)
				}
			}
		})
	}
	for i := range 3000 {
		s := clusterIP("shop", fmt.Sprintf("new-%d", i), "")
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)})}
		ix.Put(cluster.Services, s)
		ix.Put(cluster.Namespaces, namespaceObject(fmt.Sprintf("ns-%d", i)))
		if i >= 100 {
			ix.Delete(cluster.Services, cluster.Key{Namespace: "shop", Name: fmt.Sprintf("new-%d", i-100)})
			ix.Delete(cluster.Namespaces, cluster.Key{Name: fmt.Sprintf("ns-%d", i-100)})
		}
	}
	close(done)
	wg.Wait()
}

// Servers with equal data send equal answers, whatever the order of the changes
// was.
func TestWildcardsOrder(t *testing.T) {
	d := defaultOptions()
	d.wildcards = true
	objects := manyServices(30)
	var first string
	for range 3 {
		s := start(t, d, objects...)
		got := digest(s.ask(t, "*.*.svc.cluster.local.", "SRV")) + digest(s.ask(t, "*.shop.svc.cluster.local.", "A"))
		if first == "" {
			first = got
		}
		if got != first {
			t.Fatalf("got\n%s\nwant\n%s", got, first)
		}
		slices.Reverse(objects)
	}
}
