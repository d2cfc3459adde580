package simulation

import (
	"testing"
	"testing/synctest"
	"time"
)

// Changes that the watches have missed are found by the comparison with the API server,
// which is every ten minutes.
func TestMissedEvents(t *testing.T) {
	c := newCertificate(t)
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, t.TempDir(), c)
			for _, name := range namespaceNames {
				w.api.cluster.put(namespaces, object{key: key{"", name}})
			}
			for range 25 {
				w.trace("%s", w.api.cluster.change(w.Rand))
			}
			w.load(w.random(nil))
			time.Sleep(time.Minute)
			w.api.lossy.Store(true)
			for range 10 {
				w.trace("%s", w.api.cluster.change(w.Rand))
				time.Sleep(time.Second)
			}
			w.api.lossy.Store(false)
			time.Sleep(14 * time.Minute)
			w.converged()
			w.end()
			if len(w.failures) > 0 {
				t.Error(w.report())
			}
		})
	}
}
