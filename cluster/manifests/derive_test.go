package manifests

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

const webService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {tier: front}}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: web}, {name: alt, port: 81, targetPort: 8081}, {name: same, port: 82}]
`

func pod(name, more, status string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, labels: {app: web, x: yes-sir}%s}\nspec:\n  containers: [{name: c, ports: [{name: web, containerPort: 8080}]}]\nstatus: %s\n", name, more, status)
}

func join(docs ...string) string { return strings.Join(docs, "---\n") }

func TestManifestsDerived(t *testing.T) {
	pods := join(
		pod("ready", "", "{podIP: 10.1.0.1, conditions: [{type: Ready, status: 'True'}]}"),
		pod("bare", "", "{podIP: 10.1.0.2}"),
		pod("not", "", "{podIP: 10.1.0.3, conditions: [{type: Ready, status: 'False'}]}"),
		pod("unknown", "", "{podIP: 10.1.0.4, conditions: [{type: Initialized, status: 'True'}]}"),
		pod("dual", "", "{podIP: 10.1.0.5, podIPs: [{ip: 10.1.0.5}, {ip: 'fd00::5'}]}"),
		pod("ended", "", "{podIP: 10.1.0.6, phase: Succeeded}"),
		pod("failed", "", "{podIP: 10.1.0.7, phase: Failed}"),
		pod("leaving", ", deletionTimestamp: '2026-01-01T00:00:00Z'", "{podIP: 10.1.0.8}"),
		pod("homeless", "", "{phase: Pending}"),
		strings.Replace(pod("other", "", "{podIP: 10.1.0.9}"), "app: web", "app: db", 1),
		strings.Replace(pod("away", "", "{podIP: 10.1.0.10}"), "namespace: shop", "namespace: else", 1),
		strings.Replace(pod("named", "", "{podIP: 10.1.0.11}"), "spec:\n", "spec:\n  hostname: First\n  subdomain: web\n", 1),
		strings.Replace(pod("misnamed", "", "{podIP: 10.1.0.12}"), "spec:\n", "spec:\n  hostname: second\n  subdomain: db\n", 1),
		strings.Replace(pod("odd", "", "{podIP: 10.1.0.13}"), "8080", "9090", 1),
		strings.Replace(pod("portless", "", "{podIP: 10.1.0.14}"), "name: web, c", "name: x, c", 1),
		strings.Replace(pod("udp", "", "{podIP: 10.1.0.15}"), "name: web, c", "name: web, protocol: UDP, c", 1),
	)
	const rest = " alt:8081/tcp same:82/tcp"
	v6 := "endpointslices shop/web/pods/tcp-8080-http/tcp-8081-alt/tcp-82-same/ipv6 of web http:8080/tcp" + rest + " [fd00::5 ]"
	v4 := "endpointslices shop/web/pods/tcp-8080-http/tcp-8081-alt/tcp-82-same/ipv4 of web http:8080/tcp" + rest +
		" [10.1.0.2 ] [10.1.0.5 ] [10.1.0.12 ] [10.1.0.11 first] [10.1.0.3  not ready] [10.1.0.1 ] [10.1.0.4  not ready]"
	odd := "endpointslices shop/web/pods/tcp-8081-alt/tcp-82-same/ipv4 of web" + rest + " [10.1.0.14 ] [10.1.0.15 ]"
	nine := "endpointslices shop/web/pods/tcp-9090-http/tcp-8081-alt/tcp-82-same/ipv4 of web http:9090/tcp" + rest + " [10.1.0.13 ]"
	for _, test := range []struct {
		name, service string
		opts          cluster.Options
		want          []string
	}{
		{"plain", webService, cluster.Options{}, []string{v4, v6, odd, nine}},
		{"family", webService + "  ipFamilies: [IPv6]\n", cluster.Options{}, []string{v6}},
		{"publish", webService + "  publishNotReadyAddresses: true\n", cluster.Options{}, []string{strings.ReplaceAll(v4, "  not ready", " "), v6, odd, nine}},
		{"labels", webService, cluster.Options{Labels: "tier=front"}, []string{v4, v6, odd, nine}},
		{"other labels", webService, cluster.Options{Labels: "tier=back"}, nil},
		{"none", webService, cluster.Options{NoEndpoints: true}, nil},
		{"elsewhere", webService, cluster.Options{Namespaces: "else"}, nil},
		{"no selector", strings.Replace(webService, "selector: {app: web}", "selector: {}", 1), cluster.Options{}, nil},
		{"narrow", strings.Replace(webService, "selector: {app: web}", "selector: {app: web, x: z}", 1), cluster.Options{}, nil},
		{"slices", webService + "---\n" + slice("s", "web", "- {addresses: [10.2.0.1]}"), cluster.Options{},
			[]string{"endpointslices shop/s of web http:80/tcp [10.2.0.1 ]"}},
	} {
		b := newBench(t, map[string]string{"web.yaml": test.service, "pods.yaml": pods})
		b.opts = test.opts
		b.read()
		var got []string
		for line := range strings.Lines(b.sink.state()) {
			if strings.HasPrefix(line, "endpointslices ") {
				got = append(got, strings.TrimSuffix(line, "\n"))
			}
		}
		if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s\n%q", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"), b.log.with())
		}
	}
}

func TestManifestsPods(t *testing.T) {
	p := pod("db-0", "", "{podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}, {ip: 'fd00::1'}]}")
	b := newBench(t, map[string]string{"web.yaml": strings.Replace(webService, "ports:", "ports: [] #", 1), "pods.yaml": join(p, strings.Replace(pod("cache", "", "{podIP: 10.1.0.2}"), "x: yes-sir", "topology.kubernetes.io/zone: B", 1))})
	b.opts = cluster.Options{Pods: true, PodNames: true, Zones: true}
	b.read()
	b.has("endpointslices shop/web/pods/ipv4 of web [10.1.0.2 cacheb] [10.1.0.1 db-0]", "endpointslices shop/web/pods/ipv6 of web [fd00::1 db-0]",
		"pods shop/cache [10.1.0.2]", "pods shop/db-0 [10.1.0.1 fd00::1]", "services shop/web headless")

	b.sink = &recorder{}
	b.opts = cluster.Options{Pods: true, Labels: "x=yes-sir"}
	b.read()
	b.has("pods shop/db-0 [10.1.0.1 fd00::1]")
}

const webEndpoints = `apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: shop, labels: {tier: front}}
subsets:
- addresses: [{ip: 10.3.0.1, hostname: One}, {ip: 'fd00::1'}, {ip: 10.3.0.2, targetRef: {kind: Pod, name: web-2}}]
  notReadyAddresses: [{ip: 10.3.0.3}]
  ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]
