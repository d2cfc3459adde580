package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seamark/seamark/sys/memory"
)

const mb = 1 << 20

// For every total the minimums and what is kept for own data leave something to share, from the
// smallest container of a cluster's DNS on, and no maximum is below its minimum.
func TestBudgetParts(t *testing.T) {
	for _, total := range []int64{32 * mb, 35 * mb, 130 * mb, 512 * mb, 8 << 30, 1 << 40} {
		b := memory.New(total, memory.FromGroup)
		sum := b.Own()
		for c := range memory.NumConsumers {
			p := b.Part(c)
			if sum += p.Min; p.Min <= 0 || p.Max < p.Min || b.Max(c) < p.Min || b.Max(c) > total {
				t.Errorf("total %d: %s has %+v and at most %d", total, c, p, b.Max(c))
			}
		}
		if sum > total {
			t.Errorf("total %d: minimums and own data need %d", total, sum)
		}
	}
}

// What a usual configuration needs is there at 64 MB, and a large machine has the limits that
// hold without a budget.
func TestBudgetStandard(t *testing.T) {
	for _, tt := range []struct {
		total    int64
		consumer memory.Consumer
		want     int64
	}{
		{35 * mb, memory.Cache, 5 * mb}, // ten thousand answers
		{1 << 30, memory.Cache, 64 * mb},
		{1 << 30, memory.Waiting, 96 * mb},
		{1 << 30, memory.Replies, 16 * mb},
		{4 << 30, memory.Catalogs, 512 * mb},
		{4 << 30, memory.Transfers, 1 << 30},
	} {
		if got := memory.New(tt.total, memory.FromMachine).Max(tt.consumer); got != tt.want {
			t.Errorf("total %d: %s has at most %d, want %d", tt.total, tt.consumer, got, tt.want)
		}
	}
	var none *memory.Budget
	if got := none.Max(memory.Cache); got != 64*mb || none.Reserve(memory.Cache, 1<<40) != nil {
		t.Errorf("without a budget: cache has %d, want 64 MB and everything reserved", got)
	}
}

// However consumers grow, together they never have more than the total without the own data, and
// each gets its minimum at any time.
func TestBudgetMinimums(t *testing.T) {
	for first := range memory.NumConsumers {
		b := memory.New(64*mb, memory.FromGroup)
		var used int64
		for i := range memory.NumConsumers {
			c := (first + i) % memory.NumConsumers
			for b.Reserve(c, 4096) == nil {
				used += 4096
			}
			if p := b.Part(c); p.Used+4096 <= p.Min || p.Refused == 0 {
				t.Errorf("%s first: %s was refused with %+v, want its minimum first", first, c, p)
			}
		}
		if used > b.Total()-b.Own() {
			t.Errorf("%s first: %d bytes in use, want at most %d", first, used, b.Total()-b.Own())
		}
	}
}

// Free is what Reserve grants, whatever others have.
func TestBudgetFree(t *testing.T) {
	b := memory.New(64*mb, memory.FromGroup)
	for _, bytes := range []int64{0, mb, 4 * mb, 100 * mb} {
		for b.Reserve(memory.Zones, 4096) == nil && b.Part(memory.Zones).Used < bytes {
		}
		b.Force(memory.Followers, 5000)
		for c := range memory.NumConsumers {
			free := b.Free(c)
			if err := b.Reserve(c, free); err != nil {
				t.Errorf("zones have %d bytes: %s: got %v for the %d bytes that are free", bytes, c, err, free)
			}
			if b.Reserve(c, 1) == nil || b.Free(c) != 0 {
				t.Errorf("zones have %d bytes: %s: got more than the %d bytes that are free", bytes, c, free)
			}
			b.Release(c, free)
		}
	}
	b.Force(memory.Followers, 1<<30)
	if free := b.Free(memory.Followers); free != 0 {
		t.Errorf("beyond the maximum: got %d free bytes, want 0", free)
	}
	if free := (*memory.Budget)(nil).Free(memory.Followers); free <= 0 {
		t.Errorf("without a budget: got %d free bytes", free)
	}
}

// What one consumer releases others can have, and Force counts what is in use already.
func TestBudgetRelease(t *testing.T) {
	b := memory.New(64*mb, memory.FromGroup)
	most := b.Max(memory.Zones)
	if err := b.Reserve(memory.Zones, most); err != nil {
		t.Fatal(err)
	}

	var refused *memory.Error
	if err := b.Reserve(memory.Files, b.Part(memory.Files).Min+1); !errors.As(err, &refused) || refused.Consumer != memory.Files {
		t.Errorf("got %v, want an error of files", err)
	}
	want := fmt.Sprintf("no memory for more zones: they can have %s at most, and less while other parts of the server are full: "+
		"raise the memory limit", memory.Size(most))
	if err := b.Reserve(memory.Zones, mb); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	b.Release(memory.Zones, most)
	if err := b.Reserve(memory.Files, b.Max(memory.Files)); err != nil {
		t.Errorf("after Release: %v", err)
	}
	b.Force(memory.Zones, most)
	if p := b.Part(memory.Zones); p.Used != most {
		t.Errorf("after Force: %+v, want %d in use", p, most)
	}
	if b.Reserve(memory.Zones, 1) == nil {
		t.Error("got more than the total")
	}
}

// A consumer gets a larger maximum, but never the minimum of others.
func TestBudgetRaise(t *testing.T) {
	b := memory.New(130*mb, memory.FromGroup)
	standard := b.Max(memory.Cache)
	b.Raise(memory.Cache, 1<<30)
	shared := b.Total() - b.Own()
	for c := range memory.NumConsumers {
		shared -= b.Part(c).Min
	}
	if got, want := b.Max(memory.Cache), b.Part(memory.Cache).Min+shared; got != want || got <= standard {
		t.Errorf("got at most %d, want %d, more than %d", got, want, standard)
	}
	b.Raise(memory.Cache, mb)
	if got := b.Max(memory.Cache); got != standard {
		t.Errorf("raised to less: got at most %d, want %d", got, standard)
	}
}
