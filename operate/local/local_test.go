package local_test

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport"
)

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: data}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}, {name: metrics, port: 9090}]}
---
apiVersion: v1
kind: Service
metadata: {name: bank, namespace: shop}
spec: {type: ExternalName, externalName: alias.example.org}
---
apiVersion: v1
kind: Service
metadata: {name: loop, namespace: shop}
spec: {type: ExternalName, externalName: loop.shop.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: redis, namespace: data}
spec: {clusterIP: None, ports: [{name: redis, port: 6379}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: redis-1, namespace: data, labels: {kubernetes.io/service-name: redis}}
addressType: IPv4
ports: [{name: redis, port: 6379, protocol: TCP}]
endpoints:
- {addresses: [10.1.0.1], hostname: redis-0, conditions: {ready: true}, targetRef: {kind: Pod, namespace: data, name: redis-0}}
- {addresses: [10.1.0.2], hostname: redis-1, conditions: {ready: false}, targetRef: {kind: Pod, namespace: data, name: redis-1}}
---
apiVersion: v1
kind: Service
metadata: {name: idle, namespace: data}
spec: {clusterIP: None, ports: [{name: x, port: 1}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: orphan-1, namespace: data, labels: {kubernetes.io/service-name: orphan}}
addressType: IPv4
ports: []
endpoints: [{addresses: [10.1.0.9]}]
`

// Each case has a name, and parts of the expected summary, nearest names and steps.
func TestExplain(t *testing.T) {
	l := start(t, `.:53 {
    errors
    health
    kubernetes cluster.local in-addr.arpa {
        manifests OBJECTS
        fallthrough in-addr.arpa
    }
    hosts {
        192.0.2.7 static.example.org
        fallthrough
    }
    cache
    forward . UPSTREAM
}
lan:53 {
    acl {
        allow net 10.0.0.0/8
        filter type MX
        block net 127.0.0.2
        drop
    }
    whoami
}
`)
	for _, c := range []struct{ query, summary, nearest, steps string }{
		{"web.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10", "", "cache passed, hosts passed, kubernetes answered"},
		{"WEB.shop.svc.cluster.local.", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10", "", "cache passed, hosts passed, kubernetes answered"},
		{"web.shop.svc.cluster.local AAAA", "NODATA by kubernetes in zone .: it has no IPv6 address, so the answer has no records", "", "cache passed, hosts passed, kubernetes answered"},
		{"web.shop.svc.cluster.local MX", "NODATA by kubernetes in zone .: the name has no MX records", "", "cache passed, hosts passed, kubernetes answered"},
		{"wbe.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named wbe", "web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"web.shp.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shp does not exist, and no Service is in it", "shop.svc.cluster.local. web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"shop.web.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace web does not exist, and no Service is in it", "web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"web.data.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace data has no Service named web", "web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"redis-0.redis.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named redis", "redis-0.redis.data.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"_http._tcp.web.shop.svc.cluster.local SRV", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.0.10", "", "cache passed, hosts passed, kubernetes answered"},
		{"_htp._tcp.web.shop.svc.cluster.local SRV", "NXDOMAIN by kubernetes in zone .: the Service has no port htp over tcp; its names of ports are _http._tcp, _metrics._tcp", "_http._tcp.web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"_http._udp.web.shop.svc.cluster.local SRV", "NXDOMAIN by kubernetes in zone .: the Service has no port http over udp; its names of ports are _http._tcp, _metrics._tcp", "_http._tcp.web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"redis.data.svc.cluster.local", "NOERROR by kubernetes in zone .: Service data/redis is headless; 1 of its 2 endpoints are served, the others are not ready", "", "cache passed, hosts passed, kubernetes answered"},
		{"redis-0.redis.data.svc.cluster.local", "NOERROR by kubernetes in zone .: Service data/redis is headless; 1 of its 2 endpoints are served, the others are not ready", "", "cache passed, hosts passed, kubernetes answered"},
		{"redis-1.redis.data.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: endpoint redis-1 (10.1.0.2) is not ready", "", "cache passed, hosts passed, kubernetes answered"},
		{"redis-7.redis.data.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: no endpoint of the Service is named redis-7", "redis-0.redis.data.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"idle.data.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: Service data/idle is headless and has no endpoint that is ready, so it has no name", "", "cache passed, hosts passed, kubernetes answered"},
		{"orphan.data.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace data has no Service named orphan, only EndpointSlices that name it", "", "cache passed, hosts passed, kubernetes answered"},
		{"bank.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/bank is an alias (ExternalName)", "", "cache passed, hosts passed, kubernetes answered, cache passed, hosts passed, kubernetes passed, forward answered"},
		{"x.bank.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: an ExternalName has no names below it", "", "cache passed, hosts passed, kubernetes answered"},
		{"loop.shop.svc.cluster.local", "SERVFAIL by kubernetes in zone .: Service shop/loop is an alias (ExternalName)", "", "cache passed, hosts passed, kubernetes answered"},
		{"www.example.com.shop.svc.cluster.local", "NXDOMAIN by kubernetes in zone .: namespace shop has no Service named com", "", "cache passed, hosts passed, kubernetes answered"},
		{"www.example.com.cluster.local", "NXDOMAIN by kubernetes in zone .: the zone has only names below svc and pod", "", "cache passed, hosts passed, kubernetes answered"},
		{"web.shop.cluster.local", "NXDOMAIN by kubernetes in zone .: the zone has only names below svc and pod", "web.shop.svc.cluster.local.", "cache passed, hosts passed, kubernetes answered"},
		{"shop.svc.cluster.local", "NODATA by kubernetes in zone .: the name is that of a namespace, which has no records of its own", "", "cache passed, hosts passed, kubernetes answered"},
		{"svc.cluster.local", "NODATA by kubernetes in zone .: svc has no records of its own; the names of Services are below it", "", "cache passed, hosts passed, kubernetes answered"},
		{"cluster.local SOA", "NOERROR by kubernetes in zone .: the name is the zone itself, which has SOA and NS records", "", "cache passed, hosts passed, kubernetes answered"},
		{"10-1-0-1.shop.pod.cluster.local", "NXDOMAIN by kubernetes in zone .: the option pods is disabled, so Pods have no names", "", "cache passed, hosts passed, kubernetes answered"},
		{"10.0.96.10.in-addr.arpa PTR", "NOERROR by kubernetes in zone .: 10.96.0.10 is a ClusterIP of Service shop/web", "", "cache passed, hosts passed, kubernetes answered"},
		{"1.0.1.10.in-addr.arpa PTR", "NOERROR by kubernetes in zone .: 10.1.0.1 is an endpoint of Service data/redis", "", "cache passed, hosts passed, kubernetes answered"},
		{"8.8.8.8.in-addr.arpa PTR", "NODATA by forward in zone ., from ", "", "cache passed, hosts passed, kubernetes passed, forward answered"},
		{"static.example.org", "NOERROR by hosts in zone .: Corefile:9: 192.0.2.7 static.example.org", "", "cache passed, hosts answered"},
		{"www.example.org", "NOERROR by forward in zone ., from ", "", "cache passed, hosts passed, kubernetes passed, forward answered"},
		{"printer.lan", "acl drops the query: no reply is sent", "", "acl dropped"},
		{"printer.lan MX", "NODATA by acl in zone lan.: a line filter for lan., with type MX matches", "", "acl answered"},
		{"printer.lan A 127.0.0.2", "REFUSED by acl in zone lan.: a line block for lan., with net that contains 127.0.0.2 matches", "", "acl answered"},
		{"printer.lan A 10.1.1.1", "NODATA by whoami in zone lan.: every name has the client's address and port in the additional section, and no records of its own", "", "acl passed, whoami answered"},
	} {
		r := ask(t, l, c.query)
		if got := steps(r); got != c.steps {
			t.Errorf("%s: got the steps %q, want %q", c.query, got, c.steps)
		}
		if got := strings.Join(r.Nearest, " "); got != c.nearest {
			t.Errorf("%s: got the nearest names %q, want %q", c.query, got, c.nearest)
		}
		if r.Summary != c.summary && !(strings.HasSuffix(c.summary, "from ") && strings.HasPrefix(r.Summary, c.summary)) {
			t.Errorf("%s: got the summary\n\t%s, want\n\t%s", c.query, r.Summary, c.summary)
		}
	}
}

// Before the objects of a cluster are received, and while a zone has no data, the explanation
// says so.
func TestExplainNotSynced(t *testing.T) {
	c := corefile.ReadText("Corefile", []byte(`. {
    hosts {
        configmap dns/custom hosts
        endpoint http://127.0.0.1:9
        fallthrough none.example
    }
}
cluster.local {
    kubernetes {
        endpoint http://127.0.0.1:9
        startup_timeout 0s
    }
}
copy.example {
    secondary {
        transfer from 127.0.0.1:9
    }
}
`))
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	plan, err := server.NewPlan(c.Servers, server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
		Open: func(_ context.Context, address netip.AddrPort, _ transport.Options) (server.Listener, error) {
			return server.Unconnected(address), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		plan.Stop(ended)
	}()
	for name, want := range map[string]string{
		"web.shop.svc.cluster.local": "SERVFAIL by kubernetes in zone cluster.local.: not synced: namespaces, services, endpointslices have not been listed since the start",
		"www.example.org":            "SERVFAIL by hosts in zone .: not synced: configmap dns/custom hosts has not been read since the start",
		"www.copy.example":           "SERVFAIL by secondary in zone copy.example.: zone copy.example. has no data: no primary has sent the zone, or it has expired",
	} {
		r, err := explain.Explain(t.Context(), plan.Ports(), explain.Query{Name: name})
		// What follows is whether the API server has refused a connection yet.
		if err != nil || !strings.HasPrefix(r.Summary, want) {
			t.Errorf("%s: got %q and error %v, want %q", name, r.Summary, err, want)
		}
	}
}

// The second query for a name is answered by the cache.
func TestExplainCache(t *testing.T) {
	l := start(t, ".:53 {\n cache\n forward . UPSTREAM\n}\n")
	for _, want := range []string{"cache passed, forward answered", "cache answered, forward skipped"} {
		if got := steps(ask(t, l, "www.example.org")); got != want {
			t.Errorf("got the steps %q, want %q", got, want)
		}
	}
}

// A query that no directive answers, and one whose upstream does not reply.
func TestExplainUnanswered(t *testing.T) {
	l := start(t, ".:53 {\n cache\n forward . UPSTREAM {\n  except none.example\n }\n}\ndead.example:53 {\n forward . 127.0.0.1:1\n}\n")
	r := ask(t, l, "www.none.example")
	if got, want := steps(r), "cache passed, forward passed"; got != want || r.RCode != "SERVFAIL" {
		t.Errorf("got the steps %q and %s, want %q and SERVFAIL", got, r.RCode, want)
	}
	if got, want := ask(t, l, "www.dead.example").Summary, "SERVFAIL by forward in zone dead.example., without a reply from 127.0.0.1:1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A block with directives that only observe queries fails them, and an empty block refuses
// them. A running server and the command, which ignores these directives, agree.
func TestExplainOnlyObservers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for name, text := range map[string]string{
		"prometheus": "127.0.0.1:0", "admin": "127.0.0.1:0", "shed": "", "log": "", "errors": "", "dnstap": "/nosuch/socket", "trace": "otlp http://127.0.0.1:1",
		"transfer": "{\n to *\n}", "loop": "",
		"health": "127.0.0.1:0", "ready": "127.0.0.1:0", "pprof": "127.0.0.1:0", "kubedns_status": "127.0.0.1:0", "skydns_metrics": "127.0.0.1:0",
		"reload": "", "handover": filepath.Join(t.TempDir(), "socket"), "capture": "none", "on": "shutdown true", "lameduck": "1s", "multisocket": "1", "debug": "",
		"whoami": "", "": "",
	} {
		text = "example.org:53 {\n " + name + " " + text + "\n}\n"
		q := explain.Query{Name: "www.example.org"}
		want, err := explain.Explain(t.Context(), observedServer(t, text), q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := startIn(t, t.TempDir(), text).Explain(t.Context(), q)
		if err != nil || got.Summary != want.Summary || got.RCode != want.RCode {
			t.Errorf("%s: got %s, %q and error %v, want %s and %q as a running server", name, got.RCode, got.Summary, err, want.RCode, want.Summary)
		}
		switch name {
		case "errors":
			if got.Summary != "SERVFAIL: no directive of the server block has an answer" {
				t.Errorf("%s: got %q", name, got.Summary)
			}
		case "":
			if got.RCode != "REFUSED" || got.Summary != "the server block of example.org. has no directive that handles queries, so the query is refused" {
				t.Errorf("empty: got %s and %q", got.RCode, got.Summary)
			}
		}
	}
}

// observedServer returns the ports of a server with all directives of a Corefile.
func observedServer(t *testing.T, text string) []config.Port {
	t.Helper()
	c := corefile.ReadText("Corefile", []byte(text))
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	plan, err := server.NewPlan(c.Servers, server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
		Open: func(_ context.Context, address netip.AddrPort, _ transport.Options) (server.Listener, error) {
			return server.Unconnected(address), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Start(t.Context(), nil); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	t.Cleanup(func() { plan.Stop(context.Background()) })
	return plan.Ports()
}

// A response code without a name is no missing reply.
func TestExplainUnassignedRCode(t *testing.T) {
	l := start(t, ".:53 {\n template ANY ANY {\n  rcode 13\n }\n}\n")
	r := ask(t, l, "www.example.org")
	if want := "RCODE13 by template in zone .: template ANY ANY (Corefile:2) answers"; r.RCode != "RCODE13" || r.Summary != want {
		t.Errorf("got %s and %q, want RCODE13 and %q", r.RCode, r.Summary, want)
	}
}

// A view is selected by the address of the client.
func TestExplainView(t *testing.T) {
	l := start(t, `.:53 {
    view inside {
        expr incidr(client_ip(), '10.0.0.0/8')
    }
    whoami
}
.:53 {
    acl {
        block
    }
    whoami
}
`)
	for client, want := range map[string]string{"10.1.2.3": "whoami answered inside", "192.0.2.1": "acl answered "} {
		r := ask(t, l, "www.example.org A "+client)
		s := r.Steps[len(r.Steps)-1]
		if got := s.Directive + " " + s.Verdict + " " + s.View; got != want {
			t.Errorf("client %s: got the last step %q, want %q", client, got, want)
		}
	}
}

func TestExplainErrors(t *testing.T) {
	l := start(t, "example.org:53 {\n whoami\n}\n")
	for _, c := range []struct {
		query explain.Query
		want  string
	}{
		{explain.Query{Name: "www.example.org", Type: "NONE-SUCH"}, `want a record type such as SRV or TYPE65, got "NONE-SUCH"`},
		{explain.Query{Name: strings.Repeat("a", 64) + ".org"}, "is no domain name"},
		{explain.Query{Name: "www.example.org", Server: "dns://:54"}, `no such server: "dns://:54"; the servers are dns://:53`},
	} {
		if _, err := l.Explain(t.Context(), c.query); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %q", c.query, err, c.want)
		}
	}
	r, err := l.Explain(t.Context(), explain.Query{Name: "example.com"})
	if want := "no server block has a zone that the name is in, so the query is refused"; err != nil || r.Summary != want || r.RCode != "REFUSED" {
		t.Errorf("example.com: got %q, %s and error %v, want %q and REFUSED", r.Summary, r.RCode, err, want)
	}
}

// Names come from clients: no control character reaches a terminal.
func TestWriteControlCharacters(t *testing.T) {
	l := start(t, ".:53 {\n whoami\n}\n")
	r, err := l.Explain(t.Context(), explain.Query{Name: "a\x1b[2J\u202e.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	r.Summary += "\x1b[31m\r"
	var b strings.Builder
	explain.Write(&b, r)
	if strings.ContainsAny(b.String(), "\x1b\r\u202e") {
		t.Errorf("got %q, want no control characters", b.String())
	}
}
