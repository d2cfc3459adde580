package kubernetes

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
)

func newPod(ns, name string, host bool, ips ...string) *cluster.Pod {
	p := &cluster.Pod{Namespace: ns, Name: name, Host: host}
	for _, ip := range ips {
		p.IPs = append(p.IPs, netip.MustParseAddr(ip))
	}
	return p
}

func clientsIndex() *Index {
	return NewIndex(settings{podsByAddr: true}, []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Pods}, slog.New(slog.DiscardHandler))
}

// A client is a pod only if no other pod has the address.
func TestPodAt(t *testing.T) {
	ix := clientsIndex()
	at := func(ip, want string) {
		t.Helper()
		got := "nobody"
		if p := ix.podAt(netip.MustParseAddr(ip)); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
	}
	a := newPod("shop", "a", false, "10.0.0.1", "fd00::1")
	relist(ix, cluster.Pods, []cluster.Object{a, newPod("shop", "node", true, "192.0.2.1")})
	at("10.0.0.1", "a")
	at("fd00::1", "a")
	at("10.0.0.2", "nobody")
	at("192.0.2.1", "nobody")
	ix.Put(cluster.Pods, newPod("other", "b", false, "10.0.0.1"))
	at("10.0.0.1", "nobody")
	at("fd00::1", "a")
	ix.Put(cluster.Pods, newPod("shop", "a", false, "10.0.0.3")) // The pod has another address now.
	at("10.0.0.1", "b")
	at("10.0.0.3", "a")
	at("fd00::1", "nobody")
	relist(ix, cluster.Pods, []cluster.Object{newPod("other", "b", false, "10.0.0.1")})
	at("10.0.0.1", "b")
	at("10.0.0.3", "nobody")
	ix.Delete(cluster.Pods, cluster.Key{Namespace: "other", Name: "b"})
	at("10.0.0.1", "nobody")
	if n := ix.clients.Len(); n != 0 {
		t.Errorf("after the Pods are deleted: got %d addresses, want 0", n)
	}
}

// An index without a directive that identifies clients keeps no pods.
func TestClientsNotKeptByDefault(t *testing.T) {
	ix := NewIndex(settings{}, []cluster.Kind{cluster.Pods}, slog.New(slog.DiscardHandler))
	relist(ix, cluster.Pods, []cluster.Object{newPod("shop", "a", false, "10.0.0.1")})
	if ix.clients.Len() != 0 || ix.pods.Len() != 1 {
		t.Errorf("got %d clients and %d pods, want 0 and 1", ix.clients.Len(), ix.pods.Len())
	}
	h := &Handler{podMode: podsInsecure, options: &options{}}
	if err := h.NeedClients(); err == nil || h.options.podsByAddr {
		t.Errorf("NeedClients without pods verified: got error %v, podsByAddr %v, want an error and false", err, h.options.podsByAddr)
	}
	h.podMode = podsVerified
	if err := h.NeedClients(); err != nil || !h.options.podsByAddr {
		t.Errorf("NeedClients with pods verified: got error %v, podsByAddr %v, want nil and true", err, h.options.podsByAddr)
	}
}

// queryFor returns a query of a client, as a handler gets it.
func queryFor(t testing.TB, name, peer string) *dns.Query {
	t.Helper()
	q := dns.NewQuery(nil)
	packet := request(t, name, mdns.TypeA, 0)
	q.Reset(packet, dns.UDP, time.Now())
	q.Parse(q.Packet())
	q.Peer = netip.MustParseAddrPort(peer)
	return q
}

func clientShop(t testing.TB) *Handler {
	d := defaultOptions()
	d.pods, d.zonal = podsVerified, true
	d.zones, d.multicluster = append(d.zones, "clusterset.local."), []string{"clusterset.local."}
	ix := load(clientsIndex(), namespaceObject("shop"), namespaceObject("dev"),
		clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"), clusterIP("hidden", "api", "", "10.96.0.2"),
		newPod("shop", "web-1", false, "10.0.0.1"), newPod("hidden", "x", false, "10.0.0.2"))
	return d.handler(t, ix)
}

