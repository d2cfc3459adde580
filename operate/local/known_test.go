package local_test

import (
	"net"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/observe/explain"
)

// knownFiles are the files of the folder DIR that the Corefiles below name.
var knownFiles = map[string]string{
	"hosts": "# names of the office\n192.0.2.8 printer.example.org\n\n192.0.2.9 a.example.org b.example.org\n192.0.2.10 *.lab.example.org\n",
	"zone.db": `$ORIGIN zone.example.
$TTL 60
@ SOA ns admin 2026112401 60 60 60 60
@ NS ns
ns A 192.0.2.1
www A 192.0.2.2
a.b A 192.0.2.3
*.wild TXT x
sub NS ns.sub
ns.sub A 192.0.2.4
alias CNAME www
web CNAME web.shop.svc.cluster.local.
old DNAME new.example.
`,
	"zones/db.auto.example": "@ 60 IN SOA ns.auto.example. admin.auto.example. 7 60 60 60 60\n@ 60 IN NS ns.auto.example.\nwww 60 IN A 192.0.2.6\n",
	"resolv.conf":           "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
	"objects/map.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: custom, namespace: shop, resourceVersion: "99"}
data: {hosts: "# custom\n192.0.2.30 mapped.example.org\n"}
`,
	"objects/all.yaml": `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: secret, labels: {team: b}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, resourceVersion: "812", creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {clusterIPs: [10.96.0.10, "fd00::10"], clusterIP: 10.96.0.10, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: vault, namespace: secret}
spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: bank, namespace: shop}
spec: {type: ExternalName, externalName: www.zone.example}
---
apiVersion: v1
kind: Service
metadata: {name: lost, namespace: shop}
spec: {type: ExternalName, externalName: nosuch.zone.example}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432, protocol: TCP}]
endpoints:
- {addresses: [10.1.0.1], hostname: db-0, zone: east, conditions: {ready: true}, targetRef: {kind: Pod, namespace: shop, name: db-0}}
- {addresses: [10.1.0.2], hostname: db-1, zone: west, conditions: {ready: false}, targetRef: {kind: Pod, namespace: shop, name: db-1}}
---
apiVersion: v1
kind: Service
metadata: {name: seeds, namespace: shop}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: seeds}, ports: [{name: x, port: 1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: seeds-0, namespace: shop, labels: {app: seeds}, resourceVersion: "77"}
spec: {containers: [{name: c}]}
status: {podIP: 10.1.0.7, conditions: [{type: Ready, status: "False"}]}
---
apiVersion: v1
kind: Service
metadata: {name: down, namespace: shop}
spec: {clusterIP: None, ports: [{name: x, port: 1}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: down-1, namespace: shop, labels: {kubernetes.io/service-name: down}}
addressType: IPv4
ports: [{name: x, port: 1}]
endpoints: [{addresses: [10.1.0.3], conditions: {ready: false}}]
`,
}

// knownCorefiles are the servers of TestKnownNames.
var knownCorefiles = map[string]string{
	"main": `.:53 {
    rewrite name exact db.corp.example web.shop.svc.cluster.local
    rewrite continue type MX A
    rewrite name suffix .alias.example .shop.svc.cluster.local
    template IN A tpl.example {
        match ^a[.]tpl[.]example[.]$
        answer "{{ .Name }} 60 IN A 192.0.2.20"
    }
    hosts DIR/hosts {
        192.0.2.7 static.example.org
        fallthrough
    }
    file DIR/zone.db zone.example
    auto auto.example {
        directory DIR/zones
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        manifests DIR/objects
        pods verified
        zonal
        fallthrough in-addr.arpa ip6.arpa
    }
    cache
    forward . UPSTREAM
}
corp.example:53 {
    rewrite edns0 local set 0xffee hello
    forward . UPSTREAM
}
split.example:53 {
    view office {
        expr incidr(client_ip(), '10.0.0.0/8')
        expr type() == 'A'
    }
    forward . UPSTREAM
}
split.example:53 {
    acl {
        block
    }
    whoami
}
`,
	"insecure": ". {\n kubernetes cluster.local {\n  manifests DIR/objects\n  pods insecure\n  wildcards\n }\n}\n",
	"maps":     ". {\n hosts {\n  configmap shop/custom hosts\n  manifests DIR/objects\n }\n}\n",
	"search":   ". {\n autopath DIR/resolv.conf\n kubernetes cluster.local {\n  manifests DIR/objects\n }\n forward . UPSTREAM\n}\n",
	"listed":   ". {\n kubernetes cluster.local {\n  manifests DIR/objects\n  namespaces shop\n }\n}\n",
	"labelled": ". {\n kubernetes cluster.local {\n  manifests DIR/objects\n  namespace_labels team=a\n }\n}\n",
}

// Names whose explanations are known beforehand.
func TestKnownNames(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, knownFiles)
	servers := startAll(t, dir, knownCorefiles)
	checkKnown(t, dir, servers, []known{
		// Services
		{"main", "web.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10, fd00::10", "", "Service shop/web: resourceVersion 812, age "},
		{"main", "web.shop.svc.cluster.local AAAA", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10, fd00::10", "", "(created 2026-01-02T03:04:05Z), DIR/objects/all.yaml:9"},
		{"main", "web.shop.svc.cluster.local TXT", "NODATA by kubernetes in zone .: the name has no TXT records", "", ""},
		{"main", "wbe.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named wbe", "web.shop.svc.cluster.local.", "did you mean web.shop.svc.cluster.local."},
		{"main", "vault.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named vault", "vault.secret.svc.cluster.local.", "Service vault is in namespace secret"},
		{"main", "web.shpo.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shpo does not exist, and no Service is in it", "shop.svc.cluster.local. web.shop.svc.cluster.local.", ""},
		{"main", "shop.web.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace web does not exist, and no Service is in it", "web.shop.svc.cluster.local.", "are in the wrong order"},
		{"main", "_http._tcp.web.shop.svc.cluster.local SRV", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10, fd00::10", "", ""},
		{"main", "_http._udp.web.shop.svc.cluster.local SRV", "NXDOMAIN by kubernetes in zone .: the Service has no port http over udp; its names of ports are _http._tcp, _dns._udp", "_http._tcp.web.shop.svc.cluster.local.", ""},
		{"main", "_80._tcp.web.shop.svc.cluster.local SRV", "NXDOMAIN by kubernetes in zone .: the Service has no port 80 over tcp; its names of ports are _http._tcp, _dns._udp", "", ""},
		{"main", "_80._tcp.vault.secret.svc.cluster.local SRV", "NXDOMAIN by kubernetes in zone .: the Service has no named port", "", ""},
		{"main", "x.web.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: no endpoint of the Service is named x", "", ""},
		{"main", "web.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace web does not exist, and no Service is in it", "web.shop.svc.cluster.local.", "Service web is in namespace shop"},
		{"main", "web.shop.svc.cluster.local OPENPGPKEY", "NODATA by kubernetes in zone .: the name has no OPENPGPKEY records", "", ""},
		{"main", "web.shop.svc.cluster.local type65280", "NODATA by kubernetes in zone .: the name has no TYPE65280 records", "", ""},
		// Headless Services
		{"main", "db.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/db is headless; 1 of its 2 endpoints are served, the others are not ready", "", "EndpointSlice shop/db-1: DIR/objects/all.yaml:34"},
		{"main", "db-0.db.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/db is headless; 1 of its 2 endpoints are served, the others are not ready", "", ""},
		{"main", "db-1.db.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: endpoint db-1 (10.1.0.2) is not ready", "", ""},
		{"main", "bd-0.db.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: no endpoint of the Service is named bd-0", "db-0.db.shop.svc.cluster.local.", ""},
		{"main", "seeds.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/seeds is headless; 1 of its 1 endpoints are served (publishNotReadyAddresses)", "", "made from the Pods that the Service selects"},
		{"main", "down.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: Service shop/down is headless and has no endpoint that is ready, so it has no name", "", ""},
		{"main", "east.pin._zone.db.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: the name has the endpoints in the topology zone east", "", ""},
		{"main", "west.pin._zone.db.shop.svc.cluster.local", "NODATA by kubernetes in zone .: the Service has no ready endpoint with A records in the topology zone west", "", ""},
		{"main", "north.prefer._zone.db.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: the name has the endpoints in the topology zone north, or all if there are none", "", ""},
		{"insecure", "east.pin._zone.db.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: names of topology zones need the option zonal", "", ""},
		// ExternalName
		{"main", "bank.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/bank is an alias (ExternalName)", "", "file         answered  (zone ., for www.zone.example. A)"},
		{"main", "lost.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: Service shop/lost is an alias (ExternalName)", "", "its closest encloser is zone.example."},
		// Pods and addresses
		{"main", "10-1-0-7.shop.pod.cluster.local", "NOERROR by kubernetes in zone .: Pod shop/seeds-0 has the address 10.1.0.7", "", "Pod shop/seeds-0: resourceVersion 77"},
		{"main", "10-1-0-9.shop.pod.cluster.local", "NXDOMAIN by kubernetes in zone .: pods verified: no Pod of the namespace has the address 10.1.0.9", "", ""},
		{"insecure", "10-1-0-9.shop.pod.cluster.local", "NOERROR by kubernetes in zone .: pods insecure: every address has a name, whether a Pod has it or not", "", ""},
		{"insecure", "db-0.shop.pod.cluster.local", "NXDOMAIN by kubernetes in zone .: the first label of a Pod's name is its IP address with dashes, such as 10-0-0-1", "", ""},
		{"search", "10-1-0-7.shop.pod.cluster.local", "NXDOMAIN by kubernetes in zone .: the option pods is disabled, so Pods have no names", "", ""},
		{"main", "10.0.96.10.in-addr.arpa PTR", "NOERROR by kubernetes in zone .: 10.96.0.10 is a ClusterIP of Service shop/web", "", "resourceVersion 812"},
		{"main", "10.0.96.10.in-addr.arpa A", "NODATA by kubernetes in zone .: the name has no A records", "", "10.96.0.10 is a ClusterIP of Service shop/web"},
		{"main", "10-1-0-7.shop.pod.cluster.local AAAA", "NODATA by kubernetes in zone .: it has no IPv6 address, so the answer has no records", "", "Pod shop/seeds-0 has the address 10.1.0.7"},
		{"main", "1.0.1.10.in-addr.arpa PTR", "NOERROR by kubernetes in zone .: 10.1.0.1 is an endpoint of Service shop/db", "", ""},
		{"main", "9.2.0.192.in-addr.arpa PTR", "NOERROR by hosts in zone .: DIR/hosts:4: 192.0.2.9 a.example.org b.example.org", "", ""},
		{"main", "5.4.3.10.in-addr.arpa PTR", "NODATA by forward in zone ., from UPSTREAM", "", "no Service and no endpoint has the address 10.3.4.5"},
		// Wildcards
		{"insecure", "*.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: the label * matches any label in its place (option wildcards)", "", ""},
		{"insecure", "*.nosuch.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: the label * matches any label in its place (option wildcards), and nothing matches", "", ""},
		{"main", "*.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named *", "", ""},
		{"main", "q.wild.zone.example TXT", "NOERROR by file in zone .: the name does not exist, and the wildcard *.wild.zone.example. applies: it has TXT records", "", "its closest encloser is wild.zone.example."},
		{"main", "x.lab.example.org", "NOERROR by hosts in zone .: no line has the name; the wildcard *.lab.example.org. matches it", "", "DIR/hosts:5: 192.0.2.10 *.lab.example.org"},
		// Namespaces that are hidden
		{"listed", "vault.secret.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace secret is hidden: the option namespaces has only shop", "", ""},
		{"labelled", "vault.secret.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace secret is hidden: it does not exist, or the option namespace_labels excludes it (team=a)", "", ""},
		{"labelled", "web.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10, fd00::10", "", ""},
		// Search domains
		{"main", "www.example.com.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named com", "", "probably a pod searches for www.example.com."},
		{"search", "web.secret.shop.svc.cluster.local", "NOERROR by autopath in zone .: the search has found web.secret.", "", "the client searches for web.secret. in shop.svc.cluster.local. svc.cluster.local. cluster.local."},
		{"search", "vault.secret.shop.svc.cluster.local", "NOERROR by autopath in zone .: the search has found vault.secret.svc.cluster.local.", "", "for vault.secret.svc.cluster.local. A)"},
		{"search", "web.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10, fd00::10", "", ""},
		// Other names
		{"main", "static.example.org", "NOERROR by hosts in zone .: Corefile:10: 192.0.2.7 static.example.org", "", ""},
		{"main", "printer.example.org AAAA", "NODATA by hosts in zone .: the name has no AAAA records", "", "DIR/hosts:2: 192.0.2.8 printer.example.org"},
		{"main", "printer.example.org", "NOERROR by hosts in zone .: DIR/hosts:2: 192.0.2.8 printer.example.org", "", ""},
		{"main", "db.corp.example", "NOERROR by forward in zone corp.example., from UPSTREAM", "", ""}, // the stub domain, and not the rule of another block
		{"main", "db.alias.example", "NOERROR by kubernetes in zone .: Service shop/db is headless; 1 of its 2 endpoints are served, the others are not ready", "", "rewrite name suffix .alias.example .shop.svc.cluster.local matches (Corefile:4): the name is now db.shop.svc.cluster.local."},
		{"main", "www.example.net MX", "NOERROR by forward in zone ., from UPSTREAM", "", "rewrite continue type MX A matches (Corefile:3): the type is now A"},
		{"main", "a.tpl.example", "NOERROR by template in zone .: template IN A tpl.example (Corefile:5) answers: match ^a[.]tpl[.]example[.]$", "", ""},
		{"main", "b.tpl.example", "SERVFAIL by template in zone .: template IN A tpl.example (Corefile:5) does not match, and has no fallthrough", "", ""},
		{"main", "www.zone.example", "NOERROR by file in zone .: the name has A records", "", "zone zone.example. has serial number 2026112401, from DIR/zone.db"},
		{"main", "www.zone.example AAAA", "NODATA by file in zone .: the name has no AAAA records, only A", "", ""},
		{"main", "b.zone.example", "NODATA by file in zone .: the name has no records, only names below it (empty non-terminal)", "", ""},
		{"main", "x.www.zone.example", "NXDOMAIN by file in zone .: the name does not exist", "", "its closest encloser is www.zone.example."},
		{"main", "wwww.zone.example", "NXDOMAIN by file in zone .: the name does not exist", "www.zone.example.", "its closest encloser is zone.example."},
		{"main", "x.sbu.zone.example", "NXDOMAIN by file in zone .: the name does not exist", "sub.zone.example.", ""},
		{"main", "x.sub.zone.example", "referral by file in zone .: the name is at or below the delegation of sub.zone.example., so the answer is a referral", "", ""},
		{"main", "alias.zone.example", "NOERROR by file in zone .: the name is an alias (CNAME)", "", ""},
		{"main", "web.zone.example", "NOERROR by file in zone .: the name is an alias (CNAME)", "", "kubernetes   answered  (zone ., for web.shop.svc.cluster.local. A)"},
		{"main", "x.old.zone.example", "NOERROR by file in zone .: the name is below old.zone.example., whose DNAME record applies", "", "forward      answered  (zone ., for x.new.example. A)"},
		{"main", "www.auto.example", "NOERROR by auto in zone .: the name has A records", "", "zone auto.example. has serial number 7, from DIR/zones/db.auto.example"},
		{"main", "www.example.com", "NOERROR by forward in zone ., from UPSTREAM", "", "no answer for the name and the type is stored"},
		{"main", "www.example.com", "NOERROR by cache in zone .: a positive answer has been stored for ...", "", ""},
		{"main", "none.example.com AAAA", "NODATA by forward in zone ., from UPSTREAM", "", ""},
		{"main", "none.example.com AAAA", "NODATA by cache in zone .: a negative answer (NODATA) has been stored for ...", "", ""},
		// Views and stub domains
		{"main", "www.split.example A 10.1.2.3", "NOERROR by forward in zone split.example., from UPSTREAM", "", "view         matched   (zone split.example., view office)"},
		{"main", "www.split.example A 192.0.2.99", "REFUSED by acl in zone split.example.: a line block for split.example. matches", "", "the expression incidr(client_ip(), '10.0.0.0/8') is false"},
		{"main", "www.split.example AAAA 10.1.2.3", "REFUSED by acl in zone split.example.: a line block for split.example. matches", "", "the expression type() == 'A' is false"},
		{"main", "www.corp.example", "NOERROR by forward in zone corp.example., from UPSTREAM", "", "rewrite edns0 local set 0xffee hello matches (Corefile:27)"},
		// ConfigMaps
		{"maps", "mapped.example.org", "NOERROR by hosts in zone .: configmap shop/custom hosts:2: 192.0.2.30 mapped.example.org", "", "ConfigMap shop/custom: resourceVersion 99, DIR/objects/map.yaml:1"},
		{"maps", "unmapped.example.org", "NXDOMAIN by hosts in zone .: no line has the name", "mapped.example.org.", ""},
	})
}

// The copy of a zone is explained as its file would be.
func TestExplainSecondary(t *testing.T) {
	l := startIn(t, t.TempDir(), "copy.example {\n secondary {\n  transfer from "+primary(t)+"\n }\n}\n")
	const want = "NODATA by secondary in zone copy.example.: the name has no AAAA records, only A"
	var r explain.Result
	for deadline := time.Now().Add(time.Minute); r.Summary != want; time.Sleep(time.Millisecond) {
		var err error
		if r, err = l.Explain(t.Context(), explain.Query{Name: "www.copy.example", Type: "AAAA"}); err != nil || time.Now().After(deadline) {
			t.Fatalf("got %q and error %v, want %q", r.Summary, err, want)
		}
	}
	var printed strings.Builder
	explain.Write(&printed, r)
	for _, text := range []string{"zone copy.example. has serial number 7", "a primary has confirmed it ", "ago; it expires in 16m"} {
		if !strings.Contains(printed.String(), text) {
			t.Errorf("got\n%swant %q", printed.String(), text)
		}
	}
}

// primary serves the zone copy.example for transfers, and returns its address.
func primary(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var zone []mdns.RR
	const soa = "copy.example. 60 IN SOA ns admin 7 60 60 1000 60"
	for _, text := range []string{soa, "copy.example. 60 IN NS ns.copy.example.", "www.copy.example. 60 IN A 192.0.2.1", soa} {
		record, err := mdns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		zone = append(zone, record)
	}
	ready := make(chan struct{})
	s := &mdns.Server{Listener: listener, NotifyStartedFunc: func() { close(ready) },
		Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
			m := new(mdns.Msg).SetReply(q)
			m.Authoritative = true
			if m.Answer = zone; q.Question[0].Qtype == mdns.TypeSOA {
				m.Answer = zone[:1]
			}
			_ = w.WriteMsg(m)
		})}
	go func() { _ = s.ActivateAndServe() }()
	<-ready
	t.Cleanup(func() { _ = s.Shutdown() })
	return listener.Addr().String()
}
