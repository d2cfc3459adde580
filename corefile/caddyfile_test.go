package corefile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
	"github.com/seamark/seamark/test/race"
)

// Parse accepts every text that caddyfile's parser accepts, with the same keys
// and words. (It accepts more: for example, words after a closing brace.)
func TestParseLikeCaddyfile(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	words := []string{
		"a", "b", "example.org", ".:53", "cache", "30", "\n", "\n", "\n", "b {\n", "\n}\n", "# x { }\n", "\"c d\"", `"e\"f"`, `\.g`, "\n}\n",
		"(s)", "import", "import s\n", "{$WORD}", "x{$NONE}", "x{%WORD%}", "\"\n\"", "{}", "a{", "}b", "\t", "\r\n",
	}
	t.Setenv("WORD", "one two")
	random := rand.New(rand.NewPCG(1, 2))
	both := 0
	for range race.Fewer(50_000) {
		var text strings.Builder
		if random.IntN(4) == 0 {
			text.WriteString("(s) {\nlog {common}\n}\n")
		}
		if random.IntN(2) == 0 {
			text.WriteString("zone {\n")
		}
		for range random.IntN(12) {
			text.WriteString(words[random.IntN(len(words))])
			if random.IntN(5) > 0 {
				text.WriteString(" ")
			}
		}
		if random.IntN(2) == 0 {
			text.WriteString("\n}\n")
		}
		want, err := caddyfile.Parse("Corefile", strings.NewReader(text.String()), nil)
		if err != nil || len(want) == 0 || !balanced(text.String()) {
			continue
		}
		both++
		got, err := Parse("Corefile", []byte(text.String()))
		if err != nil && !strings.Contains(err.Error(), "not a server block") { // caddyfile accepts a zone alone
			t.Errorf("%q: got error %v, want none, as caddyfile", text.String(), err)
			continue
		}
		if got, want := wordsOf(got), theirs(want); got != want {
			t.Errorf("%q\ngot  %s\nwant %s", text.String(), got, want)
		}
	}
	if both < race.Fewer(1000) {
		t.Errorf("compared %d texts, too few", both)
	}
}

// wordsOf returns the keys of each server block and its words by directive.
func wordsOf(servers []Server) string {
	var out strings.Builder
	for _, s := range servers {
		var keys []string
		for _, k := range s.Keys {
			keys = append(keys, k.Text)
		}
		by := map[string][]string{}
		for _, d := range s.Directives {
			by[d.Text] = append(by[d.Text], flat(d)...)
		}
		fmt.Fprintf(&out, "%q %q; ", keys, by)
	}
	return out.String()
}

func flat(d Directive) []string {
	words := append([]string{d.Text}, d.Words()...)
	if d.Block {
		words = append(words, "{")
		for _, o := range d.Body {
			words = append(words, flat(o)...)
		}
		words = append(words, "}")
	}
	return words
}

// balanced reports whether every brace has a counterpart. If not, caddyfile reads
// some braces as words.
func balanced(text string) bool {
	depth := 0
	for _, w := range lex("Corefile", []byte(text), false) {
		switch w.Text {
		case "{":
			depth++
		case "}":
			depth--
		}
		if depth < 0 {
			return false
		}
	}
	return depth == 0
}

func theirs(blocks []caddyfile.ServerBlock) string {
	var out strings.Builder
	for _, b := range blocks {
		by := map[string][]string{}
		for name, tokens := range b.Tokens {
			for _, token := range tokens {
				by[name] = append(by[name], expanded(Token{Text: token.Text}).Text) // caddyfile drops the first
			}
		}
		fmt.Fprintf(&out, "%q %q; ", b.Keys, by)
	}
	return out.String()
}
