package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// plan sets up the kubernetes directives of a Corefile with one block.
func plan(text string) (*config.Block, error) {
	return chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "kubernetes", Setup: Setup})
}

// CoreDNS accepts these, too.
func TestSetupAccepts(t *testing.T) {
	for _, directive := range []string{
		"kubernetes cluster.local {\n multicluster\n}",
		"kubernetes cluster.local clusterset.local {\n multicluster\n}",
		"kubernetes cluster.local {\n ignore empty_service always\n}",
	} {
		if _, err := plan(".:53 {\n" + directive + "\n}"); err != nil {
			t.Errorf("%s: got error %v, want none", directive, err)
		}
	}
}

func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ directive, want string }{
		{"kubernetes a..b 10.0.0.0/33 cluster.local", `Corefile:2: kubernetes: not a zone: "a..b": empty label` + "\n" +
			`Corefile:2: kubernetes: "10.0.0.0/33" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`},
		{"kubernetes in-addr.arpa 10.96.0.0/12", `Corefile:2: kubernetes: want at least one zone that is not a reverse zone, such as cluster.local`},
		{"kubernetes " + strings.Repeat("z.", 123), `Corefile:2: kubernetes: ` + strings.Repeat("z.", 123) + ` is too long for a zone: the name of its hostmaster would have more than 255 bytes`},
		{"kubernetes cluster.local\nkubernetes other.local", `Corefile:3: kubernetes: already given at Corefile:2, and can be given once in a server block`},
		{"kubernetes {\n resync 5m\n}", `Corefile:3: kubernetes: unknown option "resync"`},
		{"kubernetes {\n ttll 5\n pod insecure\n}", `Corefile:3: kubernetes: unknown option "ttll"; did you mean "ttl"?` + "\n" +
			`Corefile:4: kubernetes: unknown option "pod"; did you mean "pods"?`},
		{"kubernetes {\n endpoint\n}", `Corefile:3: kubernetes: endpoint: got no arguments, usage: endpoint URL...`},
		{"kubernetes {\n namespaces a {$SEAMARK_NONE}\n}", `Corefile:3: kubernetes: namespaces: want a value, got ""; environment variable SEAMARK_NONE is not set`},
		{"kubernetes {\n namespace_labels \"\"\n}", `Corefile:3: kubernetes: namespace_labels: want a value, got ""`},
		{"kubernetes {\n labels {$SEAMARK_NONE}\n}", `Corefile:3: kubernetes: labels: want a value, got ""; environment variable SEAMARK_NONE is not set`},
		{"kubernetes {\n endpoint {$SEAMARK_NONE}\n}", `Corefile:3: kubernetes: endpoint: want a value, got ""; environment variable SEAMARK_NONE is not set`},
		{"kubernetes {\n endpoint 10.0.0.1:6443\n}", `Corefile:2: kubernetes: endpoint: want a URL such as https://10.0.0.1:6443, got "10.0.0.1:6443"`},
		{"kubernetes {\n endpoint https://a\n tls cert key\n}", `Corefile:4: kubernetes: tls: got 2 arguments, usage: tls CERT KEY CA`},
		{"kubernetes {\n tls cert key ca\n}", `Corefile:2: kubernetes: tls: is for an endpoint, and none is given`},
		{"kubernetes {\n kubeconfig a b c\n}", `Corefile:3: kubernetes: kubeconfig: got 3 arguments, usage: kubeconfig FILE [CONTEXT]`},
		{"kubernetes {\n manifests\n}", `Corefile:3: kubernetes: manifests: got no arguments, usage: manifests DIR`},
		{"kubernetes {\n manifests \"\"\n}", `Corefile:3: kubernetes: manifests: want a value, got ""`},
		{"kubernetes {\n manifests dir\n kubeconfig file\n}", `Corefile:2: kubernetes: manifests: a folder takes the place of an API server, so endpoint and kubeconfig do not go with it`},
		{"kubernetes {\n namespaces\n}", `Corefile:3: kubernetes: namespaces: got no arguments, usage: namespaces NAMESPACE...`},
		{"kubernetes {\n namespaces a.b\n}", `Corefile:2: kubernetes: namespaces: "a.b" cannot be the name of a namespace`},
		{"kubernetes {\n namespaces shop\n namespace_labels a=b\n endpoint x\n}", `Corefile:2: kubernetes: endpoint: want a URL such as https://10.0.0.1:6443, got "x"` + "\n" +
			`Corefile:2: kubernetes: namespaces and namespace_labels exclude each other`},
		{"kubernetes {\n labels\n}", `Corefile:3: kubernetes: labels: got no arguments, usage: labels EXPRESSION...`},
		{"kubernetes {\n pods always\n}", `Corefile:3: kubernetes: pods: want disabled or insecure or verified, got "always"`},
		{"kubernetes {\n pods verifed\n}", `Corefile:3: kubernetes: pods: want disabled or insecure or verified, got "verifed"; did you mean "verified"?`},
		{"kubernetes {\n endpoint_pod_names yes\n}", `Corefile:3: kubernetes: endpoint_pod_names: want no argument, got 1`},
		{"kubernetes {\n ttl x\n}", `Corefile:3: kubernetes: ttl: want 0..3600, got "x"`},
		{"kubernetes {\n ttl 3601\n}", `Corefile:3: kubernetes: ttl: want 0..3600, got "3601"`},
		{"kubernetes {\n ttl -1\n}", `Corefile:3: kubernetes: ttl: want 0..3600, got "-1"`},
		{"kubernetes {\n ttl\n}", `Corefile:3: kubernetes: ttl: got no arguments, usage: ttl SECONDS`},
		{"kubernetes {\n noendpoints all\n}", `Corefile:3: kubernetes: noendpoints: want no argument, got 1`},
		{"kubernetes {\n noendpoints\n zonal\n}", `Corefile:2: kubernetes: zonal: needs the endpoints that noendpoints leaves out`},
		{"kubernetes {\n fallthrough a..b\n}", `Corefile:3: kubernetes: fallthrough: not a zone: "a..b": empty label`},
		{"kubernetes {\n ignore\n}", `Corefile:3: kubernetes: ignore: got no arguments, usage: ignore empty_service [WORDS...]`},
		{"kubernetes {\n ignore everything\n}", `Corefile:3: kubernetes: ignore: want empty_service, got "everything"`},
		{"kubernetes cluster.local {\n multicluster clusterset.local\n ttl x\n}", `Corefile:2: kubernetes: multicluster: clusterset.local. is not among the directive's zones` + "\n" +
			`Corefile:4: kubernetes: ttl: want 0..3600, got "x"`},
		{"kubernetes {\n zonal zone-a\n}", `Corefile:3: kubernetes: zonal: want prefer, got "zone-a"`},
		{"kubernetes {\n compatible\n}", `Corefile:3: kubernetes: compatible: got no arguments, usage: compatible kube-dns`},
		{"kubernetes {\n compatible kubedns\n wildcards any\n}", `Corefile:3: kubernetes: compatible: want kube-dns, got "kubedns"; did you mean "kube-dns"?` + "\n" +
			`Corefile:4: kubernetes: wildcards: want no argument, got 1`},
		{"kubernetes {\n startup_timeout 5\n}", `Corefile:3: kubernetes: startup_timeout: want a duration of 0s..1h, got "5"`},
		{"kubernetes {\n apiserver_qps -1\n}", `Corefile:3: kubernetes: apiserver_qps: want 0..1e+06, got "-1"`},
		{"kubernetes {\n apiserver_burst x\n}", `Corefile:3: kubernetes: apiserver_burst: want 0..1000000, got "x"`},
		{"kubernetes {\n apiserver_max_inflight 1 2\n}", `Corefile:3: kubernetes: apiserver_max_inflight: got 2 arguments, usage: apiserver_max_inflight N`},
	} {
		_, err := plan(".:53 {\n" + c.directive + "\n}\n")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directive, err, c.want)
		}
	}
}

