package expression

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// FuzzCondition: an error names the expression, and the position in it is one that the expression
// has. An expression keeps nothing of a query for the next one, and is false where it fails.
func FuzzCondition(f *testing.F) {
	for _, text := range []string{
		"name() endsWith 'example.org.' and type() in ['A','AAAA']", "incidr(client_ip(), '10.0.0.0/8') || do()",
		"incidr(server_ip(), '[fe80::]/10')", "metadata('kubernetes/namespace') == 'shop'", "split(name(), '.')[7] == 'a'",
		"name() matches `^api\\.`", "let a = size(); a > 512", "group('x') == '' && v == nil", "fromJSON('3')",
		"name() matches '('", "do() do()", "nome()", "name() matches 'a\\.b'", "incidr('a', 'fd00::/8')", "\n'",
	} {
		f.Add(text)
	}
	first, second := query(f, "Api.example.org", wire.TypeAAAA, dns.UDP), query(f, `a\.b`, wire.TypeA, dns.TCP)

	f.Fuzz(func(t *testing.T, text string) {
		// Loops within loops take long, and the time differs at each evaluation.
		if len(text) > 200 || strings.Contains(text, "now") {
			return
		}
		e, err := Condition(text, Names{Metadata: known, Groups: true, Vars: []string{"v"}})
		if err != nil {
			if !strings.HasSuffix(err.Error(), text) && !strings.HasPrefix(err.Error(), "want an expression") {
				t.Errorf("%q: got error %q, want one that names the expression", text, err)
			}
			return
		}
		if e.String() != text {
			t.Errorf("got the text %q, want %q", e, text)
		}

		holds, err := e.True(first)
		_, _ = e.True(second)
		again, err2 := e.True(first)
		if holds != again || (err == nil) != (err2 == nil) || holds && err != nil {
			t.Errorf("%q: got %t, error %v, and after another query %t, error %v", text, holds, err, again, err2)
		}
	})
}
