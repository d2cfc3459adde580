package kubetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// TestAPI tests one server in every respect that needs no restart. Each subtest
// has its own namespace.
func TestAPI(t *testing.T) {
	t.Parallel()
	srv := start(t)
	k := client(t, srv.Config())
	t.Run("CRUD and watch", func(t *testing.T) { testCRUD(t, k) })
	t.Run("every kind", func(t *testing.T) { testEveryKind(t, srv) })
	t.Run("WatchList", func(t *testing.T) { testWatchList(t, k) })
	t.Run("protobuf", func(t *testing.T) { testProtobuf(t, srv) })
	t.Run("pod selectors", func(t *testing.T) { testPodSelectors(t, k) })
	t.Run("name selectors", func(t *testing.T) { testNameSelectors(t, k) })
	t.Run("service defaults", func(t *testing.T) { testServiceDefaults(t, k) })
	t.Run("other defaults", func(t *testing.T) { testOtherDefaults(t, k) })
	t.Run("status", func(t *testing.T) { testStatus(t, k) })
	t.Run("serviceimports", func(t *testing.T) { testServiceImports(t, srv) })
}

func testCRUD(t *testing.T, k kubernetes.Interface) {
	ctx, maps := t.Context(), k.CoreV1().ConfigMaps("crud")
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	c := put(t, k, "crud", "c")
	if c.UID == "" || c.CreationTimestamp.IsZero() || len(c.ManagedFields) == 0 {
		t.Errorf("created ConfigMap: got %v, want a UID, a creation time and managed fields", c)
	}
	if _, err := maps.Create(ctx, configMap("c", "2"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v; want already exists", err)
	}
	stale := c.DeepCopy()
	c.Data["key"] = "2"
	if _, err = maps.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of a stale object: %v; want a conflict", err)
	}
	if got, err := maps.Get(ctx, "c", metav1.GetOptions{}); err != nil || got.Data["key"] != "2" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := maps.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a deleted object: %v; want not found", err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		if e := next(t, w); e.Type != want || e.Object.(*corev1.ConfigMap).Name != "c" {
			t.Errorf("event %v; want %s of c", e, want)
		}
	}
}

// testEveryKind creates, lists, updates and deletes an object of each kind that is stored,
// without knowledge of its fields.
func testEveryKind(t *testing.T, srv *Server) {
	d, err := dynamic.NewForConfigAndClient(srv.Config(), httpClient(t, srv.Config()))
	if err != nil {
		t.Fatal(err)
	}
	// A TokenReview or a SubjectAccessReview is not stored, and a definition must be complete: see TestDefine.
	kinds := slices.DeleteFunc(everyKind(t, srv), func(kind metav1.APIResource) bool {
		return slices.Equal(kind.Verbs, []string{"create"}) || kind.Kind == "CustomResourceDefinition"
	})
	if len(kinds) != 21 { // ServiceImport in both versions
		t.Errorf("%d stored kinds: %v; want 21", len(kinds), kinds)
	}
	for _, kind := range kinds {
		gv := schema.GroupVersion{Group: kind.Group, Version: kind.Version}
		var r dynamic.ResourceInterface = d.Resource(gv.WithResource(kind.Name))
		if kind.Namespaced {
			r = d.Resource(gv.WithResource(kind.Name)).Namespace("every")
		}
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(gv.WithKind(kind.Kind))
		obj.SetName("every")
		if obj, err = r.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		obj.SetAnnotations(map[string]string{"a": "b"})
		if _, err := r.Update(t.Context(), obj, metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		list, err := r.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=every"})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetAnnotations()["a"] != "b" || list.GetKind() != kind.Kind+"List" {
			t.Errorf("%s: got list %v and error %v, want one object with the annotation", kind.Name, list, err)
		}
		if err := r.Delete(t.Context(), "every", metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}

// everyKind returns the resources that srv serves, with their groups and versions.
func everyKind(t *testing.T, srv *Server) (kinds []metav1.APIResource) {
	t.Helper()
	_, lists, err := client(t, srv.Config()).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // a subresource
				r.Group, r.Version = gv.Group, gv.Version
				kinds = append(kinds, r)
			}
		}
	}
	return kinds
}

