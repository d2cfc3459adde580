package builtin

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/directives/README.md")

const referenceDir = "../docs/reference/directives"

// docs/reference/directives has a page for each directive and for import, which begins with
// the directive's purpose, shows its syntax and compares it with CoreDNS, and no other pages.
func TestReferencePages(t *testing.T) {
	names := []string{"README", "import"}
	for _, d := range Directives() {
		names = append(names, d.Name)
		text := read(t, filepath.Join(referenceDir, d.Name+".md"))

		head := fmt.Sprintf("# %s\n\n*%s* · [all directives](README.md)\n\nThe %[1]s directive ", d.Name, d.Brief)
		if !strings.HasPrefix(text, head) {
			t.Errorf("%s.md: got the start\n%.200s\nwant\n%s", d.Name, text, head)
		}
		syntax := text[max(0, strings.Index(text, "\n## Syntax\n")):]
		if _, after, _ := strings.Cut(syntax, "\n```\n"); !regexp.MustCompile("^" + d.Name + `\b`).MatchString(after) {
			t.Errorf("%s.md: the first block of code does not begin with the directive", d.Name)
		}
		if !comparesWithCoreDNS(text) {
			t.Errorf(`%s.md: no paragraph begins with "Same as CoreDNS", "Differs" or "Ours"`, d.Name)
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

// comparesWithCoreDNS reports whether a page has a paragraph on the differences from CoreDNS.
func comparesWithCoreDNS(text string) bool {
	return regexp.MustCompile(`\n## Differences from CoreDNS\n|\nSame as CoreDNS|Differs from CoreDNS|Differs: |Ours: `).MatchString(text)
}

// The index of the pages has the directives in their order, with their purposes.
func TestReferenceIndex(t *testing.T) {
	var index strings.Builder
	index.WriteString(indexHead)
	for _, d := range Directives() {
		fmt.Fprintf(&index, "| [%s](%[1]s.md) | %s |\n", d.Name, d.Brief)
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
in the Corefile has no effect.

| directive | purpose |
|---|---|
| [import](import.md) | insert a snippet or files |
`
