package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// A mapTable is a Table that one goroutine uses.
type mapTable map[wire.Name]*Entry

func (m mapTable) Get(name wire.Name) *Entry    { return m[name] }
func (m mapTable) Set(name wire.Name, e *Entry) { m[name] = e }
func (m mapTable) Delete(name wire.Name)        { delete(m, name) }

// readNames reads ConfigMaps whose keys are names.
func readNames(o cluster.Object, _ int) *Content {
	c := new(Content)
	for key, value := range o.(*cluster.ConfigMap).Data {
		name, err := wire.ParseName(key)
		if err != nil {
			c.Fail(key, 0, err)
			continue
		}
		c.Packed = string(AppendName([]byte(c.Packed), name, []byte(value)))
		c.Count++
		c.Used++
	}
	return c
}

// newObjects returns objects without a source, and their table. A namespace may have two names.
func newObjects(budget *memory.Budget) (*Objects, mapTable) {
	table := mapTable{}
	s := Settings{Directive: "test", Noun: "names", Read: readNames, Most: 2, API: cluster.Options{ConfigMapLabels: "x"}}
	b := &config.Block{
		Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Shared: new(config.Shared), Memory: budget,
	}
	return New(s, table, b), table
}

func configMap(name string, created int64, names ...string) *cluster.ConfigMap {
	m := &cluster.ConfigMap{Namespace: "a", Name: name, Created: created, Data: map[string]string{}}
	for _, one := range names {
		m.Data[one] = name
	}
	return m
}

// settle applies the changes that wait.
func (x *Objects) settle() {
	for x.Step() < Idle && len(x.turns.waiting) > 0 {
	}
}

func mustName(text string) wire.Name {
	name, err := wire.ParseName(text)
	if err != nil {
		panic(err)
	}
	return name
}

// what returns what the table has of a name, or "".
func (m mapTable) what(name string) string {
	if e := m[mustName(name)]; e != nil {
		return e.Value
	}
	return ""
}

// An object that fits again is read from its source. If the watch delivers another state meanwhile, that
// is the newer one; and a source that fails is asked again.
func TestReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, table := newObjects(nil)
		asked := 0
		read := func() (cluster.Object, error) { return nil, errors.New("away") }
		x.SetReader(func(context.Context, cluster.Kind, cluster.Key) (cluster.Object, error) {
			asked++
			return read()
		})
		free := func(n int64) {
			x.Put(cluster.ConfigMaps, configMap("old", n, "a.test", "b.test"))
			x.settle()
			x.Put(cluster.ConfigMaps, configMap("young", 100, "young.test"))
			x.settle()
			if got := table.what("young.test"); got != "" {
				t.Fatalf("the younger object has a name, and no room")
			}
			x.Delete(cluster.ConfigMaps, cluster.Key{Namespace: "a", Name: "old"})
			x.settle()
		}

		free(1)
		if wait := x.Reread(t.Context()); wait != 0 || asked != 1 {
			t.Errorf("asked %d times, and then waits %v; want once", asked, wait)
		}
		if wait := x.Reread(t.Context()); wait != rereadWait || asked != 1 {
			t.Errorf("after an error: asked %d times, and then waits %v; want once, and %v", asked, wait, rereadWait)
		}
		time.Sleep(rereadWait)
		read = func() (cluster.Object, error) { return configMap("young", 100, "young.test"), nil }
		x.Reread(t.Context())
		x.settle()
		if got := table.what("young.test"); got != "young" || asked != 2 || len(x.wanted) != 0 {
			t.Errorf("read again: got %q, asked %d times, %d are wanted; want the name, twice and none", got, asked, len(x.wanted))
		}

		free(2)
		read = func() (cluster.Object, error) {
			x.Put(cluster.ConfigMaps, configMap("young", 100, "newer.test"))
			return configMap("young", 100, "young.test"), nil
		}
		x.Reread(t.Context())
		x.settle()
		if table.what("newer.test") != "young" || table.what("young.test") != "" {
			t.Error("an object that was read again replaced a newer state of the watch")
		}
	})
}

