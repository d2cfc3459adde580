package apiserver

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
)

// Metadata sent alone have their own type, which no other resource accepts.
func TestNodeMetadataAlone(t *testing.T) {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "4", Labels: map[string]string{
		corev1.LabelTopologyZone: "a", corev1.LabelTopologyRegion: "r",
	}}}
	is := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	raw, err := partial.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for form, data := range map[string][]byte{
		"protobuf": wrapped(t, raw, is),
		"JSON": []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"n1","resourceVersion":"4",` +
			`"labels":{"topology.kubernetes.io/zone":"a","topology.kubernetes.io/region":"r"}}}`),
	} {
		got := decoded(t, codecFor(cluster.Options{Nodes: true}, cluster.Nodes, t.Errorf), data)
		if n := got.Slim.(*cluster.Node); *n != (cluster.Node{Name: "n1", Zone: "a", Region: "r", OwnZone: "a"}) || got.Version != "4" {
			t.Errorf("%s: got %+v, want Node n1 in zone a and region r, of version 4", form, got)
		}
		if _, _, err := codecFor(cluster.Options{}, cluster.Services, t.Errorf).Decode(data, nil, nil); err == nil {
			t.Errorf("%s: decoding metadata as a Service: got no error, want one", form)
		}
	}
}

// Only Nodes are requested, and only their metadata if the API server supports
// that.
func TestLiveNodes(t *testing.T) {
	for _, old := range []bool{false, true} {
		a := serve(t, &fakeServer{old: old, objects: map[string]string{"nodes": `{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}`}})
		f, stop := watchCluster(t, cluster.Options{Endpoint: a.URL, Nodes: true, Namespaces: "shop,other"})
		f.waitForCall(t, "listed nodes n1 n2")
		stop()
		for _, r := range a.received() {
			if r.URL.Path != "/api/v1/nodes" || r.URL.Query().Get("fieldSelector")+r.URL.Query().Get("labelSelector") != "" {
				t.Errorf("got request %s, want only Nodes, without selectors", r.URL)
			}
			as := ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
			if !r.URL.Query().Has("watch") {
				as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"
			}
			want := "application/vnd.kubernetes.protobuf" + as + "application/json" + as + "application/vnd.kubernetes.protobuf,application/json"
			if got := strings.Join(r.Header["Accept"], ","); !strings.HasPrefix(got, want) {
				t.Errorf("%s: got Accept %s, want the prefix %s", r.URL, got, want)
			}
		}
	}
}

// The Pods of a node are listed without a streaming list, which would cost the API server as
// much as all Pods. The other resources are streamed.
func TestNodePodsList(t *testing.T) {
	a := serve(t, &fakeServer{objects: map[string]string{"pods": `{"metadata":{"namespace":"shop","name":"p1"},"spec":{"nodeName":"n1"},"status":{"podIP":"10.0.0.1"}}`}})
	f, stop := watchCluster(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true, Pods: true, NodeName: "n1"})
	f.waitForCall(t, "listed pods shop/p1")
	f.waitForCall(t, "listed services ")
	stop()
	for _, r := range a.received() {
		q := r.URL.Query()
		pods := strings.HasSuffix(r.URL.Path, "/pods")
		if streamed := q.Has("sendInitialEvents"); streamed == pods {
			t.Errorf("%s: streaming list %v, want %v", r.URL, streamed, !pods)
		}
		if pods && !strings.HasPrefix(q.Get("fieldSelector"), "spec.nodeName=n1,") {
			t.Errorf("got request %s, want only the Pods of n1", r.URL)
		}
	}
}

func TestLiveNodesForbidden(t *testing.T) {
	a := serve(t, &fakeServer{refuse: func(*http.Request) int { return http.StatusForbidden }})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, Nodes: true})
	f.waitForLog(t, `"List or watch forbidden, grant both to the service account" kind=Node verb=list`)
}
