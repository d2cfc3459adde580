package records

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/race"
)

// An event is a new state of an object, nil if it is deleted.
type event struct {
	key    cluster.Key
	object cluster.Object
}

// randomEvents returns events of objects of two namespaces, which have more objects and records than most,
// as many as may fit, and which share names.
func randomEvents(random *rand.Rand, most int) (events []event) {
	created := map[cluster.Key]int64{}
	for range 20 * most {
		key := cluster.Key{Namespace: []string{"a", "b"}[random.IntN(2)], Name: string('a' + rune(random.IntN(2*most)))}
		if created[key] != 0 && random.IntN(4) == 0 {
			delete(created, key)
			events = append(events, event{key, nil})
			continue
		}
		if created[key] == 0 || random.IntN(8) == 0 {
			created[key] = int64(1 + random.IntN(4))
		}
		var text strings.Builder
		for range random.IntN(most + 1) {
			fmt.Fprintf(&text, "%s.shared.example.test. A 10.0.0.%d\n", [...]string{"v", "w", "x", "y", "*"}[random.IntN(5)], random.IntN(9))
		}
		events = append(events, event{key, configMap(key.String(), created[key], "zone", text.String())})
	}
	return events
}

// shuffled returns events in another order. Those of one object stay in order, as a watch delivers them.
func shuffled(random *rand.Rand, events []event) (all []event) {
	byKey := map[cluster.Key][]event{}
	for _, e := range events {
		byKey[e.key] = append(byKey[e.key], e)
	}
	for _, i := range random.Perm(len(events)) {
		key := events[i].key
		all = append(all, byKey[key][0])
		byKey[key] = byKey[key][1:]
	}
	return all
}

// state describes what a rig answers, what is wrong with its objects, and what they use.
func (r *rig) state() string {
	text := fmt.Sprintf("%v\n%+v\n", r.Errors(), r.Counts())
	for _, name := range []string{"v", "w", "x", "y", "z"} {
		text += r.answer(name+".shared.example.test", "A") + "\n"
	}
	return text
}

// The state after some events does not depend on their order, also if a namespace has more objects and
// records than it may have: servers that run for different times answer equally.
func TestObjectsOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for seed := range uint64(race.Fewer(20)) {
		random := rand.New(rand.NewPCG(seed, 2))
		most := 3 + random.IntN(6)
		events := randomEvents(random, most)
		want := ""
		for order := range 6 {
			r := newRig(t, strings.Replace(twoTenants, "max_records 100", fmt.Sprint("max_records ", most), 1))
			if order%2 == 0 {
				r.list()
			}
			for _, e := range shuffled(random, events) {
				if e.object == nil {
					r.Delete(cluster.ConfigMaps, e.key)
				} else {
					r.Put(cluster.ConfigMaps, e.object)
				}
				switch random.IntN(4) {
				case 0:
					r.settle()
				case 1:
					r.Step()
				}
			}
			r.settle()
			if order%2 == 1 {
				r.list(r.present()...)
			}

			if got := r.state(); order == 0 {
				want = got
			} else if got != want {
				t.Fatalf("seed %d, max_records %d, order %d: got\n%s\nwant\n%s", seed, most, order, got, want)
			}
		}
	}
}

// present returns the objects of the source.
func (r *rig) present() (all []cluster.Object) {
	for _, o := range r.source {
		all = append(all, o)
	}
	return all
}
