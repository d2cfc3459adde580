package dns

import (
	"slices"
	"sync"
	"testing"
)

// Each chain has its own, made once, whoever comes first.
func TestPerChain(t *testing.T) {
	var p PerChain[string]
	var mu sync.Mutex
	var made []string
	begin := func(c *Chain) *string {
		mu.Lock()
		defer mu.Unlock()
		made = append(made, c.Zone)
		return &c.Zone
	}
	a, b := &Chain{Zone: "a."}, &Chain{Zone: "b."}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, c := range []*Chain{a, b} {
				if got := p.At(c, begin); got != &c.Zone {
					t.Errorf("got that of %s, want %s", *got, c.Zone)
				}
			}
		})
	}
	all.Wait()
	if slices.Sort(made); !slices.Equal(made, []string{"a.", "b."}) {
		t.Errorf("made for %q", made)
	}
	var there []string
	for s := range p.All() {
		there = append(there, *s)
	}
	if slices.Sort(there); !slices.Equal(there, made) {
		t.Errorf("there are %q, want %q", there, made)
	}
}
