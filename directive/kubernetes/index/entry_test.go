package index

import (
	"testing"

	"github.com/seamark/seamark/cluster"
)

// Most Services have slices without shared addresses or hostnames: their endpoints and
// records are stored once.
func TestEndpointsStoredOnce(t *testing.T) {
	for _, c := range []struct {
		what   string
		slices []cluster.Object
		apart  bool
	}{
		{"one", []cluster.Object{slice("shop", "a", "db", "sql 5432/tcp", "db-0=10.0.0.1", "!10.0.0.2", "fd00::1")}, true},
		{"two", []cluster.Object{slice("shop", "a", "db", "sql 5432/tcp", "db-0=10.0.0.1"), slice("shop", "b", "db", "", "db-1=fd00::1", "!10.0.0.2")}, true},
		{"an address twice", []cluster.Object{slice("shop", "a", "db", "", "10.0.0.1"), slice("shop", "b", "db", "", "!10.0.0.1")}, false},
		{"a hostname twice", []cluster.Object{slice("shop", "a", "db", "", "db-0=10.0.0.1"), slice("shop", "b", "db", "", "db-0=fd00::1")}, false},
		{"within a slice", []cluster.Object{slice("shop", "a", "db", "", "db-0=10.0.0.1", "db-0=10.0.0.2")}, false},
		{"a hostname like an address", []cluster.Object{slice("shop", "a", "db", "", "10-0-0-9=10.0.0.1")}, false},
	} {
		ix := load(newTestIndex(), append(c.slices, namespaceObject("shop"), headless("shop", "db"))...)
		e := ix.services.Get([]byte("\x02db\x04shop"))
		if apart := e.Merged() == nil; apart != c.apart || e.InParts != (apart && len(c.slices) > 1) {
			t.Errorf("%s: got disjoint %v, records in parts %v, want disjoint %v", c.what, apart, e.InParts, c.apart)
		}
	}
}