// An object for which there is no memory is read again until there is.
func TestRereadMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := memory.New(64<<20, memory.FromMachine)
		x, table := newObjects(budget)
		object := configMap("one", 1, "a.test")
		x.SetReader(func(context.Context, cluster.Kind, cluster.Key) (cluster.Object, error) { return object, nil })
		other := budget.Claim(memory.Files)
		for taken := int64(64 << 10); other.Grow(taken) == nil; taken += 64 << 10 {
		}

		x.Put(cluster.ConfigMaps, object)
		x.settle()
		if len(x.Errors()) != 1 || table.what("a.test") != "" {
			t.Fatalf("got errors %v and %q, want an error, and no name without memory", x.Errors(), table.what("a.test"))
		}
		if wait := x.Reread(t.Context()); wait != memoryWait {
			t.Errorf("waits %v, want %v", wait, memoryWait)
		}
		other.Release()
		time.Sleep(memoryWait)
		x.Reread(t.Context())
		x.settle()
		if len(x.Errors()) != 0 || table.what("a.test") != "one" {
			t.Errorf("got errors %v and %q, want the name", x.Errors(), table.what("a.test"))
		}
	})
}

// Objects that arrive when there is no room in the turns are read again, and none is lost.
func TestRereadTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, table := newObjects(nil)
		large := map[string]*cluster.ConfigMap{}
		x.SetReader(func(_ context.Context, _ cluster.Kind, key cluster.Key) (cluster.Object, error) {
			return large[key.Name], nil
		})
		for i := range 4 {
			m := configMap(fmt.Sprint("m", i), int64(i))
			m.Data[fmt.Sprintf("m%d.test", i)] = string(make([]byte, waitingLimit/2-100))
			large[m.Name] = m
			x.Put(cluster.ConfigMaps, m)
		}
		if len(x.wanted) != 2 {
			t.Errorf("%d objects are read again, want 2", len(x.wanted))
		}
		x.settle()
		time.Sleep(rereadWait)
		for x.Reread(t.Context()) == 0 {
		}
		x.settle()
		if table.what("m0.test") == "" || table.what("m1.test") == "" || table.what("m2.test") != "" || len(slices.Collect(x.known())) != 4 || len(x.wanted) != 0 {
			t.Errorf("got %d objects, of which %d are wanted, and the names of %d; want 4, none, and the two oldest",
				len(slices.Collect(x.known())), len(x.wanted), len(table))
		}
	})
}

// A newer state that has no room in the turns is read again, and the older one that waits is not applied: the watch
// does not repeat what it has delivered. Until then the objects of the first list have not all been read.
func TestRereadNewerState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, table := newObjects(nil)
		newer := configMap("one", 1, "newer.test")
		newer.Data["newer.test"] = strings.Repeat("n", waitingLimit/2)
		x.SetReader(func(context.Context, cluster.Kind, cluster.Key) (cluster.Object, error) { return newer, nil })

		other := configMap("other", 2, "other.test")
		other.Data["other.test"] = strings.Repeat("o", waitingLimit/2)
		x.Put(cluster.ConfigMaps, other)
		x.Put(cluster.ConfigMaps, configMap("one", 1, "older.test"))
		x.Put(cluster.ConfigMaps, newer)
		x.Listed(cluster.ConfigMaps, func(cluster.Key) bool { return true })
		x.settle()
		if got := table.what("older.test"); got != "" || x.IsSynced() {
			t.Errorf("before the newer state is read: got the older one %q, synced %t; want none, not synced", got, x.IsSynced())
		}

		time.Sleep(rereadWait)
		for x.Reread(t.Context()) == 0 {
		}
		x.settle()
		if table.what("newer.test") == "" || table.what("older.test") != "" || !x.IsSynced() {
			t.Errorf("got %d names, synced %t; want the newer state, synced", len(table), x.IsSynced())
		}

		// The same of a deletion that waits: the object exists again.
		x.Put(cluster.ConfigMaps, other)
		x.Delete(cluster.ConfigMaps, cluster.Key{Namespace: "a", Name: "one"})
		x.Put(cluster.ConfigMaps, newer)
		x.settle()
		time.Sleep(rereadWait)
		for x.Reread(t.Context()) == 0 {
		}
		x.settle()
		if table.what("newer.test") == "" {
			t.Error("an object that was deleted and made again has no name")
		}
	})
}

