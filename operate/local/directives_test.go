package local_test

import (
	"testing"

	mdns "github.com/miekg/dns"
)

// directiveObjects is a cluster for k8s_external and federation.
const directiveObjects = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, resourceVersion: "5"}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.1.0.1]}]
---
apiVersion: v1
kind: Service
metadata: {name: named, namespace: shop}
spec: {type: LoadBalancer, clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{hostname: www.example.com}]}}
---
apiVersion: v1
kind: Service
metadata: {name: inside, namespace: shop}
spec: {clusterIP: 10.96.0.12, ports: [{port: 80}]}
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
endpoints: [{addresses: [10.1.0.2], hostname: db-0, conditions: {ready: true}}]
---
apiVersion: v1
kind: Service
metadata: {name: down, namespace: shop}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: z1, topology.kubernetes.io/region: r1}}
`

// directiveCorefiles are the servers of TestKnownDirectives.
var directiveCorefiles = map[string]string{
	"dns64": `. {
    dns64
    records {
        both.example.org AAAA 2001:db8::9
        1.2.0.192.in-addr.arpa PTR www.example.org
    }
    forward . UPSTREAM
}
`,
	"siit":      ". {\n siit\n records {\n  in.example.org AAAA 64:ff9b::c000:201\n  out.example.org AAAA 2001:db8::9\n  four.example.org A 192.0.2.9\n }\n}\n",
	"dns64 all": ". {\n dns64 {\n  translate_all\n  allow_ipv4\n }\n forward . UPSTREAM\n}\n",
	"external": `. {
    kubernetes cluster.local {
        manifests DIR
    }
    k8s_external ext.example 198.51.100.0/24 {
        apex ns
        fallthrough
    }
    forward . UPSTREAM
}
`,
	"headless": ". {\n kubernetes cluster.local {\n  manifests DIR\n }\n k8s_external ext.example {\n  headless\n }\n}\n",
	"federation": `. {
    kubernetes cluster.local {
        manifests DIR
    }
    federation {
        prod prod.example.com
    }
    forward . UPSTREAM
}
`,
	"records": `. {
    records {
        db.example.org A 192.0.2.40
        db.example.org AAAA 2001:db8::40
        docs.example.org CNAME www.example.com
        *.apps.example.org A 192.0.2.41
        a.b.example.org TXT x
    }
    whoami
}
`,
	"screen": `. {
    records {
        printer.lan A 192.0.2.42
    }
    screen {
        local lan
        plain_names
        private_reverse
        rebind
        drop TXT
    }
    forward . UPSTREAM
}
few.example {
    screen {
        least_labels 4
    }
    forward . UPSTREAM
}
`,
	"small": `. {
    local
    any
    file DIR/zone.db zone.example
    forward example.org UPSTREAM {
        except private.example.org
    }
    whoami
}
corp.example {
    forward . UPSTREAM {
        except lab.corp.example old.lab.corp.example
    }
    forward other.corp.example UPSTREAM
}
odd.example {
    erratic {
        drop 1
    }
}
`,
}

// Names whose explanation is known beforehand, of directives that do not have a cluster's
// Services, or have them in another form.
func TestKnownDirectives(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"all.yaml": directiveObjects,
		"zone.db":  "@ 60 IN SOA ns.zone.example. admin.zone.example. 1 60 60 60 60\n@ 60 IN NS ns.zone.example.\nns 60 IN A 192.0.2.1\n",
	})
	reverse, err := mdns.ReverseAddr("64:ff9b::192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	checkKnown(t, dir, startAll(t, dir, directiveCorefiles), []known{
		{"dns64", "www.example.org AAAA 2001:db8::1", "NOERROR by dns64 in zone .: the name has no AAAA records, so they are made from its A records, with the prefix 64:ff9b::/96", "", "64:ff9b::c000:201"},
		{"dns64", "www.example.org AAAA 10.0.0.1", "NODATA by forward in zone ., from UPSTREAM", "", "the client has an IPv4 address, so nothing is translated (option allow_ipv4)"},
		{"dns64", "both.example.org AAAA 2001:db8::1", "NOERROR by records in zone .: the name has AAAA records (Corefile:4)", "", "dns64        passed    (zone .)\n      the name has AAAA records of its own"},
		{"dns64", "nosuch.example.org AAAA 2001:db8::1", "NXDOMAIN by forward in zone ., from UPSTREAM", "", "the name does not exist, so it has no A records to translate"},
		{"dns64", "none.example.com AAAA 2001:db8::1", "NODATA by forward in zone ., from UPSTREAM", "", "the name has neither AAAA nor A records"},
		{"dns64", reverse + " PTR 2001:db8::1", "NOERROR by dns64 in zone .: the address in the name contains 192.0.2.1 in 64:ff9b::/96, so the name is an alias of the reverse name of that", "", "for 1.2.0.192.in-addr.arpa. PTR"},
		{"dns64", "1.2.0.192.in-addr.arpa PTR 2001:db8::1", "NOERROR by records in zone .: the name has PTR records (Corefile:5)", "", "the name is not the reverse name of an address in 64:ff9b::/96"},
		{"dns64 all", "www.example.org AAAA", "NOERROR by dns64 in zone .: the AAAA records are made from the A records of the name, with the prefix 64:ff9b::/96 (translate_all)", "", ""},

		{"siit", "in.example.org", "NOERROR by siit in zone .: the name has no A records, so they are made from its AAAA records", "", "192.0.2.1"},
		{"siit", "out.example.org", "NODATA by records in zone .: the name has no A records, only AAAA (Corefile:5)", "", "the name has no A records, and no AAAA records with an address in 64:ff9b::/96 or of an eam"},
		{"siit", "four.example.org", "NOERROR by records in zone .: the name has A records (Corefile:6)", "", "the name has A records of its own"},

		{"external", "web.shop.ext.example", "NOERROR by k8s_external in zone .: Service shop/web has the external addresses 198.51.100.7", "", "Service shop/web: resourceVersion 5, DIR/all.yaml:5"},
		{"external", "web.shop.ext.example AAAA", "NODATA by k8s_external in zone .: it has no IPv6 address, so the answer has no records", "", ""},
		{"external", "_http._tcp.web.shop.ext.example SRV", "NOERROR by k8s_external in zone .: Service shop/web has the external addresses 198.51.100.7", "", ""},
		{"external", "_htp._tcp.web.shop.ext.example SRV", "NXDOMAIN by forward in zone ., from UPSTREAM", "_http._tcp.web.shop.ext.example.", "the Service has no port htp over tcp"},
		{"external", "named.shop.ext.example", "NOERROR by k8s_external in zone .: the load balancer of Service shop/named has the host name www.example.com", "", "for www.example.com. A)"},
		{"external", "inside.shop.ext.example", "NXDOMAIN by forward in zone ., from UPSTREAM", "", "Service shop/inside has no external address (spec.externalIPs, status.loadBalancer.ingress)"},
		{"external", "db.shop.ext.example", "NXDOMAIN by forward in zone ., from UPSTREAM", "", "endpoints have names with the option headless only"},
		{"external", "wbe.shop.ext.example", "NXDOMAIN by forward in zone ., from UPSTREAM", "web.shop.ext.example.", "namespace shop has no Service named wbe"},
		{"external", "web.shpo.ext.example", "NXDOMAIN by forward in zone ., from UPSTREAM", "shop.ext.example. web.shop.ext.example.", "namespace shpo does not exist"},
		{"external", "shop.ext.example", "NODATA by k8s_external in zone .: the name is that of a namespace, which has no records of its own", "", ""},
		{"external", "ext.example SOA", "NOERROR by k8s_external in zone .: the name is the zone itself, which has SOA and NS records", "", ""},
		{"external", "ns1.ns.ext.example TXT", "NODATA by k8s_external in zone .: the name is that of the zone's name server", "", ""},
		{"external", "7.100.51.198.in-addr.arpa PTR", "NOERROR by k8s_external in zone .: 198.51.100.7 is an external address of Service shop/web", "", "resourceVersion 5"},
		{"external", "8.100.51.198.in-addr.arpa PTR", "NXDOMAIN by forward in zone ., from UPSTREAM", "", "no Service has the external address 198.51.100.8"},
		{"external", "www.example.org", "NOERROR by forward in zone ., from UPSTREAM", "", "the name is in none of the zones"},
		{"headless", "db.shop.ext.example", "NOERROR by k8s_external in zone .: Service shop/db is headless: the name has the addresses of its ready endpoints (headless)", "", ""},
		{"headless", "bd-0.db.shop.ext.example", "NXDOMAIN by k8s_external in zone .: no endpoint of the Service is named bd-0", "db-0.db.shop.ext.example.", ""},
		{"headless", "down.shop.ext.example", "NXDOMAIN by k8s_external in zone .: Service shop/down has no external address (spec.externalIPs, status.loadBalancer.ingress), and no endpoint that is ready", "", ""},

		{"federation", "web.shop.prod.svc.cluster.local", "NOERROR by federation in zone .: Service shop/web is in this cluster, so the federated name is an alias of its name here", "", "for web.shop.svc.cluster.local. A)"},
		{"federation", "inside.shop.prod.svc.cluster.local", "NXDOMAIN by federation in zone .: Service shop/inside has no endpoint in this cluster, so the federated name leads to another one", "", "for inside.shop.prod.svc.z1.r1.prod.example.com. A)"},
		{"federation", "nosuch.shop.prod.svc.cluster.local", "NXDOMAIN by federation in zone .: Service shop/nosuch is not in this cluster, so the federated name leads to another one", "", "CNAME nosuch.shop.prod.svc.z1.r1.prod.example.com."},
		{"federation", "web.shop.prdo.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace prdo does not exist, and no Service is in it", "web.shop.prod.svc.cluster.local.", "no federation is named prdo; one has a similar name, prod"},

		{"records", "db.example.org", "NOERROR by records in zone .: the name has A records (Corefile:3)", "", ""},
		{"records", "db.example.org MX", "NODATA by records in zone .: the name has no MX records, only A, AAAA (Corefile:3)", "", ""},
		{"records", "docs.example.org", "NOERROR by records in zone .: the name is an alias (CNAME) of www.example.com. (Corefile:5)", "", ""},
		{"records", "x.y.apps.example.org", "NOERROR by records in zone .: the name has no line; the wildcard *.apps.example.org. matches it, and has A records (Corefile:6)", "", ""},
		{"records", "b.example.org", "NODATA by whoami in zone .: every name has the client's address and port in the additional section, and no records of its own", "", "the name has no line; names below it have"},
		{"records", "bd.example.org", "NODATA by whoami in zone .: every name has the client's address and port in the additional section, and no records of its own", "db.example.org.", "no line has the name"},

		{"screen", "x.lan", "NXDOMAIN by screen in zone .: names in the zone are not forwarded (local)", "", ""},
		{"screen", "lan", "NODATA by screen in zone .: names in the zone are not forwarded (local); names below it have records here, so it exists", "", ""},
		{"screen", "printer", "NXDOMAIN by screen in zone .: names with one label are not forwarded (plain_names)", "printer.lan.", ""},
		{"screen", "5.4.3.10.in-addr.arpa PTR", "NXDOMAIN by screen in zone .: reverse names of private addresses are not forwarded (private_reverse)", "", ""},
		{"screen", "a.few.example", "SERVFAIL by screen in zone few.example.: names with fewer than 4 labels are not forwarded (least_labels)", "", ""},
		{"screen", "www.example.org", "NODATA by forward in zone ., from UPSTREAM", "", "screen       changed   (zone .)\n      the answer of the upstream has a private address, which may be an attack on browsers (rebind)"},
		{"screen", "none.example.com TXT", "NODATA by forward in zone ., from UPSTREAM", "", "records of the upstream are removed: drop TXT"},

		{"small", "www.localhost", "NOERROR by local in zone .: names in localhost. do not leave the machine", "", ""},
		{"small", "localhost.shop.svc.cluster.local", "NOERROR by local in zone .: the first label is localhost, to which a search path has added the others (localhost_prefix)", "", ""},
		{"small", "ns.zone.example ANY", "NOERROR by any in zone .: queries of type ANY get one record that says so (RFC 8482), whatever the name has", "", ""},
		{"small", "zone.example AXFR", "REFUSED by file in zone .: zone transfers need the directive transfer, which permits them to some clients", "", ""},
		{"small", "x.private.example.org", "NODATA by whoami in zone .: every name has the client's address and port in the additional section, and no records of its own", "", "names in private.example.org. are not forwarded (except)"},
		{"small", "x.lab.corp.example", "SERVFAIL: no directive of the server block has an answer; forward: names in lab.corp.example. are not forwarded (except), and only names in other.corp.example. are forwarded", "", ""},
		{"small", "x.old.lab.corp.example", "SERVFAIL: no directive of the server block has an answer; forward: names in old.lab.corp.example. are not forwarded (except), and only names in other.corp.example. are forwarded", "", ""},
		{"small", "x.odd.example", "erratic drops the query: no reply is sent", "", "some queries are dropped, delayed or truncated on purpose"},
	})
}
