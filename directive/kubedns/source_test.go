package kubedns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// A folder holds one file of manifests; the real API server is in the module
// kubetest.
type folder struct {
	*testing.T
	path string
}

// put writes a ConfigMap of that name, and others that the Source must ignore.
func (f folder) put(name, key, value string) {
	f.Helper()
	const form = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: %s}, data: {%s: %q}}\n"
	text := fmt.Sprintf(form, "kube-system", "another", upstreams, "$$$$") + "---\n" +
		fmt.Sprintf(form, "default", "kube-dns", federations, "other=example.net") + "---\n" +
		fmt.Sprintf(form, "kube-system", name, key, value)
	spare := filepath.Join(filepath.Dir(f.path), ".spare")
	write(f.T, spare, text)
	must(f.T, os.Rename(spare, f.path))
}

func TestObject(t *testing.T) {
	f := folder{t, filepath.Join(t.TempDir(), "all.yaml")}
	f.put("kube-dns", upstreams, `["10.0.0.1"]`)
	o := cluster.Options{Manifests: filepath.Dir(f.path), ConfigMap: "kube-system/kube-dns"}
	must(t, o.Check())
	w := startSource(t, o.ConfigMap, func(w *watcher, ctx context.Context) {
		Source{Object: o}.Run(ctx, w.logger(), w.metrics, nil, w.apply)
	})
	want := []string{"upstreams=[10.0.0.1:53]"}
	w.becomes(want...)
	w.counts(1, 0, true)

	f.put("kube-dns", upstreams, `["1.1.1.1:123456789"]`)
	w.counts(1, 1, false)
	if lines := w.said(`msg="Refused kube-dns's ConfigMap" configmap=kube-system/kube-dns error="upstreamNameservers: want IP`); len(lines) != 1 || !strings.Contains(lines[0], `in_use="last valid state"`) {
		t.Errorf("got the log\n%s\nwant one refusal that keeps the last valid state", w.log())
	}
	f.put("kube-dns", upstreams, `["10.0.0.2"]`)
	want = append(want, "upstreams=[10.0.0.2:53]")
	w.becomes(want...)

	f.put("kube-dns-2", upstreams, `["10.0.0.3"]`) // ours is gone
	want = append(want, "")
	w.becomes(want...)
	f.put("kube-dns", upstreams, `["10.0.0.2"]`)
	want = append(want, "upstreams=[10.0.0.2:53]")
	w.becomes(want...)
	must(t, os.Remove(f.path))
	w.becomes(append(want, "")...)
	w.counts(5, 1, true)
}

// If the object does not exist, the Config is the default.
func TestObjectMissing(t *testing.T) {
	o := cluster.Options{Manifests: t.TempDir(), ConfigMap: "kube-system/kube-dns"}
	w := startSource(t, o.ConfigMap, func(w *watcher, ctx context.Context) {
		Source{Object: o}.Run(ctx, w.logger(), w.metrics, nil, w.apply)
	})
	w.becomes("")
	w.counts(1, 0, true)
}