func testWatchList(t *testing.T, k kubernetes.Interface) {
	for i := range 3 {
		put(t, k, "watchlist", fmt.Sprintf("c%d", i))
	}
	w, err := k.CoreV1().ConfigMaps("watchlist").Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents:    new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for range 3 {
		if e := next(t, w); e.Type != watch.Added {
			t.Fatalf("event %v; want an initial object", e)
		}
	}
	e := next(t, w)
	c, ok := e.Object.(*corev1.ConfigMap)
	if e.Type != watch.Bookmark || !ok || c.Annotations[metav1.InitialEventsAnnotationKey] != "true" || c.ResourceVersion == "" {
		t.Fatalf("event %v; want the bookmark after the initial objects", e)
	}
	put(t, k, "watchlist", "c3")
	if e := next(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "c3" {
		t.Errorf("event %v; want what came later", e)
	}
}

// A recorder records the content types of responses.
type recorder struct {
	http.RoundTripper
	mu    sync.Mutex
	types []string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.types = append(r.types, resp.Header.Get("Content-Type"))
	}
	return resp, err
}

func testProtobuf(t *testing.T, srv *Server) {
	c := srv.Config()
	c.ContentType = runtime.ContentTypeProtobuf
	h := httpClient(t, c)
	seen := &recorder{RoundTripper: h.Transport}
	h.Transport = seen
	k, err := kubernetes.NewForConfigAndClient(c, h)
	if err != nil {
		t.Fatal(err)
	}
	want := put(t, k, "protobuf", "c")
	list, err := k.CoreV1().ConfigMaps("protobuf").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != want.UID || list.Items[0].Data["key"] != "1" {
		t.Errorf("list: got %v, %v; want the ConfigMap with UID %s", list, err, want.UID)
	}
	w, err := k.CoreV1().ConfigMaps("protobuf").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := next(t, w); e.Object.(*corev1.ConfigMap).UID != want.UID {
		t.Errorf("first event: got %v, want the ConfigMap with UID %s", e, want.UID)
	}
	for _, got := range seen.types {
		if !strings.HasPrefix(got, runtime.ContentTypeProtobuf) {
			t.Errorf("content type of a response: got %s, want %s", got, runtime.ContentTypeProtobuf)
		}
	}
}

func testPodSelectors(t *testing.T, k kubernetes.Interface) {
	ctx, pods := t.Context(), k.CoreV1().Pods("selectors")
	for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodRunning} {
		p, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i), Labels: map[string]string{"app": fmt.Sprintf("a%d", i%2)}},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i/2)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Phase, p.Status.PodIP = phase, fmt.Sprintf("10.0.0.%d", i)
		if _, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ field, label, want string }{
		{"metadata.name=p1", "", "p1"},
		{"metadata.namespace=selectors", "", "p0 p1 p2"},
		{"metadata.namespace=elsewhere", "", ""},
		{"status.phase=Running", "", "p0 p2"},
		{"status.phase!=Succeeded,status.phase!=Failed", "", "p0 p2"},
		{"spec.nodeName=n0", "", "p0 p1"},
		{"status.podIP=10.0.0.2", "", "p2"},
		{"", "app=a0", "p0 p2"},
		{"", "app in (a1),!other", "p1"},
		{"spec.nodeName=n0", "app=a0", "p0"},
	} {
		o := metav1.ListOptions{FieldSelector: test.field, LabelSelector: test.label}
		list, err := k.CoreV1().Pods("").List(ctx, o)
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		var got []string
		for _, p := range list.Items {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%+v: got %s, want %s", test, s, test.want)
		}
	}

	// For a watch with a selector, an object that no longer matches is deleted.
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "status.podIP=10.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p := next(t, w).Object.(*corev1.Pod)
	p.Status.PodIP, p.Status.PodIPs = "10.0.0.9", nil
	if _, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := next(t, w); e.Type != watch.Deleted {
		t.Errorf("event %v; want deleted", e)
	}
}

