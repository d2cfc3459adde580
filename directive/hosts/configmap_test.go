package hosts

import (
	"testing"

	"github.com/seamark/seamark/cluster"
)

// Listed deletes the data only if the list does not have the ConfigMap.
func TestConfigMapListed(t *testing.T) {
	m := new(configMap)
	sink := &cluster.ConfigMapSink{Set: m.set}
	key := mapKey{m, "dns/custom", "hosts"}
	expect := func(want string, wantListed bool) {
		t.Helper()
		if got, listed := key.lines(); got != want || listed != wantListed {
			t.Errorf("lines of %s: got %q, listed %v, want %q, listed %v", key, got, listed, want, wantListed)
		}
	}
	custom := &cluster.ConfigMap{Namespace: "dns", Name: "custom", Data: map[string]string{"hosts": "10.0.0.1 a"}}
	has := func(key cluster.Key) bool { return key == custom.Key() }
	none := func(cluster.Key) bool { return false }
	expect("", false)
	sink.Listed(cluster.ConfigMaps, none)
	expect("", true)
	sink.Put(cluster.ConfigMaps, custom)
	sink.Listed(cluster.ConfigMaps, has)
	expect("10.0.0.1 a", true)
	sink.Listed(cluster.ConfigMaps, none)
	expect("", true)
	sink.Put(cluster.ConfigMaps, custom)
	sink.Delete(cluster.ConfigMaps, custom.Key())
	sink.Listed(cluster.ConfigMaps, has)
	expect("", true)
}
