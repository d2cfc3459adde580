package kubetest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/test/dnstest"
)

// Every script of the corpus against the live API; the replies must equal those
// of a server that reads a folder.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/script/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no scripts in testdata/script")
	}
	srv := start(t)
	defineGateways(t, srv)
	kinds := everyKind(t, srv)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			dnstest.Run(t, dnstest.Env{
				Live:    func(t testing.TB) dnstest.Source { return live(t, srv, kinds) },
				CoreDNS: *coredns,
			}, file)
		})
	}
}

// A liveSource is the API server as the source of one script's objects. The
// remaining ones are deleted at the end of the script.
type liveSource struct {
	client     dynamic.Interface
	kubeconfig string
	kinds      []metav1.APIResource
	made       []dnstest.Object
}

func live(t testing.TB, srv *Server, kinds []metav1.APIResource) *liveSource {
	t.Helper()
	l := &liveSource{kinds: kinds}
	var err error
	if l.client, err = dynamic.NewForConfig(srv.Config()); err != nil {
		t.Fatal(err)
	}
	if l.kubeconfig, err = srv.Kubeconfig(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range slices.Backward(slices.Clone(l.made)) {
			if err := l.Delete(o); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

func (l *liveSource) Corefile() string { return "kubeconfig " + l.kubeconfig }

// Apply creates or replaces an object. Its status is a separate write in the API.
func (l *liveSource) Apply(o dnstest.Object) error {
	ctx := context.Background()
	in, err := l.resource(o)
	if err != nil {
		return err
	}
	object := new(unstructured.Unstructured)
	if err := yaml.Unmarshal(o.YAML, &object.Object); err != nil {
		return err
	}
	status, hasStatus := object.Object["status"]
	made, err := in.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *unstructured.Unstructured
		if old, err = in.Get(ctx, o.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		object.SetResourceVersion(old.GetResourceVersion())
		made, err = in.Update(ctx, object, metav1.UpdateOptions{})
	} else if err == nil {
		l.made = append(l.made, o)
	}
	if err != nil || !hasStatus {
		return err
	}
	made.Object["status"] = status
	_, err = in.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

func (l *liveSource) Delete(o dnstest.Object) error {
	in, err := l.resource(o)
	if err != nil {
		return err
	}
	l.made = slices.DeleteFunc(l.made, func(m dnstest.Object) bool {
		return m.Kind == o.Kind && m.Namespace == o.Namespace && m.Name == o.Name
	})
	return in.Delete(context.Background(), o.Name, metav1.DeleteOptions{})
}

func (l *liveSource) resource(o dnstest.Object) (dynamic.ResourceInterface, error) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return nil, err
	}
	for _, k := range l.kinds {
		if k.Group == gv.Group && k.Version == gv.Version && k.Kind == o.Kind {
			in := l.client.Resource(gv.WithResource(k.Name))
			if !k.Namespaced {
				return in, nil
			}
			return in.Namespace(o.Namespace), nil
		}
	}
	return nil, fmt.Errorf("no such kind: %s %s", o.APIVersion, o.Kind)
}
