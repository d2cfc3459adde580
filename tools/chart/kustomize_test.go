package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The API server accepts the objects of every kustomization of deploy/, and of every
// component with its base, without a warning. No image can be a stranger's.
func TestKustomizations(t *testing.T) {
	machinery, versions := build(t, "../../kubetest", "./cmd/api"), schemas(t)
	const deploy = "../../deploy"
	var dirs []string
	err := filepath.WalkDir(deploy, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == "kustomization.yaml" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	bases := map[string]string{"kubernetes": "kubernetes/base", "kube-dns": "kube-dns/one-container", "node": "node"}
	for _, dir := range dirs {
		name, err := filepath.Rel(deploy, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			if part, _, ok := strings.Cut(name, "/components/"); ok {
				dir = composed(t, filepath.Join(deploy, bases[part]), dir)
			}
			objects := kustomize(t, dir)
			if len(objects) == 0 {
				t.Fatal("got no objects, want some")
			}
			api := startAPI(t, machinery, `{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}`)
			for _, o := range objects {
				for _, s := range versions {
					if err := s.validate(o); err != nil {
						t.Error(err)
					}
				}
				create(t, api, o)
				checkContainers(t, o)
				if strings.HasSuffix(name, "canary") {
					checkCanary(t, o)
				}
			}
		})
	}
	if len(dirs) < 15 {
		t.Errorf("got %d kustomizations, want 15 or more", len(dirs))
	}
}

// composed returns a new directory with a kustomization of a base and a component.
func composed(t *testing.T, base, component string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Rel(dir, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := "resources: [" + relative(base) + "]\ncomponents: [" + relative(component) + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func kustomize(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// checkContainers checks the images, and what kube-apiserver warns about: a name or a number
// of a port that two ports of a pod have.
func checkContainers(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	containers, _ := lookup(o.Object, "spec.template.spec.containers").([]any)
	seen := map[string]bool{}
	for _, c := range containers {
		c := c.(map[string]any)
		image := c["image"].(string)
		if !strings.HasPrefix(image, "registry.invalid/") && !strings.HasPrefix(image, "registry.example/") {
			t.Errorf("%s: got the image %s, want one of a host that cannot exist", o.GetName(), image)
		}
		ports, _ := c["ports"].([]any)
		for _, p := range ports {
			name := p.(map[string]any)["name"].(string)
			if seen[name] {
				t.Errorf("%s: got two ports with the name %s, want one", o.GetName(), name)
			}
			seen[name] = true
		}
	}
}

// checkCanary checks that an object of a canary does not change the running DNS.
func checkCanary(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() == "ConfigMap" || o.GetKind() == "Service" && (o.GetName() != "seamark-canary" || lookup(o.Object, "spec.clusterIP") != nil) {
		t.Errorf("got %s %s, want only objects of its own", o.GetKind(), o.GetName())
	}
	for _, path := range []string{"metadata.labels.k8s-app", "spec.selector.k8s-app", "spec.selector.matchLabels.k8s-app", "spec.template.metadata.labels.k8s-app"} {
		if label := lookup(o.Object, path); label != nil {
			t.Errorf("%s %s: got %s %v, want none", o.GetKind(), o.GetName(), path, label)
		}
	}
}
