package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/seamark/seamark/tools/build"
)

// project is where the repository is, and its releases.
const project = "https://github.com/seamark/seamark"

// downloads returns the URL below which the files of version are published.
func downloads(version string) string {
	return project + "/releases/download/v" + version
}

// relative matches the start of a link to a file of the repository.
var relative = regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+(?:#[a-z0-9-]+)?)\)`)

// newNotes returns the notes of the release: its entry in CHANGELOG.md.
func newNotes(r build.Release) (artifact, error) {
	text, err := os.ReadFile(filepath.Join(r.Source, "CHANGELOG.md"))
	if err != nil {
		return artifact{}, err
	}

	entry, err := changes(string(text), r.Version)
	if err != nil {
		return artifact{}, err
	}

	entry = relative.ReplaceAllString(joined(entry), "]("+project+"/blob/v"+r.Version+"/$1)")
	entry += fmt.Sprintf("\n[Verify this release](%s/blob/v%s/docs/how-to/verify.md): signatures, provenance, and a build "+
		"of your own with the same bytes.\n", project, r.Version)
	return artifact{"notes.md", []byte(entry)}, nil
}

// changes returns the text of the entry of version. A version that is not of a tag for
// users, such as 0.1.0-rc.1 or 0.1.0-4-gCOMMIT, has the newest entry.
func changes(text, version string) (string, error) {
	for section := range strings.SplitSeq("\n"+text, "\n## ") {
		heading, entry, _ := strings.Cut(section, "\n")
		found, _, _ := strings.Cut(heading, " ")
		if found == version || strings.Contains(version, "-") && found != "" {
			return strings.TrimSpace(entry) + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no entry %q", version)
}

// joined returns text with each paragraph and item on one line: the page of a release shows
// the ends of lines.
func joined(text string) string {
	var out strings.Builder
	previous := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		alone := line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "- ")

		switch {
		case previous == "" && out.Len() == 0:
		case alone || previous == "" || strings.HasPrefix(previous, "#") || strings.HasPrefix(previous, "|"):
			out.WriteString("\n")
		default:
			out.WriteString(" ")
			line = strings.TrimLeft(line, " ")
		}

		out.WriteString(line)
		previous = line
	}
	return out.String() + "\n"
}
