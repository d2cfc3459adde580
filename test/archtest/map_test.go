package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

// TestMap checks that the map of ARCHITECTURE.md has every package, and that the
// directories and files that the page names exist.
func TestMap(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	root := os.DirFS("../..")
	doc, err := fs.ReadFile(root, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	m, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	_, chart, _ := strings.Cut(string(doc), "## The map\n")
	_, chart, found := strings.Cut(chart, "```\n")
	chart, text, closed := strings.Cut(chart, "```")
	if !found || !closed {
		t.Fatal("ARCHITECTURE.md has no map")
	}
	fail(t, unmapped(m, root, chart))
	fail(t, unknownFiles(m, text))
}

var (
	mapEntry = regexp.MustCompile(`^( *)([a-z0-9/-]+/)`)
	mapName  = regexp.MustCompile(`\b[a-z0-9/-]+/`)
	fileName = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
)

// unmapped compares the packages of m with a map. A line of it begins with a directory,
// relative to the last line that is indented less. It may name further directories, from the
// root or below one of the directories that contain it.
func unmapped(m *module, root fs.FS, chart string) (bad []string) {
	type entry struct {
		indent int
		dir    string
	}
	var above []entry // the entries that contain the line
	var mapped []string
	for line := range strings.Lines(chart) {
		words := mapEntry.FindStringSubmatch(line)
		if words == nil {
			if line[0] != ' ' {
				above = nil
			}
		} else {
			indent := len(words[1])
			for len(above) > 0 && above[len(above)-1].indent >= indent {
				above = above[:len(above)-1]
			}
			dir := path.Clean(words[2])
			if len(above) > 0 {
				dir = path.Join(above[len(above)-1].dir, dir)
			}
			above = append(above, entry{indent, dir})
			if info, err := fs.Stat(root, dir); err != nil || !info.IsDir() {
				bad = append(bad, fmt.Sprintf("ARCHITECTURE.md: the map has the directory %s, which does not exist", dir))
			}
			mapped = append(mapped, dir)
		}
		for _, name := range mapName.FindAllString(line, -1) {
			mapped = append(mapped, path.Clean(name))
			for _, e := range above {
				mapped = append(mapped, path.Join(e.dir, name))
			}
		}
	}
	for _, p := range m.packages {
		if !slices.Contains(mapped, p.dir) {
			bad = append(bad, fmt.Sprintf("ARCHITECTURE.md: the map lacks the package %s", p.dir))
		}
	}
	return bad
}

// unknownFiles returns the Go files that a text names in backquotes and that m does not have.
// A name may lack directories at its beginning.
func unknownFiles(m *module, text string) (bad []string) {
	for _, name := range fileName.FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(m.packages, func(p *pkg) bool {
			return slices.ContainsFunc(p.files, func(f *file) bool { return strings.HasSuffix("/"+f.name, "/"+name[1]) })
		}) {
			bad = append(bad, fmt.Sprintf("ARCHITECTURE.md names the file %s, which does not exist", name[1]))
		}
	}
	return bad
}

func TestUnmapped(t *testing.T) {
	root := tree(`-- one/a.go --
package one
-- one/two/b.go --
package two
-- one/three/c.go --
package three
-- four/d.go --
package four
-- five/e.go --
package five
`)
	m, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, unmapped(m, root, "Parts\n  one/   the first, with three/\n    two/   the second\n    six/   the last\n\nfour/   beside\n"), []string{
		"the map has the directory one/six, which does not exist", "the map lacks the package five",
	})
	expect(t, unknownFiles(m, "`two/b.go` and `c.go`, `wo/b.go` and `f.go`"), []string{"the file wo/b.go,", "the file f.go,"})
}
