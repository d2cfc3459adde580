package kubetest

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seamark/seamark/test/dnstest"
)

var coredns = flag.String("coredns", "", "the path of CoreDNS's program, which runs in Seamark's place in the tests that are true of it, too")

// serveEither runs Seamark, or CoreDNS if -coredns names its program, until the test ends.
func serveEither(t *testing.T, text string) *daemon {
	t.Helper()
	if *coredns == "" {
		return serve(t, text)
	}

	d := &daemon{T: t, ready: freeAddress(t)}
	at := must(dnstest.ServeCoreDNS(t, *coredns, strings.ReplaceAll(text, "$READY", d.ready), &d.journal))(t)
	d.at = at.String()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("CoreDNS's log:\n%s", d.log())
		}
	})
	return d
}

// An API server may serve one version of ServiceImport. Seamark reads either; CoreDNS reads v1alpha1, and
// without it answers SERVFAIL for names of the clusterset.
func TestServiceImportVersions(t *testing.T) {
	t.Parallel()
	srv := start(t)
	client := must(dynamic.NewForConfigAndClient(srv.Config(), httpClient(t, srv.Config())))(t)
	w := writer(t, srv)
	w.shop()
	imports := client.Resource(schema.GroupVersionResource{
		Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "serviceimports"}).Namespace("shop")
	must(imports.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
		"metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"type": "ClusterSetIP", "ips": []any{"10.112.0.1"},
			"ports": []any{map[string]any{"name": "http", "protocol": "TCP", "port": int64(80)}},
		},
	}}, metav1.CreateOptions{}))(t)

	for _, c := range []struct {
		name, absent string
		ofCoreDNS    bool // it reads the version that is served
	}{
		{"v1alpha1 alone", "multicluster.x-k8s.io/v1beta1", true},
		{"v1beta1 alone", "multicluster.x-k8s.io/v1alpha1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := must(NewProxy(srv))(t)
			t.Cleanup(p.Close)
			p.Set(Faults{Absent: []string{c.absent}})
			d := serveEither(t, ". {\n kubernetes cluster.local clusterset.local {\n  kubeconfig "+must(p.Kubeconfig())(t)+
				"\n  multicluster clusterset.local\n }\n}\n")

			if *coredns != "" && !c.ofCoreDNS {
				d.check(lookupA("web.shop.svc.clusterset.local", "SERVFAIL"), lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"))
				return
			}
			d.await(
				lookupA("web.shop.svc.clusterset.local", "NOERROR 10.112.0.1"),
				lookupSRV("_http._tcp.web.shop.svc.clusterset.local", "NOERROR 0 100 80 web.shop.svc.clusterset.local."),
				lookupA("db.shop.svc.clusterset.local", "NXDOMAIN"),
				lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"),
			)
		})
	}
}

// kubeconfig FILE uses the current context of the file, and kubeconfig FILE CONTEXT that one: its server
// with its CA.
func TestKubeconfigContexts(t *testing.T) {
	t.Parallel()
	srv := start(t)
	writer(t, srv).shop()
	config := must(clientcmd.LoadFromFile(must(srv.Kubeconfig())(t)))(t)
	right := config.CurrentContext
	config.Clusters["away"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["away"] = &clientcmdapi.Context{Cluster: "away", AuthInfo: config.Contexts[right].AuthInfo}

	for _, c := range []struct{ name, current, argument string }{
		{"the current one", right, ""},
		{"another one", "away", " " + right},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			config.CurrentContext = c.current
			if err := clientcmd.WriteToFile(*config, file); err != nil {
				t.Fatal(err)
			}
			d := serveEither(t, ". {\n kubernetes cluster.local {\n  kubeconfig "+file+c.argument+"\n }\n}\n")
			d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"))
		})
	}
}
