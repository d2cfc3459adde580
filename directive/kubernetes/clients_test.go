package kubernetes

import (
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
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/clustertest"
)

func clientsIndex() *index.Index {
	return index.New(index.Settings{PodsByAddr: true}, []cluster.Kind{cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Pods}, chaintest.QuietLog())
}

// A directive that identifies clients needs pods verified, and has the index keep the pods.
func TestNeedClientsOfPodModes(t *testing.T) {
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
		clustertest.Pod("shop", "web-1", false, "10.0.0.1"), clustertest.Pod("hidden", "x", false, "10.0.0.2"))
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
			b, err := plan(".:53 {\nkubernetes cluster.local {\n pods " + pods + "\n}\n}\n")
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

// A metadata selects every query, as the directive of that name does.
type metadata struct{}

func (metadata) HasMetadata([]byte) bool { return true }
