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
		want  string // puts | removals | foreign paths
	}{
		{"no keys", nil, nil, "put a@0 put b@0 | |"},
		{"all keys", map[string]found{"a": {"1", 5}, "b": {"2", 6}}, map[string]string{"a": sum("1"), "b": sum("2")}, "| |"},
		{"own key with an old value", map[string]found{"a": {"0", 5}, "b": {"2", 6}}, map[string]string{"a": sum("0"), "b": sum("2")}, "put a@5 | |"},
		{"foreign key", map[string]found{"a": {"x", 5}, "b": {"2", 6}}, map[string]string{"b": sum("2")}, "| | a"},
		{"own key overwritten", map[string]found{"a": {"x", 5}, "b": {"2", 6}}, map[string]string{"a": sum("1"), "b": sum("2")}, "| forget a@5 | a"},
		{"foreign key with the wanted value", map[string]found{"a": {"1", 5}}, nil, "adopt a@5 put b@0 | |"},
		{"own key deleted", map[string]found{"a": {"1", 5}}, map[string]string{"a": sum("1"), "b": sum("2")}, "put b@0 | |"},
		{"unwanted keys", map[string]found{"a": {"1", 5}, "b": {"2", 6}, "c": {"3", 7}, "d": {"4", 8}, "e": {"5", 9}},
			map[string]string{"a": sum("1"), "b": sum("2"), "c": sum("3"), "d": sum("0"), "f": sum("6")},
			"| remove c@7 forget d@8 forget f@0 |"},
	} {
		got := plan(wanted, c.tree, c.marks)
		text := strings.Trim(fmt.Sprint(got.puts), "[]") + " | " + strings.Trim(fmt.Sprint(got.removals), "[]") + " | " + strings.Join(got.foreign, " ")
		if text = strings.Join(strings.Fields(text), " "); text != c.want {
			t.Errorf("%s: got %s, want %s", c.name, text, c.want)
		}
	}
}

// Keys with a mark are counted, also if other programs have changed or deleted
// keys. Only the leader knows the number.
func TestCount(t *testing.T) {
	w := newWriter(Options{Log: slog.New(slog.DiscardHandler)}, newLayout("skydns", "cluster.local"), newTestState(), new(metrics.Registry))
	wanted := []record{{"a", "1"}, {"b", "2"}}
	for _, c := range []struct {
		name  string
		tree  map[string]found
		marks map[string]string
		want  int64
	}{
		{"no keys", nil, nil, 2},
		{"own key deleted", map[string]found{"a": {"1", 5}}, map[string]string{"a": sum("1"), "b": sum("2")}, 2},
		{"own key with an old value", map[string]found{"a": {"0", 5}}, map[string]string{"a": sum("0")}, 2},
		{"foreign key with the wanted value", map[string]found{"a": {"1", 5}, "b": {"2", 6}}, map[string]string{"a": sum("0")}, 2},
		{"own key overwritten", map[string]found{"a": {"x", 5}, "b": {"2", 6}}, map[string]string{"a": sum("1"), "b": sum("2")}, 1},
		{"unwanted key", map[string]found{"a": {"1", 5}, "b": {"2", 6}, "c": {"3", 7}}, map[string]string{"a": sum("1"), "b": sum("2"), "c": sum("3")}, 2},
	} {
		p := keyGroup{kind: unknownGroup, name: c.name}
		changes := plan(wanted, c.tree, c.marks)
		w.keys.Store(int64(len(c.marks)))
		w.reportForeign(p, changes.foreign)
		w.count(append(changes.puts, changes.removals...))
		if w.keys.Load() != c.want {
			t.Errorf("%s: got %d keys, want %d", c.name, w.keys.Load(), c.want)
		}
	}
	if w.foreignTotal.Load() != 1 {
		t.Errorf("got %d foreign keys, want 1", w.foreignTotal.Load())
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.term(canceled, &session{}); err != nil || w.keys.Load() != 0 || w.foreignTotal.Load() != 0 || len(w.foreign) != 0 || w.leads.Load() {
		t.Errorf("after a term: got error %v, %d keys, %d foreign keys, want none", err, w.keys.Load(), w.foreignTotal.Load())
	}
}

// A change that fits into a transaction is not split. In a larger one the removals are
// last.
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
				t.Errorf("got %d edits in a transaction, want at most %d", ops, maxOperations/2)
			}
			text = append(text, fmt.Sprintf("%d+%d", puts, len(edits)-puts))
		}
		return text
	}
	change1 := change{puts: many(put, 30), removals: many(remove, 20)}
	same(t, "two changes that exceed a transaction", count(transactions([]change{change1, change1})), "30+20", "30+20")
	same(t, "two changes in one transaction", count(transactions([]change{{puts: many(put, 30)}, {puts: many(put, 34)}})), "64+0")
	same(t, "a large change", count(transactions([]change{{puts: many(put, 1)}, {puts: many(put, 100), removals: many(remove, 100)}, {puts: many(put, 1)}})),
		"1+0", "64+0", "36+0", "0+64", "0+36", "1+0")
	same(t, "empty changes", count(transactions([]change{{}, {}})))
}
