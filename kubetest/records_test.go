package kubetest

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/kubetest/control"
	"github.com/seamark/seamark/kubetest/externaldns"
	"github.com/seamark/seamark/test/chaintest"
)

// recordsOf returns a server block with records of objects, and more options.
func recordsOf(options ...string) string {
	return "example.test {\n records {\n  objects {\n   delegate team-a a.example.test shared.example.test\n" +
		"   delegate team-b b.example.test shared.example.test\n   " + strings.Join(options, "\n   ") + "\n  }\n }\n}\n"
}

// recordsMap returns a ConfigMap with the label of records, and these hosts lines.
func recordsMap(name, lines string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seamark.io/dns": "records"}},
		Data:       map[string]string{"hosts": lines},
	}
}

func endpointOf(name string, endpoints ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"endpoints": endpoints}}}
}

func endpointA(name string, targets ...any) any {
	return map[string]any{"dnsName": name, "recordType": "A", "targets": targets}
}

// asSeamark returns the option kubeconfig with the service account of Seamark.
func asSeamark(t *testing.T, srv *Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := must(clientcmd.LoadFromFile(must(srv.Kubeconfig())(t)))(t)
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: control.Token(control.Seamark, control.APIAudience)}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return "kubeconfig " + file
}

// Records of ConfigMaps and DNSEndpoints appear, change and end, also when the definition of
// DNSEndpoint comes late and goes; and stay while the API server is away, and over a reload.
func TestRecordsObjects(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	for _, name := range []string{"team-a", "team-b"} {
		add(t, w.CoreV1().Namespaces(), namespace(name))
	}
	mapsA, mapsB := w.CoreV1().ConfigMaps("team-a"), w.CoreV1().ConfigMaps("team-b")
	add(t, mapsA, recordsMap("names", "10.0.0.1 web.a.example.test x.shared.example.test"))
	plain := recordsMap("plain", "10.0.0.9 plain.a.example.test")
	plain.Labels = nil
	add(t, mapsA, plain)

	corefile := recordsOf("configmaps", "dnsendpoints", kubeconfig(t, srv))
	d := serve(t, corefile)
	web := lookupA("web.a.example.test", "NOERROR 10.0.0.1")
	shared := lookupA("x.shared.example.test", "NOERROR 10.0.0.1")
	d.await(web, shared, lookupA("plain.a.example.test", "SERVFAIL"))
	load := d.startLoad(web)

	// Another tenant gets none of the first one's names.
	add(t, mapsB, recordsMap("thief", "10.6.6.6 own.b.example.test x.shared.example.test web.a.example.test"))
	d.await(lookupA("own.b.example.test", "NOERROR 10.6.6.6"))
	d.check(web, shared)
	chaintest.Eventually(t, "the error of the thief", func() bool {
		return d.logs("Object with an error", "namespace=team-b name=thief", "web.a.example.test. is in a.example.test., which is not delegated to namespace team-b") > 0
	})

	// The definition comes late.
	if err := srv.Define(t.Context(), must(externaldns.CRD())(t)); err != nil {
		t.Fatal(err)
	}
	config := srv.Config()
	custom := must(dynamic.NewForConfigAndClient(config, httpClient(t, config)))(t)
	endpoints := custom.Resource(schema.GroupVersionResource{Group: "externaldns.k8s.io", Version: "v1alpha1", Resource: "dnsendpoints"})
	must(endpoints.Namespace("team-b").Create(t.Context(), endpointOf("app", endpointA("app.b.example.test", "10.1.0.1", "10.1.0.2")), metav1.CreateOptions{}))(t)
	app := lookupA("app.b.example.test", "NOERROR 10.1.0.1 10.1.0.2")
	d.await(app)

	// Changes are served by the watch, without another list.
	lists := d.count("relists", "configmaps")
	edit(t, mapsA, "names", func(m *corev1.ConfigMap) {
		m.Data["hosts"] = "10.0.0.1 web.a.example.test\n10.0.0.3 new.a.example.test"
	})
	d.await(lookupA("new.a.example.test", "NOERROR 10.0.0.3"), lookupA("x.shared.example.test", "NOERROR 10.6.6.6"))
	edit(t, mapsA, "names", func(m *corev1.ConfigMap) { m.Data["hosts"] += "\n10.0.0.4 a..b" })
	edit(t, mapsB, "thief", func(m *corev1.ConfigMap) { m.Data["hosts"] = "10.0.0.5 b.b.example.test" })
	d.await(lookupA("b.b.example.test", "NOERROR 10.0.0.5"), lookupA("x.shared.example.test", "SERVFAIL"))
	d.check(lookupA("new.a.example.test", "NOERROR 10.0.0.3"))
	if n := d.count("relists", "configmaps"); n != lists {
		t.Errorf("%d lists of ConfigMaps, want %d", n, lists)
	}

	// Without an API server the last state is kept, also over a reload.
	srv.StopAPI()
	d.awaitFailures("configmaps", 2)
	d.check(web, app)
	d.reload(corefile + "more.test {\n whoami\n}\n")
	d.check(web, app)
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Without the definition there are no DNSEndpoints.
	definitions := custom.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := definitions.Delete(t.Context(), "dnsendpoints.externaldns.k8s.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.await(lookupA("app.b.example.test", "SERVFAIL"))
	load.stop()
	remove(t, mapsA, "names")
	d.await(lookupA("web.a.example.test", "SERVFAIL"))
}

// The Role of the documentation is what a server needs, and its Events reach the objects.
func TestRecordsRole(t *testing.T) {
	t.Parallel()
	srv := start(t)
	k := client(t, srv.Config())
	add(t, k.CoreV1().Namespaces(), namespace("team-a"))
	add(t, k.CoreV1().ConfigMaps("team-a"), recordsMap("names", "10.0.0.1 web.a.example.test\nx y"))
	if err := srv.Define(t.Context(), must(externaldns.CRD())(t)); err != nil {
		t.Fatal(err)
	}

	options := []string{"configmaps", "dnsendpoints", asSeamark(t, srv)}
	d := serve(t, strings.Replace(recordsOf(options...), "   delegate team-b b.example.test shared.example.test\n", "", 1))
	chaintest.Eventually(t, "the log of the missing permission", func() bool {
		return d.logs("forbidden", "configmaps") > 0 && d.logs("forbidden", "dnsendpoints") > 0
	})
	d.check(lookupA("web.a.example.test", "SERVFAIL"))

	page := string(must(os.ReadFile("../docs/reference/directives/records.md"))(t))
	text := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```").FindStringSubmatch(page)
	role := decode[rbacv1.Role](t, must(yaml.YAMLToJSON([]byte(text[1])))(t))
	must(k.RbacV1().Roles("team-a").Create(t.Context(), role, metav1.CreateOptions{}))(t)
	must(k.RbacV1().RoleBindings("team-a").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "records"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "seamark"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}, metav1.CreateOptions{}))(t)

	d.await(lookupA("web.a.example.test", "NOERROR 10.0.0.1"))
	chaintest.Eventually(t, "an Event of the object", func() bool {
		events, err := k.CoreV1().Events("team-a").List(context.Background(), metav1.ListOptions{})
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ConfigMap" && e.InvolvedObject.Name == "names" && e.InvolvedObject.UID != "" &&
				e.Type == corev1.EventTypeWarning && e.Message == `hosts:2: "x" is not an IP address` {
				return err == nil
			}
		}
		return false
	})
}