- addresses: [{ip: 10.3.0.4}]
`

func TestManifestsMirrored(t *testing.T) {
	web := service("web", "10.0.0.1")
	const first = " of web http:8080/tcp dns:53/udp"
	mirrored := []string{
		"endpointslices shop/web/endpoints/1/ipv4" + first + " [10.3.0.1 one] [10.3.0.2 web-2] [10.3.0.3  not ready]",
		"endpointslices shop/web/endpoints/1/ipv6" + first + " [fd00::1 ]",
		"endpointslices shop/web/endpoints/2/ipv4 of web [10.3.0.4 ]",
		"services shop/web 10.0.0.1",
	}
	b := newBench(t, map[string]string{"a.yaml": join(web, webEndpoints)})
	b.opts = cluster.Options{PodNames: true}
	f := b.read()
	b.has(mirrored...)

	b.write("slice.yaml", slice("web-1", "web", "- {addresses: [10.4.0.1], zone: a, conditions: {ready: false}}"))
	f.check(t.Context())
	b.has("endpointslices shop/web-1 of web http:80/tcp [10.4.0.1  not ready]", "services shop/web 10.0.0.1")
	b.remove("slice.yaml")
	f.check(t.Context())
	b.has(mirrored...)

	b.write("a.yaml", join(web, strings.Replace(webEndpoints, "tier: front", "endpointslice.kubernetes.io/skip-mirror: 'true'", 1)))
	f.check(t.Context())
	b.has("services shop/web 10.0.0.1")
}

func TestManifestsMulticluster(t *testing.T) {
	files := map[string]string{"a.yaml": join(
		"apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata: {name: web, namespace: shop}\nspec: {type: ClusterSetIP, ips: [10.5.0.1], ports: [{name: http, port: 80, protocol: TCP}]}\n",
		strings.Replace(slice("web-far", "web", "- {addresses: [10.5.1.1]}"), "kubernetes.io/service-name: web", "multicluster.kubernetes.io/service-name: web, multicluster.kubernetes.io/source-cluster: east", 1),
	)}
	b := newBench(t, files)
	b.opts = cluster.Options{Multicluster: true}
	b.read()
	b.has("endpointslices (multicluster) shop/web-far of web@east http:80/tcp [10.5.1.1 ]", "serviceimports shop/web 10.5.0.1 http:80/tcp")
	b.says(0, "level=WARN")

	// The next version has the same fields. A slice need not name its cluster.
	files["a.yaml"] = strings.Replace(files["a.yaml"], "v1alpha1", "v1beta1", 1)
	files["a.yaml"] = strings.Replace(files["a.yaml"], ", multicluster.kubernetes.io/source-cluster: east", "", 1)
	b = newBench(t, files)
	b.opts = cluster.Options{Multicluster: true}
	b.read()
	b.has("endpointslices (multicluster) shop/web-far of web@unknown http:80/tcp [10.5.1.1 ]", "serviceimports shop/web 10.5.0.1 http:80/tcp")
	b.says(1, "Imported EndpointSlice without a label, its cluster is unknown")

	b = newBench(t, files)
	b.read()
	b.has()
	b.says(0, "level=WARN")
}

func TestManifestsClusterIPs(t *testing.T) {
	bare := "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\n"
	b := newBench(t, map[string]string{
		"a.yaml": join(fmt.Sprintf(bare, "a"), fmt.Sprintf(bare, "b"),
			fmt.Sprintf(bare, "none")+"spec: {clusterIP: None}\n", fmt.Sprintf(bare, "none-too")+"spec: {clusterIPs: [None]}\n",
			fmt.Sprintf(bare, "ext")+"spec: {type: ExternalName, externalName: example.com}\n",
			fmt.Sprintf(bare, "wrong")+"spec: {clusterIP: 1.2.3}\n"),
	})
	f := b.read()
	given := allocate([]cluster.Key{{Namespace: "shop", Name: "a"}, {Namespace: "shop", Name: "b"}}, nil)
	ip := func(name string) string { return given[cluster.Key{Namespace: "shop", Name: name}].String() }
	rest := []string{"services shop/ext = example.com", "services shop/none headless", "services shop/none-too headless", "services shop/wrong"}
	b.has(append([]string{"services shop/a " + ip("a"), "services shop/b " + ip("b")}, rest...)...)
	b.says(1, "level=INFO", "namespace=shop name=a", ip("a"))
	b.says(1, "level=INFO", "namespace=shop name=b", ip("b"))

	// An explicit address takes precedence, and changes only the Service that had
	// it.
	b.write("z.yaml", service("z", ip("a")))
	f.check(t.Context())
	again := allocate([]cluster.Key{{Namespace: "shop", Name: "a"}, {Namespace: "shop", Name: "b"}}, map[netip.Addr]bool{given[cluster.Key{Namespace: "shop", Name: "a"}]: true})
	if again[cluster.Key{Namespace: "shop", Name: "a"}] == given[cluster.Key{Namespace: "shop", Name: "a"}] {
		t.Error("an explicit address was allocated to another Service")
	}
	b.has(append([]string{"services shop/a " + again[cluster.Key{Namespace: "shop", Name: "a"}].String(), "services shop/b " + ip("b")}, append(rest, "services shop/z "+ip("a"))...)...)
	b.says(1, "level=INFO", "namespace=shop name=b", ip("b"))
}

func TestAllocate(t *testing.T) {
	var keys []cluster.Key
	for i := range 10_000 {
		keys = append(keys, cluster.Key{Namespace: fmt.Sprint("ns", i%50), Name: fmt.Sprint("service-", i)})
	}
	given := allocate(keys, nil)
	seen := map[netip.Addr]bool{}
	for key, ip := range given {
		switch ip.String() {
		case "10.96.0.0", "10.96.0.1", "10.96.0.10", "10.96.255.255":
			t.Errorf("%s got the reserved %s", key, ip)
		}
		if seen[ip] || !netip.MustParsePrefix("10.96.0.0/16").Contains(ip) {
			t.Errorf("%s got %s, which is taken or out of range", key, ip)
		}
		seen[ip] = true
	}
	moved := 0
	for key, ip := range allocate(append([]cluster.Key{{Namespace: "aaa", Name: "new"}}, keys...), nil) {
		if was, ok := given[key]; ok && was != ip {
			moved++
		}
	}
	if len(given) != len(keys) || moved > 2 {
		t.Errorf("%d of %d were given one; %d changed when one came first", len(given), len(keys), moved)
	}

	all := map[netip.Addr]bool{}
	for ip := netip.MustParseAddr("10.96.0.0"); ip.As4()[1] == 96; ip = ip.Next() {
		all[ip] = true
	}
	last := netip.MustParseAddr("10.96.7.7")
	delete(all, last)
	if got := allocate([]cluster.Key{{Namespace: "a", Name: "a"}, {Namespace: "a", Name: "b"}}, all); len(got) != 1 || got[cluster.Key{Namespace: "a", Name: "a"}] != last {
		t.Errorf("of one free address came %v", got)
	}
}
