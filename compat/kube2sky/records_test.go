package kube2sky

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func ips(texts ...string) (all []netip.Addr) {
	for _, t := range texts {
		all = append(all, ip(t))
	}
	return all
}

// slice returns an EndpointSlice with the port http and endpoints such as "10.1.0.1",
// "web-0=10.1.0.1" with a hostname, and "!10.1.0.1", which is not ready.
func slice(name, service string, endpoints ...string) *cluster.Slice {
	s := &cluster.Slice{Namespace: "shop", Name: name, Service: service, Ports: []cluster.Port{{Name: "http", Protocol: "tcp", Port: 8080}}}
	var packed []byte
	for _, text := range endpoints {
		host, addr, ok := strings.Cut(text, "=")
		if !ok {
			host, addr = "", text
		}
		bare := strings.TrimPrefix(addr, "!")
		packed = cluster.AppendEndpoint(packed, cluster.Endpoint{Addr: ip(bare), Hostname: host, Ready: bare == addr})
	}
	s.Endpoints = cluster.Endpoints(packed)
	return s
}

func lines(all []record) (text []string) {
	for _, r := range all {
		text = append(text, r.path+" "+r.value)
	}
	return text
}

func same(t *testing.T, name string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The hashes come from the original kube2sky.
func TestSum(t *testing.T) {
	for address, want := range map[string]string{"1.2.3.4": "b882ad2c", "10.0.0.1": "f488b1a2", "10.96.0.1": "aa333a9"} {
		if got := sum(newMessage(address, 0)); got != want {
			t.Errorf("hash of the message of %s: got %s, want %s", address, got, want)
		}
	}
}

func TestServiceRecords(t *testing.T) {
	z := newZone("Cluster.Local.")
	http := []cluster.Port{{Name: "http", Protocol: "tcp", Port: 80}, {Protocol: "udp", Port: 53}}
	for _, c := range []struct {
		name   string
		svc    *cluster.Service
		slices []*cluster.Slice
		want   []string
	}{
		{"no Service", nil, []*cluster.Slice{slice("a", "web", "10.1.0.1")}, nil},
		{"cluster IP", &cluster.Service{Namespace: "default", Name: "kubernetes", ClusterIPs: ips("10.0.0.1"), Ports: http},
			[]*cluster.Slice{slice("a", "kubernetes", "10.1.0.1")}, []string{
				`local/cluster/svc/default/kubernetes/_tcp/_http/f488b1a2 {"host":"kubernetes.default.svc.cluster.local.","port":80,"priority":10,"weight":10,"ttl":30}`,
				`local/cluster/svc/default/kubernetes/f488b1a2 {"host":"10.0.0.1","priority":10,"weight":10,"ttl":30}`,
			}},
		{"both families have one SRV record", &cluster.Service{Namespace: "default", Name: "kubernetes", ClusterIPs: ips("10.0.0.1", "fd00::1"), Ports: http[:1]}, nil, []string{
			`local/cluster/svc/default/kubernetes/369db935 {"host":"fd00::1","priority":10,"weight":10,"ttl":30}`,
			`local/cluster/svc/default/kubernetes/_tcp/_http/f488b1a2 {"host":"kubernetes.default.svc.cluster.local.","port":80,"priority":10,"weight":10,"ttl":30}`,
			`local/cluster/svc/default/kubernetes/f488b1a2 {"host":"10.0.0.1","priority":10,"weight":10,"ttl":30}`,
		}},
		{"ExternalName", &cluster.Service{Namespace: "shop", Name: "bank", ExternalName: "db.example.com"}, nil, []string{
			`local/cluster/svc/shop/bank/980fb685 {"host":"db.example.com.","priority":10,"weight":10,"ttl":30}`,
		}},
		{"ExternalName with an address", &cluster.Service{Namespace: "shop", Name: "bank", ExternalName: "10.0.0.1"}, nil, nil},
		{"headless", &cluster.Service{Namespace: "shop", Name: "web", Headless: true, Ports: http},
			[]*cluster.Slice{slice("a", "web", "1.2.3.4", "!1.2.3.5"), slice("b", "web", "1.2.3.4", "web-0=1.2.3.6")}, []string{
				`local/cluster/svc/shop/web/_tcp/_http/b882ad2c {"host":"b882ad2c.web.shop.svc.cluster.local.","port":8080,"priority":10,"weight":10,"ttl":30}`,
				`local/cluster/svc/shop/web/_tcp/_http/web-0 {"host":"web-0.web.shop.svc.cluster.local.","port":8080,"priority":10,"weight":10,"ttl":30}`,
				`local/cluster/svc/shop/web/b882ad2c {"host":"1.2.3.4","priority":10,"weight":10,"ttl":30}`,
				`local/cluster/svc/shop/web/web-0 {"host":"1.2.3.6","priority":10,"weight":10,"ttl":30}`,
			}},
		{"publishNotReadyAddresses", &cluster.Service{Namespace: "shop", Name: "web", Headless: true, PublishNotReady: true},
			[]*cluster.Slice{{Namespace: "shop", Name: "a", Service: "web", Endpoints: slice("a", "web", "!1.2.3.4").Endpoints}}, []string{
				`local/cluster/svc/shop/web/b882ad2c {"host":"1.2.3.4","priority":10,"weight":10,"ttl":30}`,
			}},
		{"a hostname with both families", &cluster.Service{Namespace: "shop", Name: "web", Headless: true},
			[]*cluster.Slice{slice("a", "web", "web-0=1.2.3.4"), slice("b", "web", "web-0=fd00::1")}, []string{
				`local/cluster/svc/shop/web/_tcp/_http/web-0 {"host":"web-0.web.shop.svc.cluster.local.","port":8080,"priority":10,"weight":10,"ttl":30}`,
				`local/cluster/svc/shop/web/web-0/369db935 {"host":"fd00::1","priority":10,"weight":10,"ttl":30}`,
				`local/cluster/svc/shop/web/web-0/b882ad2c {"host":"1.2.3.4","priority":10,"weight":10,"ttl":30}`,
			}},
	} {
		same(t, c.name, lines(z.service(c.svc, c.slices)), c.want...)
	}
}

func TestOtherRecords(t *testing.T) {
	z, web := newZone("cluster.local"), cluster.Key{Namespace: "shop", Name: "web"}
	same(t, "records", lines([]record{
		z.pod("shop", ip("1.2.3.4")), z.pod("shop", ip("fd00::1")),
		z.reverse(ip("10.0.1.125"), web, ""), z.reverse(ip("fd00::1"), web, "web-0"),
	}),
		`local/cluster/pod/shop/1-2-3-4/b882ad2c {"host":"1.2.3.4","priority":10,"weight":10,"ttl":30}`,
		`local/cluster/pod/shop/fd00--1/369db935 {"host":"fd00::1","priority":10,"weight":10,"ttl":30}`,
		`arpa/in-addr/10/0/1/125 {"host":"web.shop.svc.cluster.local.","priority":10,"weight":10,"ttl":30}`,
		`arpa/ip6/f/d/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/1 {"host":"web-0.web.shop.svc.cluster.local.","priority":10,"weight":10,"ttl":30}`,
	)
}

// groupOf is the inverse of root. It rejects other spellings of a path.
func TestPlaceOf(t *testing.T) {
	l := newLayout("skydns", "cluster.local")
	for path, want := range map[string]keyGroup{
		"local/cluster/svc/shop/web/b882ad2c":       {kind: serviceGroup, namespace: "shop", name: "web"},
		"local/cluster/svc/shop/web/_tcp/_http/x/y": {kind: serviceGroup, namespace: "shop", name: "web"},
		"local/cluster/pod/shop/1-2-3-4/b882ad2c":   {kind: podGroup, namespace: "shop", addr: ip("1.2.3.4")},
		"local/cluster/pod/shop/fd00--1/369db935":   {kind: podGroup, namespace: "shop", addr: ip("fd00::1")},
		z6("fd00::1"):                                   {kind: reverseGroup, addr: ip("fd00::1")},
		"arpa/in-addr/10/0/1/125":                       {kind: reverseGroup, addr: ip("10.0.1.125")},
		"arpa/in-addr/10/0/1":                           {},
		"arpa/in-addr/10/0/1/125/a":                     {},
		"arpa/ip6/f/d":                                  {},
		strings.Replace(z6("fd00::1"), "f/d", "F/D", 1): {},
		"local/cluster/pod/shop/fd00-0-0-0-0-0-0-1/a":   {},
		"local/cluster/pod/shop/web/a":                  {},
		"local/cluster/svc/shop/web":                    {},
		"local/cluster/svcs/shop/web/a":                 {},
		"local/east/svc/shop/web/a":                     {},
	} {
		if want == (keyGroup{}) {
			want = keyGroup{kind: unknownGroup, name: path}
		}
		if got := l.groupOf(path); got != want {
			t.Errorf("groupOf(%s): got %+v, want %+v", path, got, want)
		}
	}
}

func z6(text string) string { return reversePath(ip(text)) }

// The marks of two trees or clusters do not overlap.
func TestLayouts(t *testing.T) {
	a, b := newLayout("a", "cluster.local"), newLayout("a/owned", "cluster.local")
	if strings.HasPrefix(b.marks, a.marks) || strings.HasPrefix(b.election, a.marks) {
		t.Errorf("got overlapping marks %s and %s", a.marks, b.marks)
	}
	if got := newLayout("skydns", "Cluster.local."); got.tree != "/skydns/" || got.marks != "/seamark/kube2sky/cluster.local/skydns/owned/" || got.election != "/seamark/kube2sky/cluster.local/skydns/leader" {
		t.Errorf("newLayout(skydns, Cluster.local.): got %+v", got)
	}
}
