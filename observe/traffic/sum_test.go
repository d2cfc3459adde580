package traffic

import (
	"reflect"
	"testing"
	"time"
)

// The counts of replicas are added by key, and the shares are those of all queries.
func TestSumAddsCountsOfReplicas(t *testing.T) {
	got := Sum([]Top{
		{By: "names", Window: time.Minute, Sampled: 1, Total: 60,
			Entries: []Entry{{Key: "a.", Count: 30, Share: 0.5}, {Key: "b.", Count: 20, Excess: 2, Share: 0.4}},
			Groups:  []Group{{Parent: "x.", Count: 10, Names: 10, Clients: 3, Example: "192.0.2.1"}}},
		{By: "names", Window: 2 * time.Minute, Sampled: 0.5, Total: 40,
			Entries: []Entry{{Key: "b.", Count: 15, Excess: 1, Share: 0.4, Namespace: "shop"}, {Key: "c.", Count: 5}},
			Groups:  []Group{{Parent: "x.", Count: 20, Names: 20, Clients: 2, Example: "192.0.2.2"}}},
	}, 2)
	want := Top{By: "names", Window: 2 * time.Minute, Sampled: 0.5, Total: 100,
		Entries: []Entry{{Key: "b.", Count: 35, Excess: 3, Share: 0.35, Namespace: "shop"}, {Key: "a.", Count: 30, Share: 0.3}},
		Groups:  []Group{{Parent: "x.", Count: 30, Share: 0.3, Names: 30, Clients: 3, Example: "192.0.2.2"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
