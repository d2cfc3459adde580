package builtin

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/transport"
)

var update = flag.Bool("update", false, "write docs/reference/directives/README.md")

const referenceDir = "../docs/reference/directives"

// docs/reference/directives has a page for each directive and for import, which begins with
// the directive's name and has its sections in one order, and no other pages.
func TestReferencePages(t *testing.T) {
	names, all := []string{"README", "import"}, read(t, "../docs/reference/metrics.md")
	for _, d := range Directives() {
		names = append(names, d.Name)
		text := read(t, filepath.Join(referenceDir, d.Name+".md"))

		head := fmt.Sprintf("# %s\n\n[Directives](README.md)\n\nThe %[1]s directive ", d.Name)
		if !strings.HasPrefix(text, head) {
			t.Errorf("%s.md: got the start\n%.200s\nwant\n%s", d.Name, text, head)
		}
		headings := sections(text)
		if !regexp.MustCompile(`^Syntax (Options )?Examples (.* )?Differences from CoreDNS $`).MatchString(headings) {
			t.Errorf("%s.md: got the sections %s, want Syntax, Options, Examples, others, Metrics, Differences from CoreDNS", d.Name, headings)
		}
		if strings.Contains(headings, " Metrics ") && !strings.HasSuffix(headings, " Metrics Differences from CoreDNS ") {
			t.Errorf("%s.md: Metrics is not the section before Differences from CoreDNS", d.Name)
		}
		wholeTables(t, d.Name, text)
		if strings.Count(text, "\n```")%2 != 0 {
			t.Errorf("%s.md: a block of code does not end", d.Name)
		}
		for _, m := range regexp.MustCompile("(?m)^(?:\\||-) `((?:coredns|seamark|skydns)_[a-z0-9_]+)[`{]").FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile("\n- `" + m[1] + "[`{]").MatchString(all) {
				t.Errorf("%s.md: metrics.md has no metric %s", d.Name, m[1])
			}
		}
	}

	files, err := filepath.Glob(referenceDir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(names, strings.TrimSuffix(filepath.Base(file), ".md")) {
			t.Errorf("%s: the page of no directive", file)
		}
	}
}

// sections returns the headings of a page, each followed by a space.
func sections(text string) string {
	var headings strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1) {
		headings.WriteString(m[1] + " ")
	}
	return headings.String()
}

// wholeTables reports rows of a page's tables that have more or fewer cells than their head.
func wholeTables(t *testing.T, name, text string) {
	t.Helper()
	columns := 0
	for line := range strings.Lines(text) {
		switch n := strings.Count(line, "|"); {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = n
		case n != columns:
			t.Errorf("%s.md: got %d bars, want %d as in the head of the table: %s", name, n, columns, line)
		}
	}
}

// The pages show the syntax of each directive, and list all its options, each once with its
// syntax and its default, and no others.
func TestReferenceOptions(t *testing.T) {
	texts := map[string]string{}
	for _, d := range Directives() {
		texts[d.Name] = read(t, filepath.Join(referenceDir, d.Name+".md"))
	}
	freeLines := []string{"rewrite", "records", "federation"} // not only options are between their braces

	t.Chdir(folder(t))
	for _, d := range Directives() {
		if usage := syntax(texts[d.Name]); usage != d.Usage {
			t.Errorf("%s.md: got the syntax %q, want %q", d.Name, usage, d.Usage)
		}
		if slices.Contains(freeLines, d.Name) {
			continue
		}

		listed, shown := map[string]optionItem{}, []string{}
		for _, item := range optionList(t, d.Name, texts[d.Name]) {
			if _, again := listed[item.name()]; again {
				t.Errorf("%s.md: the option %s is listed twice", d.Name, item.name())
			}
			listed[item.name()] = item
			shown = append(shown, item.usage)
		}
		var want []string
		for _, o := range options(t, d, texts[d.Name]) {
			if o.Removed == "" {
				want = append(want, strings.TrimSuffix(o.Usage, ofForward))
				compareDefault(t, d.Name, o, listed[o.Name()].fallback)
			}
		}
		same(t, d.Name+".md: the list of options", shown, want)
	}
}

// ofForward are the arguments of options that the page of forward describes, and others only name.
const ofForward = " [ARGUMENTS...]"

// notInRow lists the options whose default on the page is not the one of a row, with the reason.
var notInRow = map[string]string{
	"erratic drop":       "only if neither truncate nor delay is given",
	"etcd endpoint":      "the default of the client, with which tls may be given",
	"loadbalance reload": "the option is an error unless the policy is weighted",
	"log class":          "the classes of all lines are added up",
	"proxyproto default": "use unless allow is given",
	"timeouts read":      "zero, for which package transport has the default",
	"timeouts write":     "as read",
	"timeouts idle":      "as read",
}

