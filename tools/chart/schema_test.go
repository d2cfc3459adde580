package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"
)

// releases are versions of client-go, each with the schemas of a version of Kubernetes.
var releases = []string{"v0.30.14", "v0.31.14", "v0.32.13", "v0.33.13", "v0.34.13", "v0.35.10", "v0.36.6"}

// A schema has the types of one version of Kubernetes.
type schema struct {
	release string
	parser  *typed.Parser
}

// schemas returns the schema of each release, from client-go in the module cache.
func schemas(t *testing.T) []schema {
	t.Helper()
	args := []string{"mod", "download", "-json"}
	for _, r := range releases {
		args = append(args, "k8s.io/client-go@"+r)
	}
	download := exec.CommandContext(t.Context(), "go", args...)
	download.Dir = t.TempDir() // outside this module, whose go.sum does not change
	out, err := download.Output()
	if err != nil {
		t.Fatalf("downloading client-go: %v\n%s", err, out)
	}
	var found []schema
	for modules := json.NewDecoder(strings.NewReader(string(out))); modules.More(); {
		var module struct{ Version, Dir string }
		if err := modules.Decode(&module); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(module.Dir, "applyconfigurations", "internal", "internal.go"))
		if err != nil {
			t.Fatal(err)
		}
		_, text2, _ := strings.Cut(string(text), "typed.YAMLObject(`")
		text2, _, _ = strings.Cut(text2, "`")
		parser, err := typed.NewParser(typed.YAMLObject(text2))
		if err != nil {
			t.Fatalf("schema of client-go %s: %v", module.Version, err)
		}
		found = append(found, schema{module.Version, parser})
	}
	return found
}

// validate rejects unknown fields, values of a wrong type, and duplicates.
func (s schema) validate(o *unstructured.Unstructured) error {
	if o.GroupVersionKind().Group == monitoringv1.SchemeGroupVersion.Group {
		return validateMonitoring(o)
	}
	gvk := o.GroupVersionKind()
	group, _, _ := strings.Cut(gvk.Group, ".")
	if group == "" {
		group = "core"
	}
	name := fmt.Sprintf("io.k8s.api.%s.%s.%s", group, gvk.Version, gvk.Kind)
	if !s.parser.Type(name).IsValid() {
		return fmt.Errorf("client-go %s has no type %s", s.release, name)
	}
	if _, err := s.parser.Type(name).FromUnstructured(o.Object); err != nil {
		return fmt.Errorf("client-go %s: %s %s: %w", s.release, o.GetKind(), o.GetName(), err)
	}
	return nil
}

// validateMonitoring compares an object with the types of the Prometheus operator.
func validateMonitoring(o *unstructured.Unstructured) error {
	types := map[string]any{"ServiceMonitor": new(monitoringv1.ServiceMonitor), "PodMonitor": new(monitoringv1.PodMonitor), "PrometheusRule": new(monitoringv1.PrometheusRule)}
	into := types[o.GetKind()]
	if into == nil {
		return errors.New("no type of the Prometheus operator: " + o.GetKind())
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, into)
}

// checkSchemas checks that the schemas reject what they must.
func checkSchemas(t *testing.T, versions []schema) {
	t.Helper()
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  replicas: 1\n  template:\n    spec:\n      containers: [{name: a, ports: [{containerPort: 53, protocol: UDP}]}]\n"
	for _, s := range versions {
		for _, c := range []struct{ old, new, want string }{
			{"", "", ""},
			{"replicas: 1", "replica: 1", "field not declared in schema"},
			{"replicas: 1", "replicas: many", "expected numeric"},
			{"protocol: UDP", "protocl: UDP", "field not declared in schema"},
			{"protocol: UDP}", "protocol: UDP}, {containerPort: 53, protocol: UDP}", "duplicate"},
		} {
			objects, err := decode([]byte(strings.Replace(deployment, c.old, c.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.validate(objects[0]); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("client-go %s: %s instead of %s: got error %v, want %q", s.release, c.new, c.old, err, c.want)
			}
		}
	}
}
