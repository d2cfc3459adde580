package hosts

import (
	"testing"

	"github.com/seamark/seamark/cluster"
)

// Listed deletes the data only if the list does not have the ConfigMap.
func TestConfigMapListed(t *testing.T) {
	m := new(configMap)
	key := mapKey{m, "dns/custom", "hosts"}
	expect := func(want string, wantListed bool) {
		t.Helper()
		if got, listed := key.lines(); got != want || listed != wantListed {
			t.Errorf("got %q %v, want %q %v", got, listed, want, wantListed)
		}
	}
	custom := &cluster.ConfigMap{Namespace: "dns", Name: "custom", Data: map[string]string{"hosts": "10.0.0.1 a"}}
	has := func(key cluster.Key) bool { return key == custom.Key() }
	none := func(cluster.Key) bool { return false }
	expect("", false)
	m.Listed(cluster.ConfigMaps, none)
	expect("", true)
	m.Put(cluster.ConfigMaps, custom)
	m.Listed(cluster.ConfigMaps, has)
	expect("10.0.0.1 a", true)
	m.Listed(cluster.ConfigMaps, none)
	expect("", true)
	m.Put(cluster.ConfigMaps, custom)
	m.Delete(cluster.ConfigMaps, custom.Key())
	m.Listed(cluster.ConfigMaps, has)
	expect("", true)
}
