package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A hosts file for which there is no memory is refused: the lines before it are kept, and only
// these are reserved.
func TestFileMemoryRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	lines := func(n int) {
		t.Helper()
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "10.0.%d.%d h%d.test\n", i>>8&255, i&255, i)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, log := memory.New(8<<20, memory.FromGroup), new(chaintest.Log)
	used := func() int64 { return b.Part(memory.Files).Used }

	lines(100)
	from := source{paths: []string{file}, zones: []wire.Name{wire.Root}, memory: b}
	table := newTable(from, log.Logger(), newCounts(new(metrics.Registry)))
	small, entries := used(), table.index.Load().entries
	lines(100_000)
	table.refresh(table.files...)
	if got := table.index.Load().entries; got != entries || used() != small || small == 0 {
		t.Errorf("got %d entries and %d bytes reserved, want %d and %d", got, used(), entries, small)
	}
	if !strings.Contains(log.String(), keptMessage) || !strings.Contains(log.String(), "no memory for more files") {
		t.Errorf("the log lacks the reason:\n%s", log)
	}

	lines(200)
	table.refresh(table.files...)
	if got := table.index.Load().entries; got != 2*entries || used() <= small || used() > 3*small {
		t.Errorf("200 lines: got %d entries and %d bytes reserved, want %d and about %d", got, used(), 2*entries, 2*small)
	}
	table.Stop()
	if used() != 0 {
		t.Errorf("after Stop: %d bytes reserved, want 0", used())
	}
}
