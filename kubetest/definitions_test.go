package kubetest

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

const testDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: buoys.example.org
spec:
  group: example.org
  names: {kind: Buoy, plural: buoys}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {depth: {type: integer}}
          status:
            type: object
            properties: {seen: {type: boolean}}
`

// A definition is served at once, with its schema, its status and watches; and after a restart.
func TestDefine(t *testing.T) {
	t.Parallel()
	srv := start(t)
	ctx := t.Context()
	for range 2 { // the second one does nothing
		if err := srv.Define(ctx, []byte(testDefinition)); err != nil {
			t.Fatal(err)
		}
	}

	config := srv.Config()
	client, err := dynamic.NewForConfigAndClient(config, httpClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	buoys := client.Resource(schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "buoys"}).Namespace("a")
	buoy := func(depth any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Buoy", "metadata": map[string]any{"name": "b"},
			"spec": map[string]any{"depth": depth}, "status": map[string]any{"seen": true}}}
	}

	if _, err := buoys.Create(ctx, buoy("deep"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an object that the schema excludes: got %v, want Invalid", err)
	}
	w, err := buoys.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	created, err := buoys.Create(ctx, buoy(int64(7)), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, has := created.Object["status"]; has {
		t.Errorf("got %v, want no status: it is a subresource", created.Object)
	}
	if e := next(t, w); e.Type != watch.Added {
		t.Errorf("got the event %v, want ADDED", e)
	}

	created.Object["status"] = map[string]any{"seen": true}
	if _, err := buoys.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := next(t, w); e.Type != watch.Modified {
		t.Errorf("got the event %v, want MODIFIED", e)
	}

	srv.StopAPI()
	if err := srv.StartAPI(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := buoys.Get(ctx, "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if seen, _, _ := unstructured.NestedBool(got.Object, "status", "seen"); !seen {
		t.Errorf("after a restart: got %v, want the status that was written", got.Object)
	}
}
