package admin

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/redact"
)

// A configLine is a line of the effective Corefile: imports and environment variables are
// replaced, and secrets are hidden.
type configLine struct {
	File string // where the line is from
	Line int
	Text string
}

// SetServers passes the server blocks of the plan.
func (a *Admin) SetServers(servers []corefile.Server) { a.servers.Store(&servers) }

func (s *service) configurationPage(*http.Request) (any, int, error) {
	lines := []configLine{}
	if servers := s.blocks[0].servers.Load(); servers != nil {
		for _, server := range *servers {
			lines = appendServer(lines, server)
		}
	}
	return lines, http.StatusOK, nil
}

func appendServer(lines []configLine, s corefile.Server) []configLine {
	at, words := configLine{}, []string{}
	for _, k := range s.Keys {
		words = append(words, word(k.Text))
	}
	if len(s.Keys) > 0 {
		at.File, at.Line = s.Keys[0].File, s.Keys[0].Line
	}
	at.Text = strings.Join(append(words, "{"), " ")

	lines = append(lines, at)
	for _, d := range s.Directives {
		lines = appendDirective(lines, d, d.Text, 1)
	}
	return append(lines, configLine{Text: "}"})
}

// appendDirective appends the lines of a directive or an option. path has the names of
// the enclosing directives and its own name.
func appendDirective(lines []configLine, d corefile.Directive, path string, depth int) []configLine {
	indent := strings.Repeat("    ", depth)
	words := []string{word(d.Text)}
	if path == "on" {
		words = append(words, command(d.Args)...)
	} else {
		for i := range d.Args {
			words = append(words, argument(path, d.Args, i))
		}
	}
	if d.Block || len(d.Body) > 0 {
		words = append(words, "{")
	}

	lines = append(lines, configLine{d.File, d.Line, indent + strings.Join(words, " ")})
	for _, o := range d.Body {
		lines = appendDirective(lines, o, path+" "+o.Text, depth+1)
	}
	if d.Block || len(d.Body) > 0 {
		lines = append(lines, configLine{Text: indent + "}"})
	}
	return lines
}

// command returns the arguments of on, with the command's program alone: its arguments, which a
// quoted word may hold too, may be secrets.
func command(args []corefile.Token) (words []string) {
	if len(args) > 0 {
		words = append(words, word(args[0].Text))
	}
	if len(args) < 2 {
		return words
	}

	program := append(strings.Fields(args[1].Text), "")
	words = append(words, word(program[0]))
	if len(program) > 2 || len(args) > 2 {
		words = append(words, redact.Hidden)
	}
	return words
}

// secretArguments are the options whose argument with that index is a secret.
var secretArguments = map[string]int{
	"tsig secret":      1,
	"etcd credentials": 1,
}

// secretName matches names of parameters and flags with secrets.
var secretName = regexp.MustCompile(`(?i)(secret|passw|passphrase|token|credential|api[-_]?key|private[-_]?key|auth)`)

// argument returns an argument of a Corefile's line, without a secret in it: a secret of
// secretArguments, the password and the parameters of a URL, and the value of a flag or an
// assignment whose name sounds like a secret's.
func argument(path string, args []corefile.Token, i int) string {
	text := args[i].Text
	if secret, ok := secretArguments[path]; ok && secret == i {
		return redact.Hidden
	}
	if i > 0 {
		flag := args[i-1].Text
		if strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && secretName.MatchString(flag) {
			return redact.Hidden
		}
	}

	if strings.Contains(text, "://") {
		return word(redact.URL(text))
	}
	if i := strings.IndexAny(text, "=:"); i > 0 && secretName.MatchString(text[:i]) {
		return word(text[:i+1] + redact.Hidden)
	}
	return word(text)
}

// word returns text as it is written in a Corefile.
func word(text string) string {
	if written, err := corefile.Word(text); err == nil {
		return written
	}
	return strconv.Quote(text)
}