func TestSetupSelectors(t *testing.T) {
	for _, option := range []string{"namespace_labels", "labels"} {
		_, err := plan(".:53 {\nkubernetes {\n " + option + " a in (b\n}\n}\n")
		if err == nil || !strings.HasPrefix(err.Error(), "Corefile:2: kubernetes: "+option+": ") {
			t.Errorf("%s a in (b: got error %v, want one at Corefile:2", option, err)
		}
	}
}

// Every option of CoreDNS is accepted in its spelling.
func TestSetupOptions(t *testing.T) {
	const text = `.:53 {
		kubernetes Cluster.Local in-addr.arpa 10.96.0.0/13 clusterset.local {
			endpoint http://localhost:8001 http://ignored:8001
			tls cert key ca
			kubeconfig /etc/kube/config admin
			namespaces shop kube-system
			namespaces shop
			labels app in (web, api), tier
			pods verified
			endpoint_pod_names
			ttl 30
			fallthrough in-addr.arpa ip6.arpa
			ignore empty_service
			multicluster clusterset.local
			zonal
			compatible kube-dns
			wildcards
			startup_timeout 500ms
			apiserver_qps 12.5
			apiserver_burst 20
			apiserver_max_inflight 3
		}
	}`
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan(text)
	if err != nil {
		t.Fatal(err)
	}
	hs := config.Find[*Handler](b)
	if len(hs) != 1 {
		t.Fatalf("got %d handlers, want 1", len(hs))
	}
	h := hs[0]
	var zones []string
	for _, z := range h.zones {
		zones = append(zones, fmt.Sprintf("%s %v %v", z.name, z.reverse, z.multicluster))
	}
	want := "[96.10.in-addr.arpa. true false"
	for i := range 7 {
		want += fmt.Sprintf(" %d.10.in-addr.arpa. true false", 97+i)
	}
	want += " cluster.local. false false in-addr.arpa. true false clusterset.local. false true]"
	if fmt.Sprint(zones) != want {
		t.Errorf("zones %v\nwant  %s", zones, want)
	}
	want = "cluster.local. 30 2 true true true {true [in-addr.arpa. ip6.arpa.]}"
	if got := fmt.Sprintf("%s %d %d %v %v %v %v", h.primary, h.ttl, h.podMode, h.zonal, h.kubeDNS, h.wildcards, h.fallThrough); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	o := options{}
	if err := o.read(b, servers[0].Directives[0], nil, new(Handler)); err != nil {
		t.Fatal(err)
	}
	if want := (cluster.Options{
		Endpoint: "http://localhost:8001", Cert: "cert", Key: "key", CA: "ca", Kubeconfig: "/etc/kube/config", KubeconfigContext: "admin",
		Namespaces: "kube-system,shop", Labels: "app in (web, api), tier", Pods: true, PodNames: true, Zones: true, QPS: 12.5, Burst: 20, MaxInflight: 3,
	}); o.Options != want {
		t.Errorf("got  %+v\nwant %+v", o.Options, want)
	}
	if o.startupTimeout != 500*time.Millisecond || !o.ignoreEmpty {
		t.Errorf("got startup_timeout %v, ignore empty_service %v, want 500ms and true", o.startupTimeout, o.ignoreEmpty)
	}
}

