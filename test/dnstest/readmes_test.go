package dnstest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
)

var corednsSource = flag.String("corednssource", "", "the directory of CoreDNS's module, whose examples must be accepted")

// refusedExamples has parts of the errors of examples that Seamark does not accept, and what says why: a row of
// differences.md, or of the table of plugins without a directive; or, in parentheses, what is wrong with the example.
var refusedExamples = [][2]string{
	{"route53: not supported", "`route53`, `azure`, `clouddns`, `nomad`"},
	{"azure: not supported", "`route53`, `azure`, `clouddns`, `nomad`"},
	{"clouddns: not supported", "`route53`, `azure`, `clouddns`, `nomad`"},
	{"nomad: not supported", "`route53`, `azure`, `clouddns`, `nomad`"},
	{"aws_secretsmanager is not supported", "`dnssec` with `key aws_secretsmanager`"},
	{"acme is not supported", "`tls` with `acme`"},
	{"datadog is not supported", "`trace datadog`"},
	{"requires the kubernetes directive", "`autopath @kubernetes` without `kubernetes`"},
	{"cannot both be listened on", "two overlapping addresses of DNS or status pages; blocks on a port bound to all and to a single address"},
	{"tls:// needs a certificate", "`tls://` and no `tls` at its address"},
	{"no such file or directory", "(the example has certificates, keys or a directory)"},
	{"environment variable PORT is not set", "(it is not)"},
	{"environment variable ENV_VAR is not set", "(it is not)"},
	{"no snippet or file", "(the snippet is in the example before it)"},
	{"no server block", "(a snippet alone)"},
	{"unknown directive \"some-plugin\"", "(it stands for another)"},
	{"cache: already given", "(CoreDNS ignores the first one)"},
}

// zoneText is a zone file for any zone.
const zoneText = "@ 60 IN SOA ns hostmaster 1 2 3 4 5\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n"

// Each example of CoreDNS's README pages is accepted, or refused for a reason that users can read.
func TestReadmeExamples(t *testing.T) {
	if *corednsSource == "" {
		t.Skip("needs -corednssource: make test-coredns")
	}
	differences, err := os.ReadFile(root + "docs/reference/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(*corednsSource, "plugin/*/README.md"))
	if err != nil || len(pages) < 50 {
		t.Fatalf("got %d README pages, %v", len(pages), err)
	}

	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"my-resolv.conf": "search example.org\n", "example.hosts": "192.0.2.1 www.example.org\n",
		"db.example.com.weights": "www.example.com\n192.0.2.1 3\n",
		"db.example.org":         zoneText, "db.shared": zoneText, "db.example.com": zoneText, "example.org": zoneText, "example.org.zone": zoneText,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	accepted, refused := 0, 0
	for _, page := range append(pages, filepath.Join(*corednsSource, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(*corednsSource, page)
		for _, e := range examplesOf(string(text)) {
			err := planCorefile(e.text)
			if err == nil {
				accepted++
				continue
			}
			refused++
			for message := range strings.SplitSeq(err.Error(), "\n") {
				if wrong := reasonOf(message, string(differences)); wrong != "" {
					t.Errorf("%s:%d: %s: %s\n%s", name, e.line, wrong, message, e.text)
				}
			}
		}
	}
	t.Logf("%d examples accepted, %d refused", accepted, refused)
}

// reasonOf returns "" if a row or the list has the reason for an error.
func reasonOf(message, differences string) string {
	i := slices.IndexFunc(refusedExamples, func(r [2]string) bool { return strings.Contains(message, r[0]) })
	if i < 0 {
		return "not accepted"
	}
	if row := refusedExamples[i][1]; !strings.HasPrefix(row, "(") && !strings.Contains(differences, row) {
		return fmt.Sprintf("differences.md has no row with %s", row)
	}
	return ""
}

// An example is a Corefile in a README page.
type example struct {
	line int
	text string
}

// examplesOf returns the Corefiles of a page outside of its sections with the syntax.
func examplesOf(page string) (all []example) {
	var block []string // nil outside of a block
	section, begin := "", 0
	for i, line := range strings.Split(page, "\n") {
		trimmed := strings.TrimSpace(line)
		isFence := strings.HasPrefix(trimmed, "~~~") || strings.HasPrefix(trimmed, "```")
		switch {
		case isFence && block == nil:
			block, begin = []string{}, i+1
		case isFence:
			if text := corefileOf(block); text != "" && section != "Syntax" {
				all = append(all, example{begin, text})
			}
			block = nil
		case block != nil:
			block = append(block, line)
		case strings.HasPrefix(line, "#"):
			section = strings.Trim(line, "# ")
		}
	}
	return all
}

// isPlaceholder matches a word such as [full], but no address.
var isPlaceholder = regexp.MustCompile(`^\[[a-zA-Z][^:]*$`)

// corefileOf returns a block as a whole Corefile, "" if it is none. Directives alone are put into a server block.
// A line of dots stands for more, and the braces after it may be missing.
func corefileOf(block []string) string {
	first, open := "", 0
	var text strings.Builder
	for _, line := range block {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "...":
			continue
		case slices.ContainsFunc(words, isPlaceholder.MatchString), // the syntax in another section
			line == "import (": // Go
			return ""
		case first == "" && !strings.HasPrefix(words[0], "#"):
			first = strings.Join(words, " ")
		}
		if words[len(words)-1] == "{" {
			open++
		} else if words[0] == "}" {
			open--
		}
		text.WriteString(line + "\n")
	}
	text.WriteString(strings.Repeat("}\n", max(0, open)))

	word, _, _ := strings.Cut(first, " ")
	isDirective := slices.Contains([]string{"import", "route53", "azure", "clouddns", "nomad"}, word)
	for _, d := range builtin.Directives() {
		isDirective = isDirective || d.Name == word
	}
	switch {
	case isDirective:
		return ".:53 {\n" + text.String() + "}\n"
	case strings.HasSuffix(first, "{") && !strings.HasPrefix(first, "job "): // of Nomad
		return text.String()
	}
	return ""
}
