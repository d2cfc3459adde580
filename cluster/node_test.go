package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeSlim(t *testing.T) {
	const zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
	const oldZone, oldRegion = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
	for _, c := range []struct {
		labels map[string]string
		want   Node
	}{
		{nil, Node{}},
		{map[string]string{zone: "a", region: "R-1", oldZone: "b", oldRegion: "r-2"}, Node{Zone: "a", Region: "r-1"}},
		{map[string]string{oldZone: "B", oldRegion: "r-2"}, Node{Zone: "b", Region: "r-2"}},
		{map[string]string{zone: "a", oldZone: "b", oldRegion: "r-2"}, Node{Zone: "b", Region: "r-2"}},
		{map[string]string{zone: "a", oldRegion: "r-2"}, Node{}},
		{map[string]string{zone: "", region: "r-1"}, Node{}},
	} {
		meta := fullMeta()
		meta.Name, meta.Namespace, meta.Labels = "n1", "", c.labels
		c.want.Name = "n1"
		n := &corev1.Node{
			ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}},
			Status: corev1.NodeStatus{Phase: "Running", Images: []corev1.ContainerImage{{Names: []string{strings.Repeat("x", 300)}, SizeBytes: 1 << 40}}},
		}
		if got := arrive(t, Options{Nodes: true}, n, t.Errorf).(*Node); *got != c.want || got.Key() != (Key{Name: "n1"}) {
			t.Errorf("%v: got %+v, want %+v", c.labels, got, c.want)
		}
	}
}

// Where an API server sends metadata alone it says that it does, and that is
// taken for no other resource.
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
		got := decoded(t, codecFor(Options{Nodes: true}, Nodes, t.Errorf), data)
		if n := got.object.(*Node); *n != (Node{"n1", "a", "r"}) || got.version != "4" {
			t.Errorf("%s: %+v", form, got)
		}
		if _, _, err := codecFor(Options{}, Services, t.Errorf).Decode(data, nil, nil); err == nil {
			t.Errorf("%s: metadata was taken for a Service", form)
		}
	}
}

// Nodes are asked for, and nothing else: without their status, if the API server
// can leave it out.
func TestLiveNodes(t *testing.T) {
	for _, old := range []bool{false, true} {
		a := serve(t, &api{old: old, objects: map[string]string{"nodes": `{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}`}})
		f, stop := watchCluster(t, Options{Endpoint: a.URL, Nodes: true, Namespaces: "shop,other"})
		f.got(t, "listed nodes n1 n2")
		stop()
		for _, r := range a.asked() {
			if r.URL.Path != "/api/v1/nodes" || r.URL.Query().Get("fieldSelector")+r.URL.Query().Get("labelSelector") != "" {
				t.Errorf("asked for %s", r.URL)
			}
			const want = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
				"application/vnd.kubernetes.protobuf,application/json"
			if got := strings.Join(r.Header["Accept"], ","); !strings.HasPrefix(got, want) {
				t.Errorf("accepts %s", got)
			}
		}
	}
}

func TestLiveNodesForbidden(t *testing.T) {
	a := serve(t, &api{refuse: func(*http.Request) int { return http.StatusForbidden }})
	f, _ := watchCluster(t, Options{Endpoint: a.URL, Nodes: true})
	f.logs(t, "the API server forbids to list nodes; trying again: grant list and watch to the service account")
}

// A folder gives the Nodes of all that is in it, and says nothing of the rest.
func TestManifestsNodes(t *testing.T) {
	node := func(name, zone string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s, namespace: wrong, labels: {topology.kubernetes.io/zone: %s, topology.kubernetes.io/region: r}}}\n", name, zone)
	}
	b := newBench(t, map[string]string{
		"others.yaml": "{apiVersion: v9, kind: Service, metadata: {name: web, namespace: shop}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n",
		"nodes.yaml":  node("n2", "b") + "---\n" + node("n1", "a"),
	})
	b.opts.Nodes = true
	f := b.read()
	b.says(0, "level=WARN")
	has := func(want ...string) {
		t.Helper()
		b.sink.mu.Lock()
		defer b.sink.mu.Unlock()
		var got []string
		for key, o := range b.sink.objects[Nodes] {
			n := o.(*Node)
			got = append(got, fmt.Sprintf("%s:%s:%s", key, n.Zone, n.Region))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || !b.sink.listed[Nodes] {
			t.Errorf("got %q, want %q", got, want)
		}
		for kind := range Nodes {
			if len(b.sink.objects[kind]) > 0 || b.sink.listed[kind] {
				t.Errorf("there are %s too", kind)
			}
		}
	}
	has("n1:a:r", "n2:b:r")
	b.write("nodes.yaml", node("n2", "c"))
	f.check(t.Context())
	if len(f.fileWarnings) > 0 {
		t.Fatalf("the folder cannot be read: %v", f.fileWarnings)
	}
	has("n2:c:r")
}
