package zone_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// The differences between two random versions lead from one to the other.
func TestDifferences(t *testing.T) {
	lines := pool()
	for seed := range race.Fewer(uint64(40)) {
		rng := rand.New(rand.NewPCG(seed, 2))
		random := func(serial int) *zone.Zone {
			all := []string{fmt.Sprintf("z. 60 SOA a. b. %d 2 3 4 30", serial)}
			for _, line := range lines {
				if rng.IntN(3) == 0 {
					all = append(all, line)
				}
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			return addAll(t, zone.NewBuilder("\x01z\x00"), all)
		}
		old, now := random(1), random(2)
		removed, added, ok := zone.Differences(old, now, zone.MaxJournal)
		if !ok || len(removed) == 0 || len(added) == 0 {
			t.Fatalf("seed %d: got %d and %d bytes, %v", seed, len(removed), len(added), ok)
		}

		got := map[string]bool{}
		for r := range old.Records {
			got[strings.ToLower(string(r))] = true
		}
		zone.EachRecord(removed, func(r []byte) bool {
			if key := strings.ToLower(string(r)); !got[key] {
				t.Errorf("seed %d: removed %q, which the old version does not have", seed, r)
			} else {
				delete(got, key)
			}
			return true
		})
		zone.EachRecord(added, func(r []byte) bool {
			if key := strings.ToLower(string(r)); got[key] {
				t.Errorf("seed %d: added %q, which the old version has", seed, r)
			} else {
				got[key] = true
			}
			return true
		})

		for r := range now.Records {
			key := strings.ToLower(string(r))
			if at, _ := wire.ReadRecord(r, 0); !got[key] && at.Type != wire.TypeSOA {
				t.Errorf("seed %d: the result lacks %q", seed, r)
			}
			delete(got, key)
		}
		if len(got) != 1 { // the old SOA record
			t.Errorf("seed %d: got %d surplus records, want the old SOA record alone", seed, len(got))
		}
		if _, _, ok := zone.Differences(old, now, len(removed)+len(added)-1); ok {
			t.Errorf("seed %d: differences beyond the limit are not refused", seed)
		}
	}
}