func TestSearchPath(t *testing.T) {
	h := clientShop(t)
	for _, c := range []struct {
		name, peer string
		query      int // the number of labels before the name, 0 for no query
		client     int
	}{
		{"www.example.com.shop.svc.cluster.local.", "10.0.0.1:53", 3, 3},
		{"WWW.shop.SVC.cluster.local.", "10.0.0.1:53", 1, 1},
		{"www.example.com.shop.svc.cluster.local.", "10.0.0.9:53", 3, 0},
		{"www.example.com.dev.svc.cluster.local.", "10.0.0.1:53", 3, 0},
		{"api.shop.svc.cluster.local.", "10.0.0.1:53", 0, 0},
		{"x.api.shop.svc.cluster.local.", "10.0.0.1:53", 0, 0},
		{"www.hidden.svc.cluster.local.", "10.0.0.2:53", 0, 0},
		{"www.nobody.svc.cluster.local.", "10.0.0.1:53", 0, 0},
		{"shop.svc.cluster.local.", "10.0.0.1:53", 0, 0},
		{"www.shop.pod.cluster.local.", "10.0.0.1:53", 0, 0},
		{"cluster.local.", "10.0.0.1:53", 0, 0},
		{"www.shop.svc.clusterset.local.", "10.0.0.1:53", 0, 0},
		{"www.example.com.", "10.0.0.1:53", 0, 0},
		{"1.0.0.10.in-addr.arpa.", "10.0.0.1:53", 0, 0},
	} {
		q := queryFor(t, c.name, c.peer)
		if got, ok := h.SearchPath(q, false); got != c.query || ok != (c.query > 0) {
			t.Errorf("%s: %d %v, want %d", c.name, got, ok, c.query)
		}
		if got, ok := h.SearchPath(q, true); got != c.client || ok != (c.client > 0) {
			t.Errorf("%s of %s: %d %v, want %d", c.name, c.peer, got, ok, c.client)
		}
	}
	q := queryFor(t, "www.example.com.shop.svc.cluster.local.", "10.0.0.1:53")
	if n := testing.AllocsPerRun(100, func() { h.SearchPath(q, true); h.SearchPath(q, false) }); n != 0 {
		t.Errorf("SearchPath: got %v allocations, want 0", n)
	}
}