// Without options the directive serves the block's zones with a TTL of five seconds.
func TestSetupDefaults(t *testing.T) {
	b, err := plan(".:53 {\nkubernetes\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	h := config.Find[*Handler](b)[0]
	if h.ttl != 5 || h.podMode != podsDisabled || h.fallThrough.On || h.kubeDNS || h.wildcards || h.primary != wire.Root || len(h.zones) != 1 {
		t.Errorf("handler without options: got %+v, want the defaults", h)
	}
}

// A reload with the same options keeps the index. With other options it makes a new one and
// stops the old one.
func TestReloadKeepsIndex(t *testing.T) {
	dir := t.TempDir()
	manifest := "apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop}\nspec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "api.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var last *config.Start
	begin := func(options string) *Handler {
		t.Helper()
		b, err := plan(".:53 {\nkubernetes cluster.local {\nmanifests " + dir + "\n" + options + "\n}\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		next := config.NewStart(context.Background(), last)
		if err := b.Started(next); err != nil {
			t.Fatal(err)
		}
		next.Commit()
		last = next
		return config.Find[*Handler](b)[0]
	}
	first := begin("pods insecure")
	<-first.index.SyncedChannel()
	if !first.Ready() {
		t.Error("after the lists: got Ready() = false, want true")
	}
	d := defaultOptions()
	d.zones = d.zones[:1]
	serve(t, d, first).check(t, "api.shop.svc.cluster.local.", "A", "NOERROR aa\napi.shop.svc.cluster.local. 5 IN A 10.96.0.7")
	second := begin("fallthrough")
	if second.index != first.index {
		t.Error("reload with the same options of the index: got a new index, want the old one")
	}
	third := begin("ttl 60")
	if third.index == first.index {
		t.Error("reload with another TTL: got the old index, want a new one")
	}
	if !third.Ready() {
		t.Error("after the reload: got Ready() = false, want true")
	}
	serve(t, d, third).check(t, "api.shop.svc.cluster.local.", "A", "NOERROR aa\napi.shop.svc.cluster.local. 60 IN A 10.96.0.7")
	last.Stop()
}