// The same while the older state is being read, and while the source is asked.
func TestRereadStateThatComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, table := newObjects(nil)
		large := func(name string) *cluster.ConfigMap {
			m := configMap("one", 1)
			m.Data[name] = strings.Repeat("n", waitingLimit/2)
			return m
		}
		other := configMap("other", 2)
		other.Data["other.test"] = strings.Repeat("o", waitingLimit/2)
		x.SetReader(func(context.Context, cluster.Kind, cluster.Key) (cluster.Object, error) {
			return large("last.test"), nil
		})

		// Both have no room, since the other object waits.
		read := x.settings.Read
		x.settings.Read = func(o cluster.Object, most int) *Content {
			x.settings.Read = read
			x.Put(cluster.ConfigMaps, other)
			x.Put(cluster.ConfigMaps, large("last.test"))
			return read(o, most)
		}
		x.Put(cluster.ConfigMaps, configMap("one", 1, "first.test"))
		x.settle()
		if table.what("first.test") != "" || len(x.wanted) != 1 {
			t.Errorf("got the older state %q, and %d objects are read again; want none, and one", table.what("first.test"), len(x.wanted))
		}

		time.Sleep(rereadWait)
		asked := 0
		x.SetReader(func(context.Context, cluster.Kind, cluster.Key) (cluster.Object, error) {
			if asked++; asked == 1 {
				x.Put(cluster.ConfigMaps, other)
				x.Put(cluster.ConfigMaps, large("last.test"))
				return configMap("one", 1, "second.test"), nil
			}
			return large("last.test"), nil
		})
		for range 2 {
			for x.Reread(t.Context()) == 0 {
			}
			x.settle()
			time.Sleep(rereadWait)
		}
		if table.what("last.test") == "" || table.what("second.test") != "" || asked != 2 {
			t.Errorf("asked %d times: got %q and %q, want the last state by the second time", asked, table.what("last.test"), table.what("second.test"))
		}
	})
}

// Objects that have no room in the turns delay the start for some seconds only.
func TestSyncedWithoutObjectsThatHaveNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newObjects(nil)
		x.SetReader(func(context.Context, cluster.Kind, cluster.Key) (cluster.Object, error) {
			return nil, errors.New("away")
		})
		for i := range 3 {
			m := configMap(fmt.Sprint("m", i), int64(i))
			m.Data[fmt.Sprintf("m%d.test", i)] = strings.Repeat("m", waitingLimit/2)
			x.Put(cluster.ConfigMaps, m)
		}
		x.Listed(cluster.ConfigMaps, func(cluster.Key) bool { return true })
		wait := x.Step()
		for wait == 0 {
			wait = x.Step()
		}
		if x.IsSynced() || wait != rereadLimit {
			t.Errorf("synced %t, and waits %v; want not yet, and %v", x.IsSynced(), wait, rereadLimit)
		}
		time.Sleep(wait)
		if x.Step(); !x.IsSynced() {
			t.Error("not synced after the limit")
		}
	})
}

// An object that waits for its turn, and that a list lacks, has no names.
func TestListedWithoutWaitingObject(t *testing.T) {
	x, table := newObjects(nil)
	x.Put(cluster.ConfigMaps, configMap("one", 1, "a.test"), configMap("two", 2, "b.test"))
	x.Listed(cluster.ConfigMaps, func(key cluster.Key) bool { return key.Name == "two" })
	x.settle()
	if len(table) != 1 || table.what("b.test") != "two" {
		t.Errorf("got %d names, want that of the object that was listed", len(table))
	}

	// The same while it is being read.
	read := x.settings.Read
	x.settings.Read = func(o cluster.Object, most int) *Content {
		x.settings.Read = read
		x.Listed(cluster.ConfigMaps, func(key cluster.Key) bool { return key.Name == "two" })
		return read(o, most)
	}
	x.Put(cluster.ConfigMaps, configMap("one", 1, "a.test"))
	x.settle()
	if len(table) != 1 {
		t.Errorf("got %d names, want that of the object that was listed", len(table))
	}
}

// Two server blocks with equal objects tell about the names of both, those of the last plan.
func TestCorefileOfBlocks(t *testing.T) {
	x, _ := newObjects(nil)
	x.Put(cluster.ConfigMaps, configMap("one", 1, "a.test"), configMap("two", 2, "b.test"))
	x.settle()
	names := func(name string) mapTable { return mapTable{mustName(name): {}} }
	expect := func(when string, want string) {
		t.Helper()
		if got := fmt.Sprint(x.Errors()); got != want {
			t.Errorf("%s: got %s, want %s", when, got, want)
		}
	}

	first, second, failed := new(config.Start), new(config.Start), new(config.Start)
	swapA, swapB := x.AddCorefile(first, names("a.test")), x.AddCorefile(first, names("b.test"))
	expect("before the plan is served", "[]")
	swapA()
	const both = "[: ConfigMap a/one: a.test. is in the Corefile : ConfigMap a/two: b.test. is in the Corefile]"
	expect("after the first swap", both)
	swapB()
	expect("after both swaps", both)

	x.AddCorefile(failed, names("c.test"))
	swap := x.AddCorefile(second, names("b.test"))
	expect("before the second plan is served", both)
	swap()
	expect("the second plan", "[: ConfigMap a/two: b.test. is in the Corefile]")
}

