package kubetest

import (
	"log/slog"
	equality "reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/kubetest/externaldns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

// A recordWriter changes the objects with records of a server.
type recordWriter struct {
	clusterWriter
	srv         *Server
	definition  []byte // of DNSEndpoint, from ExternalDNS's module
	definitions dynamic.NamespaceableResourceInterface
	endpoints   dynamic.NamespaceableResourceInterface
}

func newRecordWriter(t *testing.T, srv *Server) recordWriter {
	t.Helper()
	config := srv.Config()
	d := must(dynamic.NewForConfigAndClient(config, httpClient(t, config)))(t)
	return recordWriter{
		writer(t, srv), srv, must(externaldns.CRD())(t),
		d.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}),
		d.Resource(schema.GroupVersionResource{Group: "externaldns.k8s.io", Version: "v1alpha1", Resource: "dnsendpoints"}),
	}
}

func (w recordWriter) define() {
	w.Helper()
	if err := w.srv.Define(w.Context(), w.definition); err != nil {
		w.Fatal(err)
	}
}

// undefine returns when the definition is gone: the API server deletes its objects before.
func (w recordWriter) undefine() {
	w.Helper()
	const name = "dnsendpoints.externaldns.k8s.io"
	if err := w.definitions.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	chaintest.Eventually(w.T, "no definition", func() bool {
		_, err := w.definitions.Get(w.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (w recordWriter) endpoint(namespace, name string, records ...any) *unstructured.Unstructured {
	w.Helper()
	return must(w.endpoints.Namespace(namespace).Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"endpoints": records},
	}}, metav1.CreateOptions{}))(w.T)
}

func (w recordWriter) configMap(namespace, name, label string) *corev1.ConfigMap {
	w.Helper()
	return must(w.CoreV1().ConfigMaps(namespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"dns": label}},
		Data:       map[string]string{"hosts": "10.0.0.1 a\n"}, BinaryData: map[string][]byte{"zone": {0xFF}},
	}, metav1.CreateOptions{}))(w.T)
}

