package cache

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

// A reload that changes a directive below cache drops the block's entries; any
// other reload keeps them.
func TestReloadChangedBelow(t *testing.T) {
	block := func(above string, below ...string) string {
		return ".:53 {\n" + above + "\n" + strings.Join(below, "\n") + "\n}\n"
	}
	names := []string{"www.example.com", "a.corp.org", "a.sub.corp.org", "a.new.net", "corp.org", "xcorp.org"}
	for _, test := range []struct {
		name, after string
		kept        bool
	}{
		{"nothing", block("cache 60", "local", "forward sub.corp.org s", "forward corp.org c", "forward . b"), true},
		{"options of cache", block("cache {\n keepttl\n}", "local", "forward sub.corp.org s", "forward corp.org c", "forward . b"), true},
		{"directive above added", block("rename\ncache 60", "local", "forward sub.corp.org s", "forward corp.org c", "forward . b"), true},
		{"directives reordered in the file", block("local", "forward sub.corp.org s", "forward corp.org c", "cache 60", "forward . b"), true},
		{"forward added", block("cache 60", "local", "forward new.net n", "forward sub.corp.org s", "forward corp.org c", "forward . b"), false},
		{"upstream changed", block("cache 60", "local", "forward sub.corp.org s", "forward corp.org d", "forward . b"), false},
		{"forward removed", block("cache 60", "local", "forward corp.org c", "forward . b"), false},
		{"forwards reordered", block("cache 60", "local", "forward corp.org c", "forward sub.corp.org s", "forward . b"), false},
		{"other directive added", block("cache 60", "local", "pass", "forward sub.corp.org s", "forward corp.org c", "forward . b"), false},
		{"last forward changed", block("cache 60", "local", "forward sub.corp.org s", "forward corp.org c", "forward . r"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := block("cache 60", "local", "forward sub.corp.org s", "forward corp.org c", "forward . b")
			w := newHarness(t, before)
			for _, name := range names {
				w.ask(newQuery(name, mdns.TypeA))
			}
			for u, n := range map[string]int64{"s": 1, "c": 2, "b": 3} {
				w.upstream(u).wantQueries(t, n)
			}
			w.load(test.after)
			for _, name := range names {
				if _, inline := w.ask(newQuery(name, mdns.TypeA)); inline != test.kept {
					t.Errorf("%s A after the reload: answered from the store: got %v, want %v", name, inline, test.kept)
				}
			}
			w.load(before)
			for _, name := range names {
				if _, inline := w.ask(newQuery(name, mdns.TypeA)); inline != test.kept {
					t.Errorf("%s A after the second reload: answered from the store: got %v, want %v", name, inline, test.kept)
				}
			}
		})
	}
}

// The arguments of every directive below count.
func TestReloadChangedArguments(t *testing.T) {
	w := newHarness(t, ".:53 {\n cache\n pass a.org b.org\n upstream u\n}\n")
	names := []string{"x.a.org", "x.b.org", "x.c.org", "org"}
	for _, name := range names {
		w.ask(newQuery(name, mdns.TypeA))
	}
	w.load(".:53 {\n cache\n pass b.org c.org\n upstream u\n}\n")
	for _, name := range names {
		if _, inline := w.ask(newQuery(name, mdns.TypeA)); inline {
			t.Errorf("%s A: answered from the store, want a query to the upstream", name)
		}
	}
}

// Server blocks that share a scope get the highest of their capacities; others
// have their own.
func TestBlocksShareScope(t *testing.T) {
	st, p := NewStore(1000, nil), newScopePlan()
	shared, other := st.scope("a", [2]int{}), st.scope("b", [2]int{})
	for _, step := range []struct {
		scope        *scope
		limits, want [2]int
	}{
		{shared, [2]int{10, 5}, [2]int{10, 5}},
		{shared, [2]int{20, 3}, [2]int{20, 5}},
		{other, [2]int{10, 10}, [2]int{10, 10}},
		{shared, [2]int{25, 1}, [2]int{25, 5}},
	} {
		p.add(step.scope, step.limits, 0)
		if got := p.limits[step.scope]; got != step.want {
			t.Errorf("after add(%v): got the limits %v, want %v", step.limits, got, step.want)
		}
	}
}
