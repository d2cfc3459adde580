package traffic

import (
	"reflect"
	"strings"
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

// The rows of a list are its entries and groups by their counts.
func TestTopRowsAreSorted(t *testing.T) {
	top := Top{
		Entries: []Entry{{Key: "a", Count: 9}, {Key: "b", Count: 3}, {Key: "c", Count: 3}},
		Groups:  []Group{{Parent: "large", Count: 90}, {Parent: "small", Count: 1}},
	}
	var got []string
	for _, r := range top.Rows() {
		if r.Group != nil {
			got = append(got, r.Group.Parent)
		} else {
			got = append(got, r.Entry.Key)
		}
	}
	if want := "large a b c small"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestCommas(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567", -1000: "-1,000", -123: "-123"} {
		if got := Commas(f); got != want {
			t.Errorf("%v: got %s, want %s", f, got, want)
		}
	}
}
