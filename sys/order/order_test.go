package order

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type element struct {
	key, place int
}

func byKey(a, b element) int { return cmp.Compare(a.key, b.key) }

func TestSliceAsPackageSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		input := make([]element, n)
		for i := range input {
			input[i] = element{r.IntN(n/2 + 1), i}
		}
		got, want := slices.Clone(input), slices.Clone(input)
		SliceStable(got, byKey)
		slices.SortStableFunc(want, byKey)
		if !slices.Equal(got, want) {
			t.Fatalf("SliceStable of %v: %v, want %v", input, got, want)
		}
		full := func(a, b element) int { return cmp.Or(byKey(a, b), cmp.Compare(b.place, a.place)) }
		got, want = slices.Clone(input), slices.Clone(input)
		Slice(got, full)
		slices.SortFunc(want, full)
		if !slices.Equal(got, want) {
			t.Fatalf("Slice of %v: %v, want %v", input, got, want)
		}
	}
}
