package cluster

import (
	"slices"
	"testing"
)

// A list without the ConfigMap is the same as its deletion.
func TestConfigMapSink(t *testing.T) {
	key := Key{Namespace: "kube-system", Name: "kube-dns"}
	var states []string
	s := &ConfigMapSink{Set: func(data map[string]string) { states = append(states, data["key"]) }}
	want := func(after string, want ...string) {
		t.Helper()
		if !slices.Equal(states, want) {
			t.Errorf("%s: got states %q, want %q", after, states, want)
		}
		states = nil
	}
	put := func(values ...string) {
		for _, value := range values {
			s.Put(ConfigMaps, &ConfigMap{Namespace: key.Namespace, Name: key.Name, Data: map[string]string{"key": value}})
		}
	}
	list := func(keys ...Key) {
		s.Listed(ConfigMaps, func(k Key) bool { return slices.Contains(keys, k) })
	}
	list()
	want("empty list", "")
	put("1", "2")
	want("two puts", "1", "2")
	list(key)
	want("list with the ConfigMap")
	list()
	want("list without the ConfigMap", "")
	put("3")
	s.Delete(ConfigMaps, key)
	want("deletion", "3", "")
}
