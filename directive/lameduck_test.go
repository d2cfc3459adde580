package directive

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
)

// Blocks wait at the same time, each for its own duration, and stop waiting
// when the context ends.
func TestLameduckSeveralBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var blocks []*config.Block
		for _, text := range []string{"lameduck 5s", "lameduck 3s", "lameduck 0s", "health {\nlameduck 2s\n}\nlameduck 4s"} {
			b, err := plan(t, ".:53 {\n"+text+"\n}")
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, b)
		}
		for i, want := range []time.Duration{5 * time.Second, 3 * time.Second, 0, 4 * time.Second} {
			start := time.Now()
			config.Shutdown(t.Context(), blocks[i])
			if took := time.Since(start); took != want {
				t.Errorf("block %d: Shutdown took %v, want %v", i, took, want)
			}
		}
		start := time.Now()
		config.Shutdown(t.Context(), blocks...)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("all blocks: Shutdown took %v, want 5s", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		config.Shutdown(ended, blocks...)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("ended context: Shutdown took %v, want 0s", took-5*time.Second)
		}
	})
	wantErrors(t, ".:53 {\nlameduck\nlameduck 1s 2s {\nx\n}\n}", `Corefile:2: lameduck: want 1 argument, got 0
Corefile:3: lameduck: already given at Corefile:2, and can be given once in a server block`)
	wantErrors(t, ".:53 {\nlameduck 2h {\nx\n}\n}", `Corefile:2: lameduck: want a duration of 0s..1h, got "2h"
Corefile:3: lameduck: takes no options, got "x"`)
}
