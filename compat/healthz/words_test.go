package healthz

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, words    string // joined by |
		stdout, stderr bool   // kept
	}{
		{"nslookup kubernetes.default.svc.cluster.local 127.0.0.1 >/dev/null", "nslookup|kubernetes.default.svc.cluster.local|127.0.0.1", false, true},
		{"a >/dev/null 2>&1", "a", false, false},
		{"a 2>&1 >/dev/null", "a", false, true},
		{"a 2>/dev/null", "a", true, false},
		{"a >/dev/null 1>&2", "a", true, true},
		{">/dev/null a b", "a|b", false, true},
		{"a>>/dev/null b", "a|b", false, true},
		{"a 1> /dev/null", "a", false, true},
		{"a2>/dev/null", "a2", false, true},
		{" a\t'b c'  \"d e\" f\\ g \n", "a|b c|d e|f g", true, true},
		{`a "b\"c" 'd\"e' f"g"'h'i ''`, `a|b"c|d\"e|fghi|`, true, true},
		{`a "b\c\\"`, `a|b\c\`, true, true},
		{"a b#c d=e {f} x~ 'if' =", "a|b#c|d=e|{f}|x~|if|=", true, true},
		{`"if" x`, "if|x", true, true},
		{"a \\\nb", "a|b", true, true},
		{"a \\\n  b", "a|b", true, true},
		{"a \\\n\\\n\t>/dev/null", "a", false, true},
		{"a \\\n", "a", true, true},
		{"a \\\n \n", "a", true, true},
		{"a b\\\nc", "a|bc", true, true},
	} {
		s, err := parse(c.text)
		if got := strings.Join(s.words, "|"); err != nil || got != c.words || s.stdout != c.stdout || s.stderr != c.stderr {
			t.Errorf("parse(%q): got %q, stdout %v, stderr %v, error %v; want %q, %v, %v", c.text, got, s.stdout, s.stderr, err, c.words, c.stdout, c.stderr)
		}
	}
}

func TestParseNeedsShell(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "want a command",
		" \n":               "want a command",
		">/dev/null":        "want a command",
		"a | b":             "a pipe or list (|)",
		"a||b":              "a pipe or list (|)",
		"a && b":            "a list or background (&)",
		"a &":               "a list or background (&)",
		"a; b":              "a list (;)",
		"a\nb":              "a second line",
		"(a)":               "a group (()",
		"a $HOME":           "an expansion ($)",
		`a "$HOME"`:         "an expansion ($)",
		"a `b`":             "a substitution (`)",
		"ls *":              "a pattern (*)",
		"[ -f x ]":          "a pattern ([)",
		"a b?":              "a pattern (?)",
		"a # b":             "a comment (#)",
		"a ~":               "a home directory (~)",
		"A=b c":             "assignment A=",
		"exit 1":            "the shell command exit",
		"if true":           "the shell command if",
		"! a":               "the shell command !",
		"{ a":               "the shell command {",
		"a > file":          "redirection >",
		"a >/dev/nullx":     "redirection >",
		"a 2>x":             "redirection 2>",
		"a 3>&1":            "redirection 3>",
		"a < /dev/null":     "redirection <",
		"a 'b":              "unclosed quote '",
		`a "b`:              "unclosed quote \"",
		`a "b\"`:            "unclosed quote \"",
		`a \`:               "nothing follows the last \\",
		"a >/dev/null;exit": "redirection >",
	} {
		if s, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse(%q): got %q, error %v, want error %q", text, s.words, err, want)
		}
	}
}

// parse and a shell agree on every text that parse accepts.
func TestParseAgreesWithShell(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal("sh not found; the test compares parse with it")
	}
	const program = `show() { printf '<%s>' "$@"; }; show `
	r := rand.New(rand.NewPCG(1, 2))
	pieces := strings.Split(`a b 1 2 ' ' ' " " \ $ > # ~ = { } | * [ ! - , . /dev/null >/dev/null 2>/dev/null >&1 \" \\ é`, " ")
	accepted := 0
	for range 4000 {
		var b strings.Builder
		b.WriteString("a ")
		for range 1 + r.IntN(8) {
			b.WriteString(pieces[r.IntN(len(pieces))])
			if r.IntN(3) == 0 {
				b.WriteByte(' ')
			}
		}
		s, err := parse(b.String())
		if err != nil {
			continue
		}
		accepted++
		var want strings.Builder
		for _, w := range s.words {
			fmt.Fprintf(&want, "<%s>", w)
		}
		if !s.stdout {
			want.Reset()
		}
		got, err := exec.CommandContext(t.Context(), sh, "-c", program+b.String()).Output()
		if err != nil || string(got) != want.String() {
			t.Errorf("%q: parse returns %s, the shell prints %s, error %v", b.String(), &want, got, err)
		}
	}
	if accepted < 300 {
		t.Errorf("parse accepted %d of 4000 texts, want at least 300", accepted)
	}
}

func TestCommandWithoutShell(t *testing.T) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal("cat not found")
	}
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct {
		text, out, err string
	}{
		{"echo healthz", "healthz\n", ""},
		{"echo a 'b  c' >/dev/null", "", ""},
		{cat + " /dev/null", "", ""},
		{cat + " /nowhere", "/nowhere: No such file or directory\n", "exit status 1"},
		{cat + " /nowhere 2>/dev/null", "", "exit status 1"},
		{"nosuchprogram", "", "executable file not found"},
	} {
		run, err := newCommand(c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		for range 2 {
			out, err := run(t.Context())
			if !strings.HasSuffix(string(out), c.out) || c.out == "" && len(out) > 0 ||
				(c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got output %q, error %v; want %q, %q", c.text, out, err, c.out, c.err)
			}
		}
	}
	if _, err := newCommand("a | b"); err == nil || !slices.Contains(strings.Fields(err.Error()), "(sh)") {
		t.Errorf("newCommand(a | b) without a shell: got error %v, want one about sh", err)
	}
}
