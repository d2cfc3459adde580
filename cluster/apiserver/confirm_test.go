package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A comparingSink is a recorder that knows its Services or DNSEndpoints.
type comparingSink struct {
	recorder
	objects map[cluster.Key]bool
	records bool // it knows DNSEndpoints
}

func (f *comparingSink) kind() cluster.Kind {
	if f.records {
		return cluster.DNSEndpoints
	}
	return cluster.Services
}

func (f *comparingSink) Put(k cluster.Kind, os ...cluster.Object) {
	f.recorder.Put(k, os...)
	f.do(func() {
		for _, o := range os {
			f.objects[o.Key()] = true
		}
	})
}

func (f *comparingSink) Delete(k cluster.Kind, key cluster.Key) {
	f.recorder.Delete(k, key)
	f.do(func() { delete(f.objects, key) })
}

func (f *comparingSink) Listed(k cluster.Kind, has func(cluster.Key) bool) {
	f.recorder.Listed(k, has)
	f.do(func() {
		for key := range f.objects {
			if k == f.kind() && !has(key) {
				delete(f.objects, key)
			}
		}
	})
}

func (f *comparingSink) Missing(k cluster.Kind, has func(cluster.Key) bool) (missing, objects int) {
	f.do(func() {
		for key := range f.objects {
			if objects++; !has(key) {
				missing++
			}
		}
	})
	if k != f.kind() {
		return 0, 0
	}
	return missing, objects
}

// A list that lacks most objects, or the only ones, deletes them only if another one, after
// the wait, lacks them, too.
func TestListNeedsConfirmation(t *testing.T) {
	limits := shortTimeouts()
	for _, c := range []struct {
		before, after int // Services
		again         int // Services of the second list; -1 is the same as the first
		held          bool
	}{
		{20, 0, -1, true}, {20, 9, -1, true}, {20, 10, -1, false}, {20, 1, 20, true}, {20, 1, 5, true},
		{3, 1, -1, false}, {3, 0, -1, true}, {2, 1, -1, false}, {2, 0, -1, true}, {1, 0, -1, true}, {2, 0, 2, true},
	} {
		for _, old := range []bool{false, true} {
			for _, namespaces := range []string{"", "shop"} {
				t.Run(fmt.Sprintf("%d of %d Services, then %d, plain list %v, namespaces %q", c.after, c.before, c.again, old, namespaces), func(t *testing.T) {
					t.Parallel()
					limits := limits
					if c.again >= 0 {
						limits.confirm = time.Second // the Services change before the second list
					}
					before, names := numbered(0, c.before)
					a := serve(t, &fakeServer{old: old, objects: map[string]string{"services": before}})
					f := &comparingSink{objects: map[cluster.Key]bool{}}
					runUntilCleanup(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true, Namespaces: namespaces}, f, &f.recorder, limits)
					f.waitForCall(t, "listed services "+names)
					after, names := numbered(0, c.after)
					changed := time.Now()
					a.change("services", after, 0)
					const suspicion, confirmed = "List lacks most of the known objects", "Another list lacks most"
					if c.again >= 0 {
						f.waitForLog(t, suspicion)
						again, all := numbered(0, c.again)
						a.change("services", again, 0)
						names = all
					}
					f.waitFor(t, fmt.Sprintf("%d Services", max(c.after, c.again)), func() bool { return len(f.objects) == max(c.after, c.again) })
					if c.again < c.before {
						f.waitForCall(t, "listed services "+names)
					} else {
						f.waitForLog(t, "Another list has most of the known objects")
					}
					if waited := time.Since(changed); c.held && c.again < c.before && waited < limits.confirm {
						t.Errorf("the deletion was applied after %v, want at least %v", waited, limits.confirm)
					}
					f.do(func() {
						log := f.logged.String()
						if strings.Contains(log, suspicion) != c.held || strings.Contains(log, confirmed) != (c.held && c.again < c.before) {
							t.Errorf("got log\n%s\nwant a suspicion %v, confirmed %v", log, c.held, c.held && c.again < c.before)
						}
						if c.again >= c.before && slices.ContainsFunc(f.sink.lines, func(line string) bool { return line == "listed services "+strings.Split(names, " ")[0] }) {
							t.Errorf("got the calls\n%s\nwant no list before another one confirms it", strings.Join(f.sink.lines, "\n"))
						}
					})
				})
			}
		}
	}
}

// A list that is not confirmed since the API server is away deletes nothing.
func TestListUnconfirmedWhileAway(t *testing.T) {
	before, names := numbered(0, 20)
	a := serve(t, &fakeServer{objects: map[string]string{"services": before}})
	f := &comparingSink{objects: map[cluster.Key]bool{}}
	runUntilCleanup(t, cluster.Options{Endpoint: a.URL, NoEndpoints: true}, f, &f.recorder, shortTimeouts())
	f.waitForCall(t, "listed services "+names)
	a.change("services", "", 0)
	f.waitForLog(t, "List lacks most of the known objects")

	// Close would wait for a watch that has just begun.
	a.Listener.Close()
	a.CloseClientConnections()
	f.waitForLog(t, "API server unreachable")
	f.do(func() {
		if len(f.objects) != 20 {
			t.Errorf("got %d Services, want 20", len(f.objects))
		}
	})
}
