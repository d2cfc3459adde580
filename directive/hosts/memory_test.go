package hosts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
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
	board := new(health.Board)
	from := source{paths: []string{file}, zones: []wire.Name{wire.Root}, memory: b, health: board}
	wantCondition := func(severity health.Severity, text string) {
		t.Helper()
		all := board.Conditions()
		if text == "" && len(all) == 0 {
			return
		}
		if len(all) != 1 || all[0].Severity != severity || all[0].Object != file || !strings.Contains(all[0].Text, text) {
			t.Errorf("got the conditions %v, want one that is %s with %q", all, severity, text)
		}
	}
	table := newTable(from, log.Logger(), new(metrics.Registry))
	small, entries := used(), table.index.Load().entries
	lines(100_000)
	table.refresh(table.files...)
	if got := table.index.Load().entries; got != entries || used() != small || small == 0 {
		t.Errorf("got %d entries and %d bytes reserved, want %d and %d", got, used(), entries, small)
	}
	if !strings.Contains(log.String(), keptMessage) || !strings.Contains(log.String(), "no memory for more files") {
		t.Errorf("the log lacks the reason:\n%s", log)
	}

	wantCondition(health.Warning, "keeps its previous lines: no memory for more files")

	lines(200)
	table.refresh(table.files...)
	if got := table.index.Load().entries; got != 2*entries || used() <= small || used() > 3*small {
		t.Errorf("200 lines: got %d entries and %d bytes reserved, want %d and about %d", got, used(), 2*entries, 2*small)
	}
	wantCondition("", "")
	table.Stop()

	// The first start is without the lines, and says so until there is room.
	lines(100_000)
	table = newTable(from, log.Logger(), new(metrics.Registry))
	wantCondition(health.Critical, "has no lines: no memory for more files")
	lines(200)
	table.refresh(table.files...)
	wantCondition("", "")
	lines(100_000)
	table.refresh(table.files...)
	table.Stop()
	wantCondition("", "")
	if used() != 0 {
		t.Errorf("after Stop: %d bytes reserved, want 0", used())
	}
}

// A file for which there was no memory is read again while there is none, and once there is some.
func TestFileReadOnceThereIsMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, strings.Repeat("10.0.0.1 a.example.test\n", 2000))
	synctest.Test(t, func(t *testing.T) {
		budget, board := memory.New(16<<20, memory.FromGroup), new(health.Board)
		others := budget.Part(memory.Files).Max
		budget.Force(memory.Files, others)
		from := source{
			paths: []string{file}, zones: []wire.Name{wire.Root}, memory: budget, health: board, reload: time.Hour, polls: true,
		}
		table := newTable(from, chaintest.QuietLog(), new(metrics.Registry)).start()
		defer table.Stop()
		time.Sleep(3*shortInterval + time.Second)
		if got := table.index.Load().entries; got != 0 || len(board.Conditions()) != 1 {
			t.Errorf("without memory: got %d entries and the conditions %v, want none and one", got, board.Conditions())
		}

		budget.Release(memory.Files, others)
		time.Sleep(shortInterval)
		if got := table.index.Load().entries; got == 0 || len(board.Conditions()) != 0 {
			t.Errorf("with memory: got %d entries and the conditions %v, want some and none", got, board.Conditions())
		}
	})
}

// A file of a directory for which there is no memory is left out, and those before and after it are read.
func TestFileMemoryRefusedInDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1"), "10.0.0.1 first.test\n")
	write(t, filepath.Join(dir, "2"), strings.Repeat("10.0.0.2 large.example.test\n", 100_000))
	write(t, filepath.Join(dir, "3"), "10.0.0.3 last.test\n")
	from := source{
		paths: []string{dir}, zones: []wire.Name{wire.Root}, memory: memory.New(8<<20, memory.FromGroup), health: new(health.Board),
	}
	table := newTable(from, chaintest.QuietLog(), new(metrics.Registry))
	defer table.Stop()

	var got []string
	for _, text := range table.files[0].texts {
		got = append(got, filepath.Base(text.name))
	}
	if want := []string{"1", "3"}; !slices.Equal(got, want) {
		t.Errorf("got the files %q, want %q", got, want)
	}
}

// A reload with other options that has no memory for a file beside its lines in the old plan fails.
func TestReloadMemoryRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, strings.Repeat("10.0.0.1 a.example.test b.example.test\n", 2000))
	budget := memory.New(16<<20, memory.FromGroup)
	begin := func(options string, old *config.Start) (*Handler, *config.Start, error) {
		t.Helper()
		b, h, err := set(t, "hosts "+file+" {\n reload 0\n "+options+"\n}", new(chaintest.Log))
		if err != nil {
			t.Fatal(err)
		}
		b.Memory = budget
		s := config.NewStart(t.Context(), old)
		return h, s, b.Started(s)
	}

	h, first, err := begin("", nil)
	if err != nil || h.table.index.Load().entries == 0 {
		t.Fatalf("at the start: got error %v, want lines", err)
	}
	first.Commit()
	defer first.Stop()
	used := budget.Part(memory.Files).Used
	others := budget.Part(memory.Files).Max - used - 1<<10
	budget.Force(memory.Files, others)
	_, second, err := begin("no_reverse", first)
	second.Abort()
	if !errors.As(err, new(*memory.Error)) || !strings.Contains(err.Error(), file) {
		t.Errorf("reload: got error %v, want that there is no memory for the file", err)
	}
	budget.Release(memory.Files, others)
	if got := budget.Part(memory.Files).Used; got != used {
		t.Errorf("after the failed reload: got %d bytes reserved, want %d", got, used)
	}
}
