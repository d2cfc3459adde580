package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

const repository = "https://github.com/seamark/seamark/blob/main/"

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	page    = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md(?:#[a-z0-9-]+)?`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestDocumentLinks checks that the files and headings exist to which documents link, and
// the pages that code, rules and manifests name.
func TestDocumentLinks(t *testing.T) {
	race.Skip(t)
	root, links := os.DirFS("../.."), 0
	anchors := map[string]map[string]bool{}
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == "bin" || name == "dist" || name == "testdata" {
				return fs.SkipDir
			}
			return nil
		}

		targets, err := linksOf(root, file)
		for _, target := range targets {
			links++
			if problem := missing(root, target, anchors); problem != "" {
				t.Errorf("%s: link to %s: %s", file, target, problem)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 700 {
		t.Errorf("found %d links, too few", links)
	}
}

// linksOf returns what a file links to, as paths from the root with their anchors.
func linksOf(root fs.FS, file string) (targets []string, err error) {
	switch path.Ext(file) {
	case ".md", ".tmpl", ".go", ".yaml":
	default:
		return nil, nil
	}
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	if path.Ext(file) != ".md" && path.Ext(file) != ".tmpl" {
		return page.FindAllString(string(text), -1), nil
	}

	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), "`"), -1) {
		target := m[1]
		switch rest, ours := strings.CutPrefix(target, repository); {
		case ours:
			target = rest
		case strings.Contains(target, ":"): // a URL of another site
			continue
		case strings.HasPrefix(target, "#"):
			target = file + target
		default:
			target = path.Join(path.Dir(file), target)
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// missing returns what a link's target lacks, or "".
func missing(root fs.FS, target string, anchors map[string]map[string]bool) string {
	file, anchor, _ := strings.Cut(target, "#")
	if _, err := fs.Stat(root, file); err != nil {
		return "no such file"
	}
	if anchor == "" || path.Ext(file) != ".md" {
		return ""
	}

	if anchors[file] == nil {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err.Error()
		}
		anchors[file] = slugs(string(text))
	}
	if !anchors[file][anchor] {
		return "no such heading"
	}
	return ""
}

// slugs returns the anchors of a page's headings, as GitHub makes them.
func slugs(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, ""), -1) {
		words := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		found[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(words), ""), " ", "-")] = true
	}
	return found
}
