package kubetest

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/seamark/seamark/sys/clock"
)

// Define creates a CustomResourceDefinition, in YAML, and returns when the API server serves its
// resources. It does nothing if the API server has the definition.
func (s *Server) Define(ctx context.Context, definition []byte) error {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(definition, &object.Object); err != nil {
		return fmt.Errorf("reading a CustomResourceDefinition: %w", err)
	}

	config := s.Config()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, &object, metav1.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s: %w", object.GetName(), err)
	}

	for {
		now, err := definitions.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", object.GetName(), err)
		}
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		if !clock.Sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("waiting for %s: it is not established: %w", object.GetName(), ctx.Err())
		}
	}
}
