package corefile

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// show returns the parsed directives, one on each line, with their positions.
func show(servers []Server) string {
	var b strings.Builder
	var write func(indent string, ds []Directive)
	write = func(indent string, ds []Directive) {
		for _, d := range ds {
			fmt.Fprintf(&b, "%s%s:%d %s %q", indent, filepath.Base(d.File), d.Line, d.Path, d.Words())
			if d.Block {
				b.WriteString(" {}")
			}
			b.WriteString("\n")
			write(indent+"  ", d.Body)
		}
	}
	for _, s := range servers {
		for _, k := range s.Keys {
			fmt.Fprintf(&b, "%s:%d %s\n", filepath.Base(k.File), k.Line, k.Text)
		}
		write("  ", s.Directives)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	t.Setenv("SEAMARK_TEST", "from {$HOME}")
	for _, c := range []struct{ name, text, want string }{
		{"nested", `.:53 {
    errors
    kubernetes cluster.local {
        ttl 30
        deeper {
            still "a b"
        }
    }
}`, `Corefile:1 .:53
  Corefile:2 errors []
  Corefile:3 kubernetes ["cluster.local"] {}
    Corefile:4 kubernetes: ttl ["30"]
    Corefile:5 kubernetes: deeper [] {}
      Corefile:6 kubernetes: deeper: still ["a b"]
`},
		{"source order and every occurrence", "a {\n log\n errors\n log x\n}\n", `Corefile:1 a
  Corefile:2 log []
  Corefile:3 errors []
  Corefile:4 log ["x"]
`},
		{"keys", "a b,c, d,\ne\n{\n whoami\n}\nf:1 {\n}\n", `Corefile:1 a
Corefile:1 b
Corefile:1 c
Corefile:1 d
Corefile:2 e
  Corefile:4 whoami []
Corefile:6 f:1
`},
		{"one line", ". {\n health { lameduck 5s }\n}\n", `Corefile:1 .
  Corefile:2 health [] {}
    Corefile:2 health: lameduck ["5s"]
`},
		{"without braces", ".:53\nerrors\nhealth {\n lameduck 1s\n}\n", `Corefile:1 .:53
  Corefile:2 errors []
  Corefile:3 health [] {}
    Corefile:4 health: lameduck ["1s"]
`},
		{"a key alone", ".:53", "Corefile:1 .:53\n"},
		{"environment", ". {\n forward {$SEAMARK_TEST} a{%SEAMARK_TEST%}b {$SEAMARK_NONE} {$} {name}\n}\n", `Corefile:1 .
  Corefile:2 forward ["from {$HOME}" "afrom {$HOME}b" "" "{$}" "{name}"]
`},
		{"quotes and comments", ". {\n log \"a \\\"b\\\" # c\" d#e\n log \"two\nlines\" x\n errors\n}\n", `Corefile:1 .
  Corefile:2 log ["a \"b\" # c" "d"]
  Corefile:3 log ["two\nlines" "x"]
  Corefile:5 errors []
`},
		{"snippets", "(s) {\n log\n}\n(both) {\n import s\n errors\n}\na {\n import both\n import both\n}\nb {\n import s\n whoami\n}\n", `Corefile:8 a
  Corefile:2 log []
  Corefile:6 errors []
  Corefile:2 log []
  Corefile:6 errors []
Corefile:12 b
  Corefile:2 log []
  Corefile:14 whoami []
`},
		{"a snippet in a body", "(s) {\n lameduck 5s\n}\na {\n health {\n import s\n }\n}\n", `Corefile:4 a
  Corefile:5 health [] {}
    Corefile:2 health: lameduck ["5s"]
`},
		{"import is an ordinary argument", "a {\n log import x\n}\n", "Corefile:1 a\n  Corefile:2 log [\"import\" \"x\"]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers, err := Parse("Corefile", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := show(servers); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func TestImportFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("custom/b.override", "log\nimport more")
	write("custom/a.override", "errors\n")
	write("custom/more", "# one\nwhoami")
	write("custom/x.server", "x {\n log\n}\ny {\n errors\n}\n")
	text := ". {\n import custom/*.override\n import none/*.override\n bind lo\n}\nimport custom/*.server\nz {\n}\n"
	servers, err := Parse(write("Corefile", text), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := `Corefile:1 .
  a.override:1 errors []
  b.override:1 log []
  more:2 whoami []
  Corefile:4 bind ["lo"]
x.server:1 x
  x.server:2 log []
x.server:4 y
  x.server:5 errors []
Corefile:7 z
`
	if got := show(servers); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		servers          int
	}{
		{"nothing", "  # nothing\n", "Corefile:1: no server block", 0},
		{"zeros", "a {\n}\n\x00\x00", "Corefile:3: want text in UTF-8, got byte 0x00", 0},
		{"UTF-16", ".\x00 \x00{\x00\n\x00", "Corefile:1: want text in UTF-8, got byte 0x00", 0},
		{"unclosed", "a {\n errors\n", "Corefile:1: a: its { is never closed", 0},
		{"unclosed at once", "a {", "Corefile:1: a: its { is never closed", 0},
		{"unclosed inside", "a {\n health {\n errors\n}\n", "Corefile:2: health: its { is never closed", 0},
		{"unclosed inside, without indentation", "a {\nhealth {\nerrors\n}\n", "Corefile:1: a: its { is never closed", 0},
		{"unclosed two levels down", "a {\n b {\n  c {\n   d\n }\n}\n", "Corefile:3: c: its { is never closed", 0},
		{"unclosed quote", "a {\n log \"x\n errors\n}\n", "Corefile:2: the quote is never closed", 0},
		{"unclosed quote before others", "a {\n log \"x y\n template \" z \"\n}\n", "Corefile:2: the quote is never closed", 0},
		{"unclosed quote after others", "a {\n log \"\\\"\" a\"b # \"\n x \"\n}", "Corefile:3: the quote is never closed", 0},
		{"a key without port alone", ".", "Corefile:1: not a server block: want ZONE {, and directives up to a }", 1},
		{"prose", "hello world\n", "Corefile:1: not a server block: want ZONE {, and directives up to a }", 1},
		{"resolv.conf", "# node\nnameserver 10.0.0.1\n", "Corefile:2: not a server block: want ZONE {, and directives up to a }", 1},
		{"too many", "a {\n}\n}\nb {\n}\n", "Corefile:3: } without a {", 2},
		{"no zone", "{\n errors\n}\n", "Corefile:1: a server block needs a zone before its {", 0},
		{"unset zone", "{$SEAMARK_NONE} {\n errors\n}\n", "Corefile:1: a server block needs a zone before its {; environment variable SEAMARK_NONE is not set", 0},
		{"brace alone", "a {\n {\n x\n }\n log\n}\n", "Corefile:2: { without a word before it", 1},
		{"brace without braces", "a\nlog\n}\n", "Corefile:3: } without a {", 0},
		{"snippet twice", "(s) {\n}\n(s) {\n}\na {\n}\n", "Corefile:3: snippet (s) is defined twice", 1},
		{"snippet unclosed", "(s) {\n log\n", "Corefile:1: snippet (s): its { is never closed", 0},
		{"missing import, twice", "a {\n import nowhere\n import\n import a b\n log\n}\n",
			"Corefile:2: import: no snippet or file nowhere\n" +
				"Corefile:3: import: want one snippet, file or pattern\n" +
				"Corefile:4: import: want one snippet, file or pattern", 1},
		{"import loop", "(a) {\n import b\n}\n(b) {\n import a\n}\nx {\n import a\n}\n",
			"Corefile:5: import cycle: a imports b imports a", 1},
		{"import of itself", "(a) {\n log\n import a\n}\nx {\n import a\n}\n", "Corefile:3: import cycle: a imports a", 1},
		{"empty import", "a {\n import {$SEAMARK_NONE}\n}\n", "Corefile:2: import: the name is empty; environment variable SEAMARK_NONE is not set", 1},
		{"a folder", "a {\n import .\n}\n", "Corefile:2: import: read .: is a directory", 1},
		{"a bad pattern", "a {\n import [\n}\n", "Corefile:2: import: [: syntax error in pattern", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers, err := Parse("Corefile", []byte(c.text))
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if len(servers) != c.servers {
				t.Errorf("server blocks: got %d, want %d", len(servers), c.servers)
			}
		})
	}
}

// Imports that double at each step end soon, and without using the memory that
// the result would take.
func TestImportBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("(s0) {\n log\n}\n")
	for i := range 40 {
		fmt.Fprintf(&b, "(s%d) {\n import s%d\n import s%d\n}\n", i+1, i, i)
	}
	b.WriteString("a {\n import s40\n}\n")
	_, err := Parse("Corefile", []byte(b.String()))
	if err == nil || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("got %v, want one error", err)
	}
}

// The memory that Parse needs is proportional to the size of the Corefile.
func TestParseManyServers(t *testing.T) {
	allocated := func(servers int) uint64 {
		var text strings.Builder
		for i := range servers {
			fmt.Fprintf(&text, "zone%d.example {\n whoami\n}\n", i)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse("Corefile", []byte(text.String())); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := allocated(500), allocated(4000)
	if many > 16*few {
		t.Errorf("Parse of 500 and 4,000 server blocks: got %d and %d bytes allocated, want at most 16 times as much", few, many)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(". {\n errors\n health { lameduck 5s }\n}\n")
	f.Add("(s) {\n log\n import s\n}\na,b\nimport s\n")
	f.Add("{$A} } { \"")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "import") {
			return // the fuzzer must not read files
		}
		servers, err := Parse("Corefile", []byte(text))
		if err == nil {
			for _, s := range servers {
				if len(s.Keys) == 0 {
					t.Errorf("%q: got a server block without keys", text)
				}
			}
		}
	})
}