func testNameSelectors(t *testing.T, k kubernetes.Interface) {
	ctx := t.Context()
	put(t, k, "names", "a")
	put(t, k, "names", "b")
	list, err := k.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=b,metadata.namespace=names"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("list: got %v, %v; want the ConfigMap b", list, err)
	}
	if _, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=n"}); err != nil {
		t.Errorf("nodes by name: %v", err)
	}
	_, err = k.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a field that slices do not have: %v; want a bad request", err)
	}
}

func testServiceDefaults(t *testing.T, k kubernetes.Interface) {
	ctx, services := t.Context(), k.CoreV1().Services("defaults")
	s, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 53}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Spec.Ports[0]
	if s.Spec.Type != corev1.ServiceTypeClusterIP || p.Protocol != corev1.ProtocolTCP || p.TargetPort != intstr.FromInt32(53) {
		t.Errorf("defaults of a Service: got %+v, want type ClusterIP, protocol TCP and target port 53", s.Spec)
	}
	check := func(ips string, families ...corev1.IPFamily) {
		t.Helper()
		if strings.Join(s.Spec.ClusterIPs, " ") != ips || !slices.Equal(s.Spec.IPFamilies, families) {
			t.Errorf("clusterIPs %v, ipFamilies %v; want %s, %v", s.Spec.ClusterIPs, s.Spec.IPFamilies, ips, families)
		}
	}
	check("10.96.0.10", corev1.IPv4Protocol)
	s.Spec.ClusterIP = "fd00::10"
	if s, err = services.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check("fd00::10", corev1.IPv6Protocol)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", nil
	s.Spec.IPFamilies = nil
	if s, err = services.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check("None", corev1.IPv4Protocol)
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	if s, err = services.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check("")
	if s.Spec.ClusterIP != "" {
		t.Errorf("clusterIP of an ExternalName: got %s, want none", s.Spec.ClusterIP)
	}
}

func testOtherDefaults(t *testing.T, k kubernetes.Interface) {
	ctx := t.Context()
	ns, err := k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ns.Labels[corev1.LabelMetadataName] != ns.Name || ns.Name == "" || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("namespace: got %v, want a name, its label and phase Active", ns)
	}
	slice, err := k.DiscoveryV1().EndpointSlices("defaults").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "s"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(80))}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p := slice.Ports[0]; p.Name == nil || *p.Name != "" || p.Protocol == nil || *p.Protocol != corev1.ProtocolTCP {
		t.Errorf("defaults of a slice's port: got %+v, want an empty name and protocol TCP", p)
	}
	//lint:ignore SA1019 manifests still have it
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
	//lint:ignore SA1019 likewise
	endpoints.Subsets = []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Port: 80}}}}
	e, err := k.CoreV1().Endpoints("defaults").Create(ctx, endpoints, metav1.CreateOptions{})
	if err != nil || e.Subsets[0].Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("endpoints: %v, %v", e, err)
	}
}

