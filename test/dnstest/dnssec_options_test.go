package dnstest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

const optionsCluster = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec:
  clusterIP: 10.96.0.20
  clusterIPs: [10.96.0.20, "fd00:96::20"]
  ipFamilyPolicy: RequireDualStack
  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: six, namespace: shop}
spec: {clusterIP: "fd00:96::21", clusterIPs: ["fd00:96::21"], ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None], ports: [{name: sql, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-4, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints:
- {addresses: ["10.244.0.1"], zone: eu-1, targetRef: {kind: Pod, name: db-7f9c-x2, namespace: shop}}
- {addresses: ["10.244.0.2"], zone: eu-2, hostname: named, targetRef: {kind: Pod, name: db-7f9c-y3, namespace: shop}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-6, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv6
ports: [{name: sql, port: 5432}]
endpoints:
- {addresses: ["fd00:244::1"], targetRef: {kind: Pod, name: db-7f9c-x2, namespace: shop}}
- {addresses: ["fd00:244::2"], hostname: named}
---
apiVersion: v1
kind: Service
metadata: {name: alias6, namespace: shop}
spec: {type: ExternalName, externalName: six.shop.svc.cluster.local}
---
apiVersion: v1
kind: Pod
metadata: {name: db-7f9c-x2, namespace: shop}
spec: {containers: [{name: c, image: c}]}
status: {phase: Running, podIP: "10.244.0.1", podIPs: [{ip: "10.244.0.1"}, {ip: "fd00:244::1"}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: web, namespace: shop}
spec: {type: ClusterSetIP, ips: ["10.112.0.2", "fd00:112::2"], ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: sets, namespace: shop}
spec: {type: Headless, ports: [{name: sql, port: 5432, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sets-a, namespace: shop, labels: {multicluster.kubernetes.io/service-name: sets, multicluster.kubernetes.io/source-cluster: plain}}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints:
- {addresses: ["10.10.0.1"], hostname: db-0}
- {addresses: ["10.10.0.2"], hostname: db-1}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sets-b, namespace: shop, labels: {multicluster.kubernetes.io/service-name: sets, multicluster.kubernetes.io/source-cluster: eu.west}}
addressType: IPv6
ports: [{name: sql, port: 5432}]
endpoints:
- {addresses: ["fd00:20::1"], hostname: db-0}
`

// withRecords returns queries whose answers have NOERROR and a number of records, from names and
// types in turn.
func withRecords(count int, namesAndTypes ...string) (queries []signedQuery) {
	for i := 0; i < len(namesAndTypes); i += 2 {
		queries = append(queries, signedQuery{name: namesAndTypes[i], t: namesAndTypes[i+1], rcode: "NOERROR", count: count})
	}
	return queries
}

// Validators accept every kind of answer of the options of kubernetes that add names.
func TestOnlineSigningOptionsValidate(t *testing.T) {
	const svc, pod, set = ".shop.svc.cluster.local.", ".shop.pod.cluster.local.", ".shop.svc.clusterset.local."
	ip6 := func(address string) string {
		name, err := dns.ReverseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, c := range map[string]struct {
		options string
		one     []string // names and types whose answers have one record
		two     []string
		none    []string // answers without records
	}{
		"dual stack": {
			one: []string{
				"both" + svc, "A", "both" + svc, "AAAA", "six" + svc, "AAAA", "_http._tcp.both" + svc, "SRV", "_dns._udp.both" + svc, "SRV", "_http._tcp.six" + svc, "SRV",
				"named.db" + svc, "A", "named.db" + svc, "AAAA", "10-244-0-1.db" + svc, "A", "fd00-244--1.db" + svc, "AAAA", "alias6" + svc, "A",
				"20.0.96.10.in-addr.arpa.", "PTR", ip6("fd00:96::20"), "PTR", ip6("fd00:96::21"), "PTR", ip6("fd00:244::1"), "PTR", ip6("fd00:244::2"), "PTR",
			},
			two: []string{"db" + svc, "A", "db" + svc, "AAAA", "alias6" + svc, "AAAA", "both" + svc, "SRV"},
			none: []string{
				"six" + svc, "A", "_http._udp.both" + svc, "SRV", "fd00-244--1.db" + svc, "A", "10-244-0-1.db" + svc, "AAAA", "db-7f9c-x2.db" + svc, "A",
				ip6("fd00:96::99"), "PTR", ip6("fd00:96::20"), "TXT", "0.d.f.ip6.arpa.", "PTR", "10-244-0-1" + pod, "A",
			},
		},
		"endpoint_pod_names": {
			options: "endpoint_pod_names",
			one:     []string{"db-7f9c-x2.db" + svc, "A", "db-7f9c-x2.db" + svc, "AAAA", "named.db" + svc, "A", "db-7f9c-x2.db" + svc, "SRV", "1.0.244.10.in-addr.arpa.", "PTR", ip6("fd00:244::1"), "PTR"},
			two:     []string{"db" + svc, "A", "db" + svc, "AAAA", "_sql._tcp.db" + svc, "SRV"},
			none:    []string{"db-7f9c-x2.db" + svc, "TXT", "db-7f9c-y3.db" + svc, "A", "10-244-0-1.db" + svc, "A"},
		},
		"pods insecure": {
			options: "pods insecure",
			one:     []string{"10-244-0-1" + pod, "A", "192-0-2-7" + pod, "A", "fd00-244--1" + pod, "AAAA", "2001-db8--7" + pod, "AAAA"},
			none:    []string{"10-244-0-1" + pod, "AAAA", "fd00-244--1" + pod, "A", "10-244-0-1" + pod, "TXT", "10-244-0" + pod, "A", "10-244-0-1.none.pod.cluster.local.", "A", "shop.pod.cluster.local.", "A", "pod.cluster.local.", "A"},
		},
		"pods verified": {
			options: "pods verified",
			one:     []string{"10-244-0-1" + pod, "A", "fd00-244--1" + pod, "AAAA"},
			none:    []string{"10-244-0-1" + pod, "AAAA", "fd00-244--1" + pod, "A", "10-244-0-2" + pod, "A", "192-0-2-7" + pod, "A", "10-244-0-1.none.pod.cluster.local.", "A"},
		},
		"multicluster": {
			options: "multicluster clusterset.local",
			one: []string{
				"web" + set, "A", "web" + set, "AAAA", "_http._tcp.web" + set, "SRV", "sets" + set, "AAAA", "db-0.plain.sets" + set, "A", "db-0.eu.west.sets" + set, "AAAA",
				"dns-version.clusterset.local.", "TXT", "clusterset.local.", "SOA", "clusterset.local.", "NS", "clusterset.local.", "DNSKEY", "both" + svc, "A",
			},
			two:  []string{"sets" + set, "A"},
			none: []string{"web" + set, "TXT", "both" + set, "A", "none" + set, "A", "db-0.plain.sets" + set, "AAAA", "plain.sets" + set, "A", "none.plain.sets" + set, "A", "eu.west.sets" + set, "A", "shop.svc.clusterset.local.", "A", "2.0.112.10.in-addr.arpa.", "PTR"},
		},
		"zonal": {
			options: "zonal",
			one:     []string{"eu-1.pin._zone.db" + svc, "A", "eu-2.prefer._zone.db" + svc, "A"},
			two:     []string{"eu-9.prefer._zone.db" + svc, "A"},
			none:    []string{"eu-9.pin._zone.db" + svc, "A", "eu-1.pin._zone.db" + svc, "TXT", "_zone.db" + svc, "A"},
		},
		"wildcards": {
			options: "wildcards",
			one:     []string{"six.*.svc.cluster.local.", "AAAA", "_http._tcp.six.*.svc.cluster.local.", "SRV"},
			two:     []string{"db.*.svc.cluster.local.", "A", "*.db" + svc, "A"},
			none:    []string{"none.*.svc.cluster.local.", "A", "six.*.svc.cluster.local.", "A", "*.six" + svc, "A"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			zones := []string{"cluster.local", "clusterset.local", "10.in-addr.arpa", "d.f.ip6.arpa"}
			key, path := writeKey(t, dir, "cluster.local.", 257, dns.ECDSAP256SHA256, 256)
			at := serveSigned(t, fmt.Sprintf(`.:53 {
    kubernetes cluster.local clusterset.local 10.in-addr.arpa d.f.ip6.arpa {
        $SOURCE
        %s
    }
    dnssec cluster.local clusterset.local 10.in-addr.arpa d.f.ip6.arpa {
        key file %s
    }
}
`, c.options, path), optionsCluster)
			var anchors []*dns.DNSKEY
			servers := map[string]netip.AddrPort{}
			for _, zone := range zones {
				anchor := *key // a key may sign several zones
				anchor.Hdr.Name = zone + "."
				anchors, servers[zone] = append(anchors, &anchor), at
			}
			queries := append(append(withRecords(1, c.one...), withRecords(2, c.two...)...), withRecords(0, c.none...)...)
			startUnbound(t, anchors, servers).check(t, queries)
			delv(t, at, anchors, queries)
		})
	}
}
