package builtin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/race"
)

// usedMemory returns what each part of a budget uses, without that of the listeners: it depends on how many
// queries were answered at the same time, and that of TCP ends at a garbage collection.
func usedMemory(b *memory.Budget) (used [memory.NumConsumers]int64) {
	for c := range memory.NumConsumers {
		used[c] = b.Part(c).Used
	}
	used[memory.Listeners] = 0
	return used
}

// writeZone writes a zone file with so many addresses.
func writeZone(t *testing.T, path string, serial, names int) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "$TTL 60\n@ SOA ns host %d 1 1 1 1\n", serial)
	for i := range names {
		fmt.Fprintf(&text, "n%d A 192.0.2.1\n", i)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a configuration uses of the memory is the same after each reload, whether that changes
// everything, nothing or fails: an unchanged zone file is read once for all server blocks, and a
// changed one has no need of more than there is.
func TestReloadsKeepMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	const names = 33_000 // need almost half of the part of the zones in a control group of 64 MB
	dir := t.TempDir()
	db, hosts := filepath.Join(dir, "db"), filepath.Join(dir, "hosts")
	writeZone(t, db, 1, names)
	if err := os.WriteFile(hosts, []byte("192.0.2.1 a.example.net\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	ports := []any{freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)}
	const block = "example.org:%s {\n bind 127.0.0.1\n file " + "DB {\n reload 0\n}\n}\n"
	full := strings.ReplaceAll(fmt.Sprintf(block+block+block+".:%s {\n bind 127.0.0.1\n cache\n hosts "+hosts+" {\n fallthrough\n}\n forward . "+upstream(t)+"\n}\n", ports...), "DB", db)
	other := fmt.Sprintf(".:%s {\n bind 127.0.0.1\n whoami\n}\n", freeport.Reserve(t))

	o := server.Options{
		Directives: Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
		Memory: memory.New(35<<20, memory.FromGroup), Shared: new(config.Shared),
	}
	var plan *server.Plan
	t.Cleanup(func() { plan.Stop(context.Background()) })
	load := func(text string) error {
		blocks, err := corefile.Parse("Corefile", []byte(text))
		if err != nil {
			return err
		}
		next, err := server.NewPlan(blocks, o)
		if err == nil {
			err = next.Start(t.Context(), plan)
		}
		if err == nil {
			plan = next
		}
		return err
	}
	if err := load(full); err != nil {
		t.Fatal(err)
	}
	start := usedMemory(o.Memory)
	if zones := start[memory.Zones]; zones < 2<<20 || 2*zones < o.Memory.Max(memory.Zones)*9/10 {
		t.Fatalf("the zones use %d bytes of %d: the test needs half of them", zones, o.Memory.Max(memory.Zones))
	}

	same := func(what string) {
		t.Helper()
		if got := usedMemory(o.Memory); got != start {
			t.Fatalf("%s: got %v bytes used, want %v", what, got, start)
		}
	}
	for i := range 4 {
		if err := load(full + fmt.Sprintf("# %d\n", i)); err != nil {
			t.Fatal(err)
		}
		same("the same again")
		for _, wrong := range []string{
			"example.com:53 {\n file " + filepath.Join(dir, "missing") + "\n}\n",
			"example.com:53 {\n bind 192.0.2.1\n whoami\n}\n",
		} {
			if err := load(strings.ReplaceAll(full, "reload 0", "reload 1h") + wrong); err == nil {
				t.Fatal("a wrong Corefile is accepted")
			}
			same("after a reload that failed")
		}

		r, err := dns.Exchange(new(dns.Msg).SetQuestion("a.example.com.", dns.TypeA), fmt.Sprintf("127.0.0.1:%s", ports[3]))
		if err != nil || len(r.Answer) != 1 {
			t.Fatal(r, err)
		}
		if err := load(other); err != nil {
			t.Fatal(err)
		}
		if used := usedMemory(o.Memory); used != [memory.NumConsumers]int64{} {
			t.Fatalf("without all that: got %v bytes used, want none", used)
		}
		if err := load(full); err != nil {
			t.Fatal(err)
		}
		same("back again")
	}

	serial := func() string {
		r, err := dns.Exchange(new(dns.Msg).SetQuestion("example.org.", dns.TypeSOA), fmt.Sprintf("127.0.0.1:%s", ports[0]))
		if err != nil || len(r.Answer) != 1 {
			t.Fatal(r, err)
		}
		return strings.Fields(r.Answer[0].String())[6]
	}
	for _, c := range []struct {
		serial, names int
		want          string
	}{{2, names, "2"}, {3, 4 * names, "2"}, {4, names, "4"}} {
		writeZone(t, db, c.serial, c.names)
		if err := load(full + fmt.Sprintf("# %d\n", c.serial)); err != nil {
			t.Fatal(err)
		}
		if got := serial(); got != c.want {
			t.Errorf("serial number %d with %d names: got %s, want %s", c.serial, c.names, got, c.want)
		}
		same("after a new version")
	}
}
