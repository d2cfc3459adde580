package stubzones

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
)

// A slowTable is a table whose upstreams open when a test lets them.
type slowTable struct {
	table
	hold map[string]chan struct{} // by targets; others open at once
}

func newSlowTable(template *forward.Template, hold ...string) *slowTable {
	x := &slowTable{hold: map[string]chan struct{}{}}
	for _, targets := range hold {
		x.hold[targets] = make(chan struct{})
	}
	x.pool = newPool(func(to []string) *forward.Upstreams {
		targets := strings.Join(to, " ")
		if held := x.hold[targets]; held != nil {
			<-held
		}
		return template.Open(to)
	})
	x.init()
	return x
}

// what returns the targets of a zone that queries find, "" if they find none.
func (x *slowTable) what(name wire.Name) string {
	if z := x.byName.Get([]byte(name)); z != nil {
		return z.Value
	}
	return ""
}

// Upstreams that take long to open delay no other zone, nor the goroutine that sets zones; the former ones
// of the zone answer meanwhile, and what is set last is open in the end.
func TestSlowUpstreams(t *testing.T) {
	r := newRig(t)
	const slow, fast = "127.0.0.1:1", "127.0.0.1:2"
	a, b := wire.Name("\x01a\x00"), wire.Name("\x01b\x00")
	synctest.Test(t, func(t *testing.T) {
		x := newSlowTable(r.handler.template, slow)
		expect := func(when, wantA, wantB string) {
			t.Helper()
			synctest.Wait()
			if gotA, gotB := x.what(a), x.what(b); gotA != wantA || gotB != wantB {
				t.Errorf("%s: got %q and %q, want %q and %q", when, gotA, gotB, wantA, wantB)
			}
		}
		set := func(name wire.Name, targets string) { x.Set(name, &objects.Entry{Value: targets}) }

		set(a, fast)
		expect("at first", fast, "")
		before := x.byName.Get([]byte(a)).upstreams
		set(a, slow) // it returns
		set(b, fast)
		expect("while a opens", fast, fast)
		if x.Get(a).Value != slow {
			t.Error("the table forgets what it opens")
		}
		select {
		case <-x.opened():
			t.Error("the table is open, and a is not")
		default:
		}

		set(a, fast)
		set(b, slow)
		x.Delete(b)
		set(b, slow)
		close(x.hold[slow])
		expect("after all have opened", fast, slow)
		<-x.opened()
		if x.byName.Get([]byte(a)).upstreams != before {
			t.Error("a has other upstreams than before")
		}

		set(a, slow)
		set(a, fast)
		expect("back at once", fast, slow)
		set(a, slow)
		expect("in the end", slow, slow)
		time.Sleep(2 * drainTime)
		synctest.Wait()
		if len(x.pool.all) != 2 {
			t.Errorf("%d upstreams are open, want 2: the old ones are closed after their queries", len(x.pool.all))
		}
		x.stop()
		if len(x.pool.all) != 0 {
			t.Errorf("%d upstreams are open after the end", len(x.pool.all))
		}
	})
}

// Another process, to which the cache is handed over, has the same variant of a zone, and other targets
// another one.
func TestVariant(t *testing.T) {
	a, b := wire.Name("\x01a\x00"), wire.Name("\x01b\x00")
	if got := variantOf(a, "192.0.2.1"); got != 0x896e8c53a97e56f3 || got == variantOf(a, "192.0.2.2") || got == variantOf(b, "192.0.2.1") {
		t.Errorf("got the variant %#x", got)
	}
}

// Old upstreams are released after the queries to them, the oldest at once if there are many.
func TestOldUpstreams(t *testing.T) {
	x := table{replaced: follow.NewSignal()}
	now := time.Now()
	for i := range mostOld + 2 {
		x.old = append(x.old, oldUpstreams{end: now.Add(time.Duration(i) * time.Second)})
	}
	for _, c := range []struct {
		after time.Duration
		due   int
		wait  time.Duration
	}{{0, 2, 2 * time.Second}, {4500 * time.Millisecond, 3, 500 * time.Millisecond}, {time.Hour, mostOld - 3, time.Hour}} {
		if due, wait := x.due(now.Add(c.after)); len(due) != c.due || wait != c.wait {
			t.Errorf("after %v: %d are closed, and the next after %v; want %d, %v", c.after, len(due), wait, c.due, c.wait)
		}
	}
}
