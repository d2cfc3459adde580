package kube2sky

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/metrics"
)

func (e edit) String() string {
	return fmt.Sprintf("%s %s@%d", [...]string{"put", "adopt", "remove", "forget"}[e.operation], e.path, e.revision)
}

func TestPlan(t *testing.T) {
	wanted := []record{{"a", "1"}, {"b", "2"}}
	for _, c := range []struct {
		name  string
		tree  map[string]found
		marks map[string]string
		want  string // puts | removals | others'
	}{
		{"nothing there", nil, nil, "put a@0 put b@0 | |"},
		{"all there", map[string]found{"a": {"1", 5}, "b": {"2", 6}}, map[string]string{"a": sum("1"), "b": sum("2")}, "| |"},
		{"ours, and old", map[string]found{"a": {"0", 5}, "b": {"2", 6}}, map[string]string{"a": sum("0"), "b": sum("2")}, "put a@5 | |"},
		{"somebody else's value", map[string]found{"a": {"x", 5}, "b": {"2", 6}}, map[string]string{"b": sum("2")}, "| | a"},
		{"somebody else's over ours", map[string]found{"a": {"x", 5}, "b": {"2", 6}}, map[string]string{"a": sum("1"), "b": sum("2")}, "| forget a@5 | a"},
		{"the same value from somebody else", map[string]found{"a": {"1", 5}}, nil, "adopt a@5 put b@0 | |"},
		{"somebody has deleted it", map[string]found{"a": {"1", 5}}, map[string]string{"a": sum("1"), "b": sum("2")}, "put b@0 | |"},
		{"not wanted", map[string]found{"a": {"1", 5}, "b": {"2", 6}, "c": {"3", 7}, "d": {"4", 8}, "e": {"5", 9}},
			map[string]string{"a": sum("1"), "b": sum("2"), "c": sum("3"), "d": sum("0"), "f": sum("6")},
			"| remove c@7 forget d@8 forget f@0 |"},
	} {
		got := plan(wanted, c.tree, c.marks)
		text := strings.Trim(fmt.Sprint(got.puts), "[]") + " | " + strings.Trim(fmt.Sprint(got.removals), "[]") + " | " + strings.Join(got.foreign, " ")
		if text = strings.Join(strings.Fields(text), " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// What is counted is operation has a mark of ours, whoever has deleted or changed keys, and
// it is known to who writes alone.
func TestCount(t *testing.T) {
	w := newWriter(Options{Log: slog.New(slog.DiscardHandler)}, newLayout("skydns", "cluster.local"), newTestState(), new(metrics.Registry))
	wanted := []record{{"a", "1"}, {"b", "2"}}
	for _, c := range []struct {
		name  string
		tree  map[string]found
		marks map[string]string
		want  int64
	}{
		{"nothing there", nil, nil, 2},
		{"somebody has deleted one", map[string]found{"a": {"1", 5}}, map[string]string{"a": sum("1"), "b": sum("2")}, 2},
		{"one is ours, and old", map[string]found{"a": {"0", 5}}, map[string]string{"a": sum("0")}, 2},
		{"the same value from somebody else", map[string]found{"a": {"1", 5}, "b": {"2", 6}}, map[string]string{"a": sum("0")}, 2},
		{"somebody else's over ours", map[string]found{"a": {"x", 5}, "b": {"2", 6}}, map[string]string{"a": sum("1"), "b": sum("2")}, 1},
		{"one is not wanted", map[string]found{"a": {"1", 5}, "b": {"2", 6}, "c": {"3", 7}}, map[string]string{"a": sum("1"), "b": sum("2"), "c": sum("3")}, 2},
	} {
		p := place{kind: unknownPlace, name: c.name}
		changes := plan(wanted, c.tree, c.marks)
		w.keys.Store(int64(len(c.marks)))
		w.reportForeign(p, changes.foreign)
		w.count(append(changes.puts, changes.removals...))
		if w.keys.Load() != c.want {
			t.Errorf("%s: %d keys, want %d", c.name, w.keys.Load(), c.want)
		}
	}
	if w.foreignTotal.Load() != 1 {
		t.Errorf("%d keys are others'", w.foreignTotal.Load())
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := w.term(ended, &session{}); err != nil || w.keys.Load() != 0 || w.foreignTotal.Load() != 0 || len(w.foreign) != 0 || w.leads.Load() {
		t.Errorf("after a term: %v, %d keys, %d are others'", err, w.keys.Load(), w.foreignTotal.Load())
	}
}

// A change that fits into a transaction is not split; of a larger one the removals come last.
func TestTransactions(t *testing.T) {
	many := func(w operation, n int) (all []edit) {
		for range n {
			all = append(all, edit{operation: w})
		}
		return all
	}
	count := func(all [][]edit) (text []string) {
		for _, edits := range all {
			puts := slices.IndexFunc(edits, func(e edit) bool { return e.operation == remove })
			if puts < 0 {
				puts = len(edits)
			}
			if ops := len(edits); 2*ops > maxOperations {
				t.Errorf("%d edits in a transaction", ops)
			}
			text = append(text, fmt.Sprintf("%d+%d", puts, len(edits)-puts))
		}
		return text
	}
	change1 := change{puts: many(put, 30), removals: many(remove, 20)}
	same(t, "two that do not fit together", count(transactions([]change{change1, change1})), "30+20", "30+20")
	same(t, "two that do", count(transactions([]change{{puts: many(put, 30)}, {puts: many(put, 34)}})), "64+0")
	same(t, "a large one", count(transactions([]change{{puts: many(put, 1)}, {puts: many(put, 100), removals: many(remove, 100)}, {puts: many(put, 1)}})),
		"1+0", "64+0", "36+0", "0+64", "0+36", "1+0")
	same(t, "nothing", count(transactions([]change{{}, {}})))
}
