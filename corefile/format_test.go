package corefile

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// shape is like show without positions.
func shape(servers []Server) string {
	var plain func([]Directive) []Directive
	plain = func(ds []Directive) (out []Directive) {
		for _, d := range ds {
			d.File, d.Line = "", 0
			d.Body = plain(d.Body)
			out = append(out, d)
		}
		return out
	}
	var out []Server
	for _, s := range servers {
		var keys []Token
		for _, k := range s.Keys {
			keys = append(keys, Token{Text: k.Text})
		}
		out = append(out, Server{keys, plain(s.Directives)})
	}
	return show(out)
}

func TestFormat(t *testing.T) {
	servers, err := Parse("Corefile", []byte(`.:53  example.org, { # one
errors
 forward . "10.0.0.1"   [fd00::1]:53 { policy   sequential
 }
  chaos "a b" "" "c#d" e"f "g\"h" i\j "k\l m" {
  }
}
tls://b:853 {
}
`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `.:53 example.org {
    errors
    forward . 10.0.0.1 [fd00::1]:53 {
        policy sequential
    }
    chaos "a b" "" "c#d" e"f g"h i\j "k\l m" {
    }
}

tls://b:853 {
}
`
	if got, err := Format(servers); got != want || err != nil {
		t.Errorf("error %v, got\n%s\nwant\n%s", err, got, want)
	}
}

// Format reports every word that it cannot write, with its position.
func TestFormatErrors(t *testing.T) {
	t.Setenv("SET", "{$SET}") // a value is not expanded again
	word := func(text string) Token { return Token{Text: text, File: "C", Line: 7} }
	line := func(words ...string) Directive {
		d := Directive{Token: word(words[0]), Path: words[0]}
		for _, w := range words[1:] {
			d.Args = append(d.Args, word(w))
		}
		return d
	}
	for _, c := range []struct {
		server Server
		want   string
	}{
		{Server{}, "a server block without a key"},
		{Server{Keys: []Token{word("a,b")}}, `C:7: "a,b" cannot be a key`},
		{Server{Keys: []Token{word("(a)")}}, `C:7: "(a)" cannot be a key`},
		{Server{Keys: []Token{word("import"), word("a")}}, `C:7: "import" cannot be a key`},
		{Server{Keys: []Token{word(".")}, Directives: []Directive{line("import", "a")}}, `C:7: import: "import" cannot be the first word of a line`},
		{
			Server{Keys: []Token{word(".")}, Directives: []Directive{line("log", "{", "}", "{$HOME}", "{%X%}", "a\x00", "a\xff", "a b\\", `a\" b`)}},
			`C:7: log: "{" cannot be written in a Corefile
C:7: log: "}" cannot be written in a Corefile
C:7: log: "{$HOME}" cannot be written in a Corefile
C:7: log: "{%X%}" cannot be written in a Corefile
C:7: log: "a\x00" cannot be written in a Corefile
C:7: log: "a\xff" cannot be written in a Corefile
C:7: log: "a b\\" cannot be written in a Corefile
C:7: log: "a\\\" b" cannot be written in a Corefile`,
		},
	} {
		if text, err := Format([]Server{c.server}); err == nil || err.Error() != c.want || text != "" {
			t.Errorf("got %q and\n%v\nwant\n%s", text, err, c.want)
		}
	}
}

// Parse reads the words that Format has written. Words that Format rejects cannot
// be quoted.
func TestFormatParse(t *testing.T) {
	t.Setenv("X", "x y")
	pieces := []string{"a", "b.c:53", "{$X}", "{%X%}", "{", "}", "#", " ", "\n", "\t", "\r", "\"", "\\", "\\\"", "import", "(s)", ",", "\u00a0", "\ufeff", "ü", "\x01", "\xff"}
	random := rand.New(rand.NewPCG(3, 4))
	word := func() Token {
		var text strings.Builder
		for range random.IntN(4) {
			n := len(pieces)
			if random.IntN(3) > 0 {
				n = 2
			}
			text.WriteString(pieces[random.IntN(n)])
		}
		return Token{Text: text.String()}
	}
	var lines func(path string, depth int) []Directive
	lines = func(path string, depth int) (ds []Directive) {
		for range random.IntN(3) {
			d := Directive{Token: word(), Block: random.IntN(3) == 0}
			d.Path = strings.TrimPrefix(path+": "+d.Text, ": ")
			for range random.IntN(3) {
				d.Args = append(d.Args, word())
			}
			if d.Block && depth < 3 {
				d.Body = lines(d.Path, depth+1)
			}
			ds = append(ds, d)
		}
		return ds
	}
	written := 0
	for range 15_000 {
		var servers []Server
		for range 1 + random.IntN(2) {
			s := Server{Keys: []Token{word()}}
			for range random.IntN(2) {
				s.Keys = append(s.Keys, word())
			}
			s.Directives = lines("", 0)
			servers = append(servers, s)
		}
		text, err := Format(servers)
		if err != nil {
			continue
		}
		written++
		back, err := Parse("Corefile", []byte(text))
		if got, want := shape(back), shape(servers); err != nil || got != want {
			t.Fatalf("Parse of\n%s\nerror %v, got\n%s\nwant\n%s", text, err, got, want)
		}
	}
	if written < 4_000 {
		t.Errorf("Format accepted %d inputs, too few", written)
	}
}

// Format writes the result of Parse, except for words that cannot be quoted, and
// Parse reads the same again.
func FuzzFormat(f *testing.F) {
	for _, text := range []string{". {\n errors\n}\n", "a b, c {\n log {$HOME} {\n  x \"y z\" \\\"\n }\n}\n\"d e\"\n{\n\n}\n", "(s) {\n log\n}\na {\n import s\n}", "\ufeffa {\n \"\" \"\"\n}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "import") {
			return // an import would read files
		}
		servers, err := Parse("Corefile", []byte(text))
		if err != nil {
			return
		}
		out, err := Format(servers)
		if err != nil {
			return
		}
		back, err := Parse("Corefile", []byte(out))
		if got, want := shape(back), shape(servers); err != nil || got != want {
			t.Fatalf("%q: Format returned\n%s\nParse of that: error %v, got\n%s\nwant\n%s", text, out, err, got, want)
		}
		if again, err := Format(back); again != out || err != nil {
			t.Fatalf("Format of the result of Parse: error %v, got\n%s\nwant\n%s", err, again, out)
		}
	})
}