// A reload with other options has room for all names although the memory is almost full.
func TestReloadMemory(t *testing.T) {
	budget := memory.New(64<<20, memory.FromMachine)
	folder := t.TempDir()
	// JSON is read much faster than YAML, and the reload waits for it.
	text := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "a", "labels": {"dns": "yes"}}, ` +
		`"data": {"a.test": "` + strings.Repeat("x", 1<<20) + `"}}`
	if err := os.WriteFile(filepath.Join(folder, "all.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(start *config.Start, most int) (*Objects, mapTable) {
		t.Helper()
		x, table := newObjects(budget)
		x.settings.Most, x.settings.API = most, cluster.Options{Manifests: folder, ConfigMapLabels: "dns=yes"}
		b := &config.Block{Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry), Memory: budget}
		if _, err := config.Keep(start, most, func() (*Objects, error) { return x, x.Start(start, b, x) }); err != nil {
			t.Fatal(err)
		}
		<-x.synced
		return x, table
	}

	first := config.NewStart(t.Context(), nil)
	_, table := start(first, 2)
	other := budget.Claim(memory.Files)
	for taken := int64(64 << 10); other.Grow(taken) == nil; taken += 64 << 10 {
	}
	second := config.NewStart(t.Context(), first)
	x, next := start(second, 3)
	if table.what("a.test") == "" || next.what("a.test") == "" || len(x.Errors()) != 0 {
		t.Errorf("after the reload: got errors %v, and %d names, want no error and 1", x.Errors(), len(next))
	}
	before := budget.Part(memory.Files).Used
	second.Commit()
	if used := budget.Part(memory.Files).Used; used < before-1<<20 {
		t.Errorf("%d bytes are claimed, and before the old plan ended %d", used, before)
	}
	second.Stop()
	other.Release()
	if used := budget.Part(memory.Files).Used; used != 0 {
		t.Errorf("in the end %d bytes are claimed", used)
	}
}

// A change is in the table as soon as it has been read, also right after the first list: nothing waits,
// collects changes or polls. The clock is virtual, and reading an object takes a millisecond of it.
func TestChangeIsLiveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = time.Millisecond
		x, table := newObjects(nil)
		x.settings.Most = 20_000
		x.settings.Read = func(o cluster.Object, most int) *Content {
			time.Sleep(cost)
			return readNames(o, most)
		}
		x.task = follow.Go(x.ApplyAll)
		defer x.task.Stop()
		for i := range 10_000 {
			x.Put(cluster.ConfigMaps, configMap(fmt.Sprint(i), 1, fmt.Sprintf("h%d.test", i)))
		}
		x.Listed(cluster.ConfigMaps, func(cluster.Key) bool { return true })
		<-x.synced

		for _, pause := range []time.Duration{0, time.Second, 2 * time.Hour} {
			time.Sleep(pause)
			before := time.Now()
			name := fmt.Sprintf("after-%d.test", pause)
			x.Put(cluster.ConfigMaps, configMap("17", 1, name))
			time.Sleep(cost) // synctest.Wait waits without the clock
			synctest.Wait()
			if got := table.what(name); got != "17" {
				t.Errorf("after a pause of %v: the name is not there %v after the event", pause, time.Since(before))
			}
		}
		// A namespace pays for processor time, and not for the time that passes on a busy machine.
		for i := range 30 {
			name := fmt.Sprintf("quick-%d.test", i)
			x.Put(cluster.ConfigMaps, configMap("17", 1, name))
			time.Sleep(cost)
			synctest.Wait()
			if got := table.what(name); got != "17" {
				t.Fatalf("change %d of many: the name is not there %v after the event", i, cost)
			}
		}
		x.Delete(cluster.ConfigMaps, cluster.Key{Namespace: "a", Name: "18"})
		synctest.Wait()
		if table.what("h18.test") != "" {
			t.Error("a deleted object has its name after the event")
		}
	})
}
