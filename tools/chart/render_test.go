package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	deployDir = "../../deploy"
	chartDir  = deployDir + "/helm/seamark"
)

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A rendering is the output of the chart for one set of values.
type rendering struct {
	objects []*unstructured.Unstructured
	notes   string
}

// render returns the chart's objects and notes, as helm install makes them. The cluster is
// for the function lookup; nil for none.
func render(c *chart.Chart, values, release, namespace string, cluster *rest.Config) (*rendering, error) {
	var v map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &v); err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(c, v, options, nil)
	if err != nil {
		return nil, err
	}
	e := engine.Engine{}
	if cluster != nil {
		e = engine.New(cluster)
	}
	files, err := e.RenderWithContext(context.Background(), c, top)
	if err != nil {
		return nil, err
	}
	r := &rendering{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.notes = files[name]
			continue
		}
		objects, err := decode([]byte(files[name]))
		if err != nil {
			return nil, errors.Join(errors.New(name), err, errors.New(files[name]))
		}
		r.objects = append(r.objects, objects...)
	}
	return r, nil
}

// decode returns the objects of a YAML stream. Duplicate keys are errors.
func decode(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := documents.Read()
		if err == io.EOF {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o := map[string]any{}
		if err := yaml.UnmarshalStrict(doc, &o); err != nil {
			return nil, err
		}
		if len(o) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: o})
		}
	}
}

// find returns the objects of a kind.
func (r *rendering) find(kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(r.objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// corefile returns the Corefile of the rendered ConfigMap, "" if there is none.
func (r *rendering) corefile() string {
	for _, o := range r.find("ConfigMap") {
		if text, ok, _ := unstructured.NestedString(o.Object, "data", "Corefile"); ok {
			return text
		}
	}
	return ""
}

// server returns the Deployment of the server.
func (r *rendering) server(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	for _, o := range r.find("Deployment") {
		if !strings.HasSuffix(o.GetName(), "-autoscaler") {
			return o
		}
	}
	t.Fatal("got no Deployment of the server, want one")
	return nil
}

// field returns a field of an object, nil if it is missing.
func field(o *unstructured.Unstructured, path string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, ".")...)
	return v
}

// The derived files equal the output of the command.
func TestDerivedFilesCurrent(t *testing.T) {
	files, err := derived(deployDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(deployDir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got error %v and other text than the command; run go run ./chart ../deploy in tools", name, err)
		}
	}
}

// The schema has exactly the keys of values.yaml, and the keys that the templates reject.
func TestSchemaEqualsValues(t *testing.T) {
	documented, err := values(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"global": true}
	for _, v := range documented {
		known[v.Key] = true
	}
	coreDNS, err := coreDNSValues(filepath.Join(chartDir, "coredns-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range coreDNS {
		below := slices.ContainsFunc(documented, func(d value) bool { return strings.HasPrefix(d.Key, v.Key+".") })
		if v.Status == "rejected" {
			known[v.Key] = true
		} else if !known[v.Key] && !below {
			t.Errorf("coredns-values.yaml: got the key %s, want it in values.yaml, too", v.Key)
		}
	}
	var schema map[string]any
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		properties, _ := s["properties"].(map[string]any)
		if path != "" && known[path] {
			delete(known, path)
			return
		}
		if properties == nil || s["additionalProperties"] != false {
			t.Errorf("schema: %q: got %v, want a map of known keys", path, s)
		}
		for key, p := range properties {
			walk(strings.TrimPrefix(path+"."+key, "."), p.(map[string]any))
		}
	}
	walk("", schema)
	if len(known) > 0 {
		t.Errorf("schema: got no %v, want all keys of values.yaml", slices.Sorted(maps.Keys(known)))
	}
}

func TestLint(t *testing.T) {
	values := map[string]any{"image": map[string]any{"repository": "registry.example/seamark"}}
	for _, m := range lint.RunAll(chartDir, values, "kube-system").Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}
