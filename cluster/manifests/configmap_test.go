package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// A folder delivers the named ConfigMap, and does not warn about other objects.
func TestManifestsConfigMap(t *testing.T) {
	const others = `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: dns}, data: {hosts: other}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: dns}, data: {hosts: again}}
---
{apiVersion: v9, kind: Service, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}
`
	object := func(data string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: custom, namespace: dns}, " + data + "}"
	}
	b := newBench(t, map[string]string{"others.yaml": others})
	b.opts.ConfigMap = "dns/custom"
	f := b.read()
	b.has()
	b.says(0, "level=WARN")
	check := func() {
		t.Helper()
		f.check(t.Context())
		if len(f.fileWarnings) > 0 {
			t.Fatalf("the folder cannot be read: %v", f.fileWarnings)
		}
	}
	has := func(want ...string) {
		t.Helper()
		b.sink.mu.Lock()
		defer b.sink.mu.Unlock()
		var got []string
		if o, ok := b.sink.objects[cluster.ConfigMaps][cluster.Key{Namespace: "dns", Name: "custom"}].(*cluster.ConfigMap); ok {
			for _, key := range slices.Sorted(maps.Keys(o.Data)) {
				got = append(got, key+"="+o.Data[key])
			}
		}
		if !slices.Equal(got, want) || len(b.sink.objects[cluster.Services]) > 0 {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	b.write("custom.yaml", object(`data: {hosts: "10.0.0.1 a"}, binaryData: {more: MTAuMC4wLjIgYgo=}`))
	check()
	has("hosts=10.0.0.1 a", "more=10.0.0.2 b\n")
	b.write("custom.yaml", object(`data: {hosts: "10.0.0.3 a"}`))
	check()
	has("hosts=10.0.0.3 a")
	b.write("custom.yaml", object(`data: [`))
	check()
	has("hosts=10.0.0.3 a")
	b.write("custom.yaml", object(`binaryData: {hosts: "%"}`))
	check()
	has("hosts=10.0.0.3 a")
	b.remove("custom.yaml")
	check()
	has()
	if calls := b.sink.called(); calls[len(calls)-1] != "delete configmaps dns/custom" || strings.Contains(strings.Join(calls, " "), "services") {
		t.Errorf("the sink was given %q", calls)
	}
}

// A folder delivers its Nodes, and does not warn about other objects.
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
		for key, o := range b.sink.objects[cluster.Nodes] {
			n := o.(*cluster.Node)
			got = append(got, fmt.Sprintf("%s:%s:%s", key, n.Zone, n.Region))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || !b.sink.listed[cluster.Nodes] {
			t.Errorf("got %q, want %q", got, want)
		}
		for kind := range cluster.Nodes {
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
