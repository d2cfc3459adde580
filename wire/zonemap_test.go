package wire

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The longest zone is found whether the zones are few or many.
func TestZoneMapAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func() (n Name) {
		for n = Root; r.IntN(4) > 0 && n.Labels() < 6; {
			n = n.Join([]string{"\x01a", "\x01b", "\x02aa", "\x01\x00"}[r.IntN(4)])
		}
		return n
	}
	for round := range 400 {
		var m ZoneMap[int]
		zones := map[Name]int{}
		var added []Name
		for i := range r.IntN(2 * maxScanned) {
			z := name()
			m.Set(z, i)
			if _, again := zones[z]; !again {
				added = append(added, z)
			}
			zones[z] = i
			if m.Get(z) != i {
				t.Fatalf("round %d: Get of %v: %d, want %d", round, z, m.Get(z), i)
			}
		}
		if !maps.Equal(m.All(), zones) || !slices.Equal(m.Zones(), added) {
			t.Fatalf("round %d: zones %v in the order %v, want %v, %v", round, m.All(), m.Zones(), zones, added)
		}
		for range 20 {
			n := name()
			var q Request
			q.Parse(AppendRequest(nil, 0, 0, []byte(n), TypeA))
			for from := range q.Labels() + 2 {
				wantValue, wantAt := 0, -1
				for z, v := range zones {
					if at := q.Labels() - z.Labels(); n.Within(z) && at >= from && (wantAt < 0 || at < wantAt) {
						wantValue, wantAt = v, at
					}
				}
				if v, at := m.Longest(&q, from); v != wantValue || at != wantAt {
					t.Fatalf("round %d: %v from label %d, in %v: got %d at label %d, want %d at %d", round, n, from, zones, v, at, wantValue, wantAt)
				}
				want := 0
				if wantAt >= 0 {
					want = len(n) - q.LabelOffset(wantAt)
				}
				if v, got := m.LongestOf([]byte(n)); from == 0 && (got != want || v != wantValue) {
					t.Fatalf("round %d: %v in %v: got a zone of %d bytes, want %d", round, n, zones, got, want)
				}
			}
		}
	}
}

// A message without a name, as an invalid NOTIFY, is in the root zone alone.
func TestZoneMapWithoutName(t *testing.T) {
	for zones := range 2 * maxScanned {
		for _, root := range []bool{false, true} {
			var m ZoneMap[int]
			for i := range zones {
				m.Set(Root.Join("\x01"+string(rune('a'+i))), i)
			}
			wantValue, wantAt := 0, -1
			if root {
				m.Set(Root, 100)
				wantValue, wantAt = 100, 0
			}

			if v, at := m.Longest(new(Request), 0); v != wantValue || at != wantAt {
				t.Errorf("%d zones, root %v: got %d at label %d, want %d at %d", zones, root, v, at, wantValue, wantAt)
			}
			if _, at := m.Longest(new(Request), 1); at != -1 {
				t.Errorf("%d zones, root %v, from label 1: got label %d, want -1", zones, root, at)
			}
		}
	}
}

func TestZoneMapAllocatesNothing(t *testing.T) {
	var few, many ZoneMap[int]
	for i := range maxScanned + 1 {
		many.Set(Root.Join("\x01"+string(rune('a'+i))), i)
	}
	few.Set("\x01b\x00", 1)
	var q Request
	q.Parse(AppendRequest(nil, 0, 0, []byte("\x03www\x01b\x00"), TypeA))
	for _, m := range []*ZoneMap[int]{&few, &many} {
		if n := testing.AllocsPerRun(100, func() {
			if v, at := m.Longest(&q, 0); v != 1 || at != 1 || !m.HasLongerZone(Root, q.Name()) {
				t.Errorf("%d zones: got %d at label %d, want 1 at 1", len(m.All()), v, at)
			}
		}); n != 0 {
			t.Errorf("%d zones: %v allocations, want 0", len(m.All()), n)
		}
	}
}