func TestMetadata(t *testing.T) {
	h := clientShop(t)
	keys := strings.Fields("kind namespace service endpoint port-name protocol cluster zone parse-error client-namespace client-pod-name")
	for _, c := range []struct{ name, peer, want string }{
		{"api.shop.svc.cluster.local.", "10.0.0.1:53", "kind=svc namespace=shop service=api client-namespace=shop client-pod-name=web-1"},
		{"nobody.nowhere.svc.cluster.local.", "10.0.0.9:53", "kind=svc namespace=nowhere service=nobody"},
		{"DB-0.db.shop.svc.cluster.local.", "10.0.0.9:53", "kind=svc namespace=shop service=db endpoint=db-0"},
		{"_http._tcp.api.shop.svc.cluster.local.", "10.0.0.9:53", "kind=svc namespace=shop service=api port-name=http protocol=tcp"},
		{"_tcp.api.shop.svc.cluster.local.", "10.0.0.9:53", "kind=svc namespace=shop service=api protocol=tcp"},
		{"10-0-0-1.shop.pod.cluster.local.", "10.0.0.9:53", "kind=pod namespace=shop service=10-0-0-1"},
		{"shop.svc.cluster.local.", "10.0.0.9:53", "kind=svc namespace=shop"},
		{"svc.cluster.local.", "10.0.0.9:53", "kind=svc"},
		{"cluster.local.", "10.0.0.9:53", ""},
		{"db-0.eu.west.db.shop.svc.clusterset.local.", "10.0.0.9:53", "kind=svc namespace=shop service=db endpoint=db-0 cluster=eu.west"},
		{"zone-a.pin._zone.db.shop.svc.cluster.local.", "10.0.0.9:53", "kind=svc namespace=shop service=db zone=zone-a"},
		{"www.cluster.local.", "10.0.0.9:53", "parse-error=invalid query name"},
		{"a.b.c.d.shop.svc.cluster.local.", "10.0.0.9:53", "parse-error=invalid query name"},
		{"1.0.0.10.in-addr.arpa.", "10.0.0.9:53", "parse-error=invalid query name"},
		{"www.example.com.", "10.0.0.1:53", "client-namespace=shop client-pod-name=web-1"},
	} {
		q := queryFor(t, c.name, c.peer)
		var got []string
		for _, key := range keys {
			if v, ok := h.Metadata(q, "kubernetes/"+key); ok && v != "" {
				got = append(got, key+"="+v)
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	q := queryFor(t, "api.shop.svc.cluster.local.", "10.0.0.1:53")
	for _, key := range []string{"forward/upstream", "kubernetes/nothing", "kubernetes/client-nothing", "kubernetes/client-label/app"} {
		if v, ok := h.Metadata(q, key); ok {
			t.Errorf("Metadata(%s): got %q, want none", key, v)
		}
	}
}

// Labels and addresses of pods are kept only if metadata needs them.
func TestMetadataChangesSourceOptions(t *testing.T) {
	for pods, want := range map[string]bool{"insecure": false, "verified": true} {
		for _, described := range []bool{false, true} {
			b, err := plan(t, ".:53 {\nkubernetes cluster.local {\n pods "+pods+"\n}\n}\n")
			if err != nil {
				t.Fatal(err)
			}
			if described {
				b.Offer(metadata{})
			}
			if err := corefile.Sorted(b.Planned()...); err != nil {
				t.Fatal(err)
			}
			for _, h := range config.Find[*Handler](b) {
				if kept := want && described; h.options.podsByAddr != kept || h.options.PodLabels != kept {
					t.Errorf("pods %s, metadata %v: got podsByAddr %v, PodLabels %v, want %v", pods, described, h.options.podsByAddr, h.options.PodLabels, kept)
				}
			}
		}
	}
}

func TestProgrammed(t *testing.T) {
	ix := load(defaultOptions().newIndex(), namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"),
		headless("shop", "db"), slice("shop", "db-1", "db", "", "10.0.0.1"),
		&cluster.Service{Namespace: "shop", Name: "set", Headless: true, Selector: true}, slice("shop", "set-1", "set", "", "10.0.0.2"),
		external("shop", "away", "www.example.com"), clusterIP("hidden", "api", "", "10.96.0.2"))
	ix.Programmed(cluster.Key{Namespace: "shop", Name: "api"}, time.Second) // No metric counts the change.
	var r metrics.Registry
	ix.latency = newLatency(&r)
	for _, name := range strings.Fields("shop/api shop/db shop/set shop/set shop/away shop/nobody hidden/api nowhere/x") {
		ns, name, _ := strings.Cut(name, "/")
		ix.Programmed(cluster.Key{Namespace: ns, Name: name}, 3*time.Millisecond)
	}
	ix.Programmed(cluster.Key{Namespace: "shop", Name: "api"}, -time.Second) // the clocks of the machines differ
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const name = "coredns_kubernetes_dns_programming_duration_seconds"
	for kind, want := range map[string]string{"cluster_ip": "2", "headless_with_selector": "2", "headless_without_selector": "1"} {
		if line := fmt.Sprintf("%s_count{service_kind=%q} %s\n", name, kind, want); !strings.Contains(text.String(), line) {
			t.Errorf("want %s\n%s", line, text.String())
		}
	}
	for _, line := range []string{
		name + `_sum{service_kind="cluster_ip"} 0.003`, name + `_bucket{service_kind="cluster_ip",le="0.002"} 1`,
		name + `_bucket{service_kind="cluster_ip",le="0.004"} 2`, name + `_bucket{service_kind="cluster_ip",le="524.288"} 2`,
	} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("want %s\n%s", line, text.String())
		}
	}
}

// A metadata selects every query, as the directive of that name does.
type metadata struct{}

func (metadata) HasMetadata([]byte) bool { return true }
