package cluster

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const custom = `{"metadata":{"namespace":"dns","name":"custom"},"data":{"hosts":"10.0.0.1 a\n"},"binaryData":{"more":"MTAuMC4wLjIgYgo="}}`

func TestConfigMapCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"", true}, {"dns/custom", true}, {"dns/custom.hosts-1", true},
		{"custom", false}, {"/custom", false}, {"dns/", false}, {"dns/a/b", false}, {"Dns/custom", false}, {"dns/Custom", false}, {"d.ns/custom", false},
	} {
		err := Options{ConfigMap: c.name}.Check()
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.name, err)
		}
		if err != nil && err.Error() != `configmap: want NAMESPACE/NAME, got "`+c.name+`"` {
			t.Errorf("%q: %v", c.name, err)
		}
	}
}

func TestConfigMapSlim(t *testing.T) {
	o := Options{ConfigMap: "dns/custom"}
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dns", Name: "custom", Annotations: map[string]string{"a": "b"}},
		Data:       map[string]string{"hosts": "one", "both": "text"},
		BinaryData: map[string][]byte{"more": {0xFF, 0}, "both": {1}},
	}
	want := map[string]string{"hosts": "one", "both": "text", "more": "\xff\x00"}
	if got := arrive(t, o, c, t.Errorf).(*ConfigMap); got.Key() != (Key{"dns", "custom"}) || !maps.Equal(got.Data, want) {
		t.Errorf("%+v", got)
	}
	c.Name = "other"
	if got := arrive(t, o, c, t.Errorf); got != nil {
		t.Errorf("%+v", got)
	}
}

// One object is asked for by its name, and nothing else.
func TestLiveConfigMap(t *testing.T) {
	for _, old := range []bool{false, true} {
		a := serve(t, &api{old: old, objects: map[string]string{"configmaps": custom + `,{"metadata":{"namespace":"dns","name":"other"}}`}})
		f, stop := watchCluster(t, Options{Endpoint: a.URL, ConfigMap: "dns/custom"})
		f.got(t, "listed configmaps dns/custom")
		stop()
		for _, r := range a.asked() {
			if q := r.URL.Query(); r.URL.Path != "/api/v1/namespaces/dns/configmaps" || q.Get("fieldSelector") != "metadata.name=custom" || q.Get("labelSelector") != "" {
				t.Errorf("asked for %s", r.URL)
			}
		}
	}
}

// An API server without the object has an empty list of it.
func TestLiveConfigMapMissing(t *testing.T) {
	f, _ := watchCluster(t, Options{Endpoint: serve(t, &api{}).URL, ConfigMap: "dns/custom"})
	f.got(t, "listed configmaps ")
}

func TestLiveConfigMapForbidden(t *testing.T) {
	a := serve(t, &api{refuse: func(*http.Request) int { return http.StatusForbidden }})
	f, _ := watchCluster(t, Options{Endpoint: a.URL, ConfigMap: "dns/custom"})
	f.logs(t, "the API server forbids to list configmaps with metadata.name=custom in namespace dns; trying again: grant list and watch to the service account")
}

// A folder gives that one object of all, and says nothing of the others.
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
		if o, ok := b.sink.objects[ConfigMaps][Key{"dns", "custom"}].(*ConfigMap); ok {
			for _, key := range slices.Sorted(maps.Keys(o.Data)) {
				got = append(got, key+"="+o.Data[key])
			}
		}
		if !slices.Equal(got, want) || len(b.sink.objects[Services]) > 0 {
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