// ConfigMaps with labels and DNSEndpoints are followed as they are created, changed and deleted, in the
// cluster or in some of its namespaces.
func TestClusterRecords(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := newRecordWriter(t, srv)
	w.define()
	created := w.configMap("shop", "names", "yes")
	w.configMap("shop", "other", "no")
	w.configMap("bank", "names", "yes")
	web := w.endpoint("shop", "web", map[string]any{
		"dnsName": "web.example.com", "recordType": "A", "recordTTL": int64(60), "targets": []any{"10.0.0.1", "10.0.0.2"}, "setIdentifier": "east"})
	w.endpoint("bank", "web")

	o := endpoint(srv)
	o.ConfigMapLabels, o.DNSEndpoints = "dns=yes", true
	all := follow(t, o)
	o.Namespaces = "other,shop"
	some := follow(t, o)
	all.has(t, cluster.ConfigMaps, "bank/names shop/names")
	all.has(t, cluster.DNSEndpoints, "bank/web shop/web")
	some.has(t, cluster.ConfigMaps, "shop/names")
	some.has(t, cluster.DNSEndpoints, "shop/web")

	for _, f := range []*follower{all, some} {
		f.synced(t, o)
		wantMap := &cluster.ConfigMap{Namespace: "shop", Name: "names", Created: created.CreationTimestamp.Unix(), Data: map[string]string{"hosts": "10.0.0.1 a\n", "zone": "\xff"}}
		if got := f.get(cluster.ConfigMaps, "shop", "names"); !equality.DeepEqual(got, wantMap) {
			t.Errorf("got %+v, want %+v", got, wantMap)
		}
		wantEndpoint := &cluster.DNSEndpoint{Namespace: "shop", Name: "web", Created: web.GetCreationTimestamp().Unix(), Endpoints: []cluster.EndpointRecords{
			{Name: "web.example.com", Type: "A", Set: "east", TTL: 60, Targets: []string{"10.0.0.1", "10.0.0.2"}}}}
		if got := f.get(cluster.DNSEndpoints, "shop", "web"); !equality.DeepEqual(got, wantEndpoint) {
			t.Errorf("got %+v, want %+v", got, wantEndpoint)
		}
	}

	// A change of labels adds and deletes.
	maps := w.CoreV1().ConfigMaps("shop")
	created.Labels["dns"] = "no"
	created = must(maps.Update(t.Context(), created, metav1.UpdateOptions{}))(t)
	all.has(t, cluster.ConfigMaps, "bank/names")
	some.has(t, cluster.ConfigMaps, "")
	created.Labels["dns"] = "yes"
	must(maps.Update(t.Context(), created, metav1.UpdateOptions{}))(t)
	some.has(t, cluster.ConfigMaps, "shop/names")

	if err := unstructured.SetNestedSlice(web.Object, []any{}, "spec", "endpoints"); err != nil {
		t.Fatal(err)
	}
	must(w.endpoints.Namespace("shop").Update(t.Context(), web, metav1.UpdateOptions{}))(t)
	chaintest.Eventually(t, "a DNSEndpoint without records", func() bool {
		return len(some.get(cluster.DNSEndpoints, "shop", "web").(*cluster.DNSEndpoint).Endpoints) == 0
	})
	if err := w.endpoints.Namespace("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	some.has(t, cluster.DNSEndpoints, "")
	all.has(t, cluster.DNSEndpoints, "bank/web")
	if all.logs("") > 0 || some.logs("") > 0 {
		t.Errorf("got log\n%s%s\nwant none", all.log(), some.log())
	}
}

// A definition that is installed after the start is found, its removal deletes the objects, also while
// the API server was away, and its return brings new ones.
func TestClusterRecordsDefinition(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := newRecordWriter(t, srv)
	w.configMap("shop", "names", "yes")
	o := endpoint(srv)
	o.ConfigMapLabels, o.DNSEndpoints = "dns=yes", true
	f := follow(t, o)
	f.synced(t, o)
	f.has(t, cluster.ConfigMaps, "shop/names")
	chaintest.Eventually(t, "a log line", func() bool {
		return f.logs("Resource not defined in the API server, retrying", "kind=DNSEndpoint") > 0
	})

	w.define()
	w.endpoint("shop", "web")
	f.has(t, cluster.DNSEndpoints, "shop/web")
	w.undefine()
	f.has(t, cluster.DNSEndpoints, "")

	w.define()
	w.endpoint("shop", "again")
	f.has(t, cluster.DNSEndpoints, "shop/again")

	// The follower does not see the removal, only that there is no definition.
	proxy := must(NewProxy(srv))(t)
	t.Cleanup(proxy.Close)
	late := follow(t, cluster.Options{Endpoint: proxy.URL(), DNSEndpoints: true})
	late.has(t, cluster.DNSEndpoints, "shop/again")
	proxy.Set(Faults{Forbidden: []string{"dnsendpoints"}})
	proxy.Cut()
	chaintest.Eventually(t, "a log line with the rule", func() bool {
		return late.logs("List or watch forbidden", `rule="{apiGroups: [\"externaldns.k8s.io\"], resources: [dnsendpoints], verbs: [list, watch]}"`) > 0
	})
	late.has(t, cluster.DNSEndpoints, "shop/again")
	w.undefine()
	f.has(t, cluster.DNSEndpoints, "")
	proxy.Set(Faults{})
	late.has(t, cluster.DNSEndpoints, "")
	f.has(t, cluster.ConfigMaps, "shop/names")
}

// An API server accepts the Events of a Recorder, and refuses the second of two equal ones.
func TestClusterRecorder(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := newRecordWriter(t, srv)
	w.define()
	names := w.configMap("shop", "names", "yes")
	web := w.endpoint("bank", "web")
	o := endpoint(srv)
	o.ConfigMapLabels, o.DNSEndpoints = "dns=yes", true
	log := new(follower)
	var regs [2]metrics.Registry
	for i := range regs {
		r := sources.NewRecorder(o, slog.New(slog.NewTextHandler(log, nil)), &regs[i], nil)
		defer r.Close()
		r.Warn(cluster.ConfigMaps, cluster.Key{Namespace: "shop", Name: "names"}, "", "Invalid", "line 3")
		r.Warn(cluster.DNSEndpoints, cluster.Key{Namespace: "bank", Name: "web"}, "", "NameTaken", strings.Repeat("é", 2000))
		r.Warn(cluster.DNSEndpoints, cluster.Key{Namespace: "bank", Name: "none"}, "", "NameTaken", "no object")
		count := func(result string) uint64 {
			return regs[i].Counter("seamark_kubernetes_object_events_total", "", "result", result).Value()
		}
		result := []string{"written", "existing"}[i]
		chaintest.Eventually(t, "two Events and one without an object", func() bool { return count(result) == 2 && count("dropped") == 1 })
	}

	for _, c := range []struct {
		of      metav1.Object
		version string
		kind    string
		reason  string
	}{{names, "v1", "ConfigMap", "Invalid"}, {web, "externaldns.k8s.io/v1alpha1", "DNSEndpoint", "NameTaken"}} {
		list := must(w.CoreV1().Events(c.of.GetNamespace()).List(t.Context(), metav1.ListOptions{}))(t)
		if len(list.Items) != 1 {
			t.Fatalf("%s: got %d Events, want 1", c.kind, len(list.Items))
		}
		e := list.Items[0]
		want := corev1.ObjectReference{
			APIVersion: c.version, Kind: c.kind, Namespace: c.of.GetNamespace(), Name: c.of.GetName(),
			UID: c.of.GetUID(), ResourceVersion: c.of.GetResourceVersion(),
		}
		if e.InvolvedObject != want || e.Type != corev1.EventTypeWarning || e.Reason != c.reason || e.Count != 1 || e.Source.Component != "seamark" ||
			e.FirstTimestamp.IsZero() || len(e.Message) > 1024 {
			t.Errorf("got the Event %+v, want one about %+v", e, want)
		}
	}
	if log.log() != "" {
		t.Errorf("got log %s, want none", log.log())
	}
}
