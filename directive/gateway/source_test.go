package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
)

// Routes are published without the ListenerSets, which a Role may not allow to read, if their own hosts are not to be
// published; and those of ListenerSets once these arrive.
func TestListenerSetsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for options, waits := range map[string]bool{"resources HTTPRoute": false, "resources HTTPRoute ListenerSet": true} {
			h, b := plan(t, options)
			h.source = h.newSource(b)
			r := &rig{h.source, t}
			g := gatewayObject("a", "g", 1, listens("", "Same"))
			g.Sets.From = "Same"
			attached := routeObject("a", "attached", 1, "a/set", "set.example.test")
			attached.Parents[0].Set = true
			r.put(frontend("a", "lb", "g", "10.0.0.1"), g, routeObject("a", "r", 1, "a/g", "w.example.test"), attached)
			for _, kind := range h.api.Kinds() {
				if kind != cluster.ListenerSets {
					r.Listed(kind, func(cluster.Key) bool { return true })
				}
			}

			if r.publishNow() {
				t.Errorf("%s: got published at once, want a wait for the ListenerSets", options)
			}
			time.Sleep(setsWait + time.Second)
			if r.publishNow() == waits {
				t.Errorf("%s: after %v got published %v, want %v", options, setsWait, waits, !waits)
			}
			r.put(&cluster.ListenerSet{Namespace: "a", Name: "set", Gateway: cluster.Key{Namespace: "a", Name: "g"}, Accepted: true,
				Listeners: []cluster.Listener{listens("*.example.test", "Same")}})
			r.Listed(cluster.ListenerSets, func(cluster.Key) bool { return true })
			r.publishNow()
			r.answers(map[string]string{"w.example.test": "10.0.0.1", "set.example.test": "10.0.0.1"})
		}
	})
}