// compareDefault compares the default of an option's row with the one on the page. The page
// has it in words if it is not a value that the option can have.
func compareDefault(t *testing.T, directive string, o corefile.Option, stated string) {
	t.Helper()
	if notInRow[directive+" "+o.Name()] != "" {
		return
	}
	isValue := regexp.MustCompile("^(`[^`]+`|[0-9]+)$").MatchString(stated)
	switch got := strings.Trim(stated, "`"); {
	case isValue && got != o.Default, !isValue && o.Default != "":
		t.Errorf("%s.md: %s: got the default %q, want %q as in the option's row", directive, o.Name(), got, o.Default)
	}
}

// The defaults of timeouts are those of package transport.
func TestReferenceTimeouts(t *testing.T) {
	got := map[string]string{}
	for _, item := range optionList(t, "timeouts", read(t, filepath.Join(referenceDir, "timeouts.md"))) {
		got[item.name()] = strings.Trim(item.fallback, "`")
	}
	limits := transport.Limits{}.OrDefaults()
	for name, want := range map[string]time.Duration{
		"read": limits.MessageTimeout, "write": limits.WriteTimeout, "idle": limits.IdleTimeout,
	} {
		if got[name] != want.String() {
			t.Errorf("timeouts.md: %s: got the default %s, want %s", name, got[name], want)
		}
	}
}

// syntax returns the first line of the code in the section Syntax.
func syntax(text string) string {
	_, text, _ = strings.Cut(text, "\n## Syntax\n\n```\n")
	first, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(first, " {")
}

// An optionItem is an option in the list of a page: its syntax, and its default or "".
type optionItem struct{ usage, fallback string }

func (o optionItem) name() string { return strings.Fields(o.usage)[0] }

// An item of the list of options, as in "- `ttl SECONDS`, `age SECONDS` (default 5): meaning".
var (
	listItem  = regexp.MustCompile("(?m)^- ((?:`[^`]+`,?\\s+)*`[^`]+`)(?:\\s+\\(default\\s+([^()]+)\\))?:\\s")
	itemUsage = regexp.MustCompile("`([^`]+)`")
)

// optionList returns the options that the section Options of a page lists. It reports items in another form.
func optionList(t *testing.T, name, text string) (items []optionItem) {
	t.Helper()
	_, text, _ = strings.Cut(text, "\n## Options\n")
	text, _, _ = strings.Cut(text, "\n## ")
	if rest := listItem.ReplaceAllString(text, ""); regexp.MustCompile("(?m)^- ").MatchString(rest) {
		t.Errorf("%s.md: got an item of the options that is not of the form - `SYNTAX` (default VALUE): meaning, in\n%s", name, rest)
	}
	for _, item := range listItem.FindAllStringSubmatch(text, -1) {
		for _, usage := range itemUsage.FindAllStringSubmatch(item[1], -1) {
			items = append(items, optionItem{strings.Join(strings.Fields(usage[1]), " "), strings.Join(strings.Fields(item[2]), " ")})
		}
	}
	return items
}

// options returns the options of a directive: the cause of the error of the page's Corefile
// with an unknown one. Optional arguments are left out, which may be defaults of options.
func options(t *testing.T, directive config.Directive, text string) []corefile.Option {
	t.Helper()
	name := directive.Name
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		blocks, err := corefile.Parse("Corefile", []byte(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			i := slices.IndexFunc(b.Directives, func(d corefile.Directive) bool { return d.Text == name })
			if i < 0 {
				continue
			}
			d := &b.Directives[i]
			if strings.HasPrefix(directive.Usage, name+" [") {
				d.Args = nil
			}
			d.Body = append(d.Body, corefile.Directive{Token: corefile.Token{Text: "no_such_option", File: d.File, Line: d.Line}})

			_, err := server.NewPlan(blocks, server.Options{
				Directives: withInterfaces(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
				Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
			})
			if unknown, ok := errors.AsType[*corefile.UnknownOption](err); ok {
				return unknown.Known
			}
			t.Fatalf("%s: got error %v, want one of an unknown option", name, err)
		}
	}
	t.Fatalf("%s.md: got no Corefile with the directive, want one", name)
	return nil
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, s := range want {
		if !slices.Contains(got, s) {
			t.Errorf("%s: %q is missing", what, s)
		}
	}
	for _, s := range got {
		if !slices.Contains(want, s) {
			t.Errorf("%s: got %q, which does not exist", what, s)
		}
	}
}

// The index of the pages has the directives in their order, with their purposes.
func TestReferenceIndex(t *testing.T) {
	var index strings.Builder
	index.WriteString(indexHead)
	for _, d := range Directives() {
		fmt.Fprintf(&index, "- [%s](%[1]s.md): %s\n", d.Name, d.Brief)
	}

	file := filepath.Join(referenceDir, "README.md")
	if *update {
		if err := os.WriteFile(file, []byte(index.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, file); got != index.String() {
		t.Errorf("%s is old: run go test ./builtin -run TestReferenceIndex -update; want\n%s", file, index.String())
	}
}

const indexHead = `# Directives

Every directive of a Corefile, in the order in which a query passes them; the order
in the Corefile has no effect. A page has the directive's line, and the options that may follow it
between braces, one on a line. An option without a default is off unless you give it. Syntax, defaults
and metrics are those of CoreDNS, but for the differences at the end of a page.

- [import](import.md): insert a snippet or files
`
