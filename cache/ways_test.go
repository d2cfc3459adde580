package cache

import (
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
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