// testStatus checks that the status and the other fields are written separately.
func testStatus(t *testing.T, k kubernetes.Interface) {
	ctx, services := t.Context(), k.CoreV1().Services("status")
	ingress := corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
		Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}}
	s, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1"},
		Status:     ingress,
	}, metav1.CreateOptions{})
	if err != nil || len(s.Status.LoadBalancer.Ingress) != 0 {
		t.Fatalf("creating a Service with a status: got %v and error %v, want no status", s, err)
	}
	s.Status, s.Spec.ClusterIP = ingress, "10.96.0.2"
	s, err = services.UpdateStatus(ctx, s, metav1.UpdateOptions{})
	if err != nil || len(s.Status.LoadBalancer.Ingress) != 1 || s.Spec.ClusterIP != "10.96.0.1" {
		t.Fatalf("update of the status: got %v and error %v, want the status alone changed", s, err)
	}
	s.Status, s.Spec.SessionAffinity = corev1.ServiceStatus{}, corev1.ServiceAffinityClientIP
	s, err = services.Update(ctx, s, metav1.UpdateOptions{})
	if err != nil || len(s.Status.LoadBalancer.Ingress) != 1 || s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		t.Fatalf("update of the other fields: got %v and error %v, want the status unchanged", s, err)
	}

	pods := k.CoreV1().Pods("status")
	p, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
	if err != nil || p.Status.Phase != corev1.PodPending {
		t.Fatalf("a new pod: got %v and error %v, want phase Pending", p, err)
	}
	patch := []byte(`{"status":{"phase":"Running","podIP":"10.0.0.1"}}`)
	p, err = pods.Patch(ctx, "p", "application/merge-patch+json", patch, metav1.PatchOptions{}, "status")
	if err != nil || p.Status.Phase != corev1.PodRunning || len(p.Status.PodIPs) != 1 || p.Status.PodIPs[0].IP != "10.0.0.1" {
		t.Fatalf("patch of the status: got %v and error %v, want phase Running at 10.0.0.1", p, err)
	}
}

func testServiceImports(t *testing.T, srv *Server) {
	ctx := t.Context()
	c := srv.Config()
	h := httpClient(t, c)
	d, err := dynamic.NewForConfigAndClient(c, h)
	if err != nil {
		t.Fatal(err)
	}
	imports := d.Resource(schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}.WithResource("serviceimports")).Namespace("imports")
	w, err := imports.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	spec := map[string]any{
		"type":  "ClusterSetIP",
		"ips":   []any{"10.42.42.42"},
		"ports": []any{map[string]any{"name": "http", "protocol": "TCP", "port": int64(80), "appProtocol": "h2c"}},
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
		"metadata": map[string]any{"name": "i"}, "spec": spec,
	}}
	if obj, err = imports.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e := next(t, w)
	got, _ := e.Object.(*unstructured.Unstructured)
	if e.Type != watch.Added || fmt.Sprint(got.Object["spec"]) != fmt.Sprint(spec) {
		t.Errorf("first event: got %v, want ADDED with spec %v", e, spec)
	}
	obj.Object["status"] = map[string]any{"clusters": []any{map[string]any{"cluster": "east"}}}
	if obj, err = imports.UpdateStatus(ctx, obj, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	obj.SetResourceVersion("")
	if _, err := imports.Update(ctx, obj, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("update without a resourceVersion: %v; want invalid", err)
	}

	// In encodings other than the dynamic client's.
	const jsonType, protobufType = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	for accept, want := range map[string]string{
		jsonType:                      jsonType,
		protobufType + "," + jsonType: jsonType,
		runtime.ContentTypeYAML:       runtime.ContentTypeYAML,
		protobufType:                  "406",
	} {
		req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL()+"/apis/multicluster.x-k8s.io/v1alpha1/serviceimports", nil)
		req.Header.Set("Accept", accept)
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := resp.Header.Get("Content-Type")
		if resp.StatusCode != 200 {
			got = fmt.Sprint(resp.StatusCode)
		}
		if got != want {
			t.Errorf("accepting %s: got %s; want %s", accept, got, want)
		}
		if got != jsonType {
			continue
		}
		var list struct {
			Items []struct {
				Status struct{ Clusters []struct{ Cluster string } }
			}
		}
		if err := json.Unmarshal(data, &list); err != nil || len(list.Items) != 1 || list.Items[0].Status.Clusters[0].Cluster != "east" {
			t.Errorf("list: %s, %v", data, err)
		}
	}
}
