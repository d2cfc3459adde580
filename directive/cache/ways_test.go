package cache

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A forward that changes, comes or goes takes the entries of those names with it
// whose answers it has a part in, and no others.
func TestReloadForwards(t *testing.T) {
	block := func(forwards ...string) string {
		return ".:53 {\n cache 60\n local\n" + strings.Join(forwards, "\n") + "\n}\n"
	}
	names := []string{"www.example.com", "a.corp.org", "a.sub.corp.org", "a.new.net", "corp.org", "xcorp.org"}
	for _, test := range []struct {
		name, after string
		kept        string // names whose entries are kept
	}{
		{"nothing", block("forward sub.corp.org s", "forward corp.org c", "forward . b"), strings.Join(names, " ")},
		{"one comes", block("forward new.net n", "forward sub.corp.org s", "forward corp.org c", "forward . b"),
			"www.example.com a.corp.org a.sub.corp.org corp.org xcorp.org"},
		{"one is another", block("forward sub.corp.org s", "forward corp.org d", "forward . b"), "www.example.com a.new.net xcorp.org"},
		{"one goes", block("forward corp.org c", "forward . b"), "www.example.com a.corp.org a.new.net corp.org xcorp.org"},
		{"another order", block("forward corp.org c", "forward sub.corp.org s", "forward . b"),
			"www.example.com a.corp.org a.new.net corp.org xcorp.org"},
		{"a zone is treated by itself", block("share new.net", "forward sub.corp.org s", "forward corp.org c", "forward . b"), ""},
		{"the root is another", block("forward sub.corp.org s", "forward corp.org c", "forward . r"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := block("forward sub.corp.org s", "forward corp.org c", "forward . b")
			w := newWorld(t, before)
			for _, name := range names {
				w.answer(question(name, mdns.TypeA))
			}
			for u, n := range map[string]int64{"s": 1, "c": 2, "b": 3} {
				w.upstream(u).wants(t, n)
			}
			w.load(test.after)
			for _, name := range names {
				kept := strings.Contains(" "+test.kept+" ", " "+name+" ")
				if _, inline := w.answer(question(name, mdns.TypeA)); inline != kept {
					t.Errorf("%s: answered from the store: %v, want %v", name, inline, kept)
				}
			}
			w.load(before) // what came in ways that were gone meanwhile has gone with them
			for _, name := range names {
				kept := strings.Contains(" "+test.kept+" ", " "+name+" ")
				kept = kept || test.name == "one comes" // the root's way was there all the time
				if _, inline := w.answer(question(name, mdns.TypeA)); inline != kept {
					t.Errorf("%s, back again: answered from the store: %v, want %v", name, inline, kept)
				}
			}
		})
	}
}

// So does a zone that a handler below treats by itself.
func TestReloadShares(t *testing.T) {
	w := newWorld(t, ".:53 {\n cache\n share a.org b.org\n upstream u\n}\n")
	names := []string{"x.a.org", "x.b.org", "x.c.org", "org"}
	for _, name := range names {
		w.answer(question(name, mdns.TypeA))
	}
	w.load(".:53 {\n cache\n share b.org c.org\n upstream u\n}\n")
	for i, kept := range []bool{false, true, false, true} {
		if _, inline := w.answer(question(names[i], mdns.TypeA)); inline != kept {
			t.Errorf("%s: answered from the store: %v, want %v", names[i], inline, kept)
		}
	}
}

// Blocks of one zone have as many entries as each of them may have, together if
// they get answers in one way.
func TestLimitsOfBlocks(t *testing.T) {
	s := NewStore(1000).scope("a", [2]int{})
	one, other := ways{rest: 1}, ways{rest: 2, zones: map[wire.Name]uint64{"\x01a\x00": 1}}
	p := newPlan()
	for _, step := range []struct {
		ways         ways
		limits, want [2]int
	}{
		{one, [2]int{10, 5}, [2]int{10, 5}},
		{one, [2]int{20, 3}, [2]int{20, 5}},
		{other, [2]int{10, 10}, [2]int{30, 15}},
		{one, [2]int{25, 1}, [2]int{35, 15}},
	} {
		p.use(s, step.limits, &step.ways)
		if got := p.scopes[s].limits; got != step.want {
			t.Errorf("after %v: %v, want %v", step.limits, got, step.want)
		}
	}
}
