// Command manual writes the manual pages of Seamark and its shell completions: a page of
// section 1 for each command, one of section 7 for each directive of a Corefile, and a
// script for each of bash, zsh and fish. Releases contain them.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("manual: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("manual", flag.ContinueOnError)
	output := f.String("output", "bin/manual", "directory for man1, man7 and completions")
	directives := f.String("directives", "docs/reference/directives", "directory of the directives' pages")
	version := f.String("version", "0.0.0-dev", "version of Seamark")
	date := f.String("date", "1970-01-01T00:00:00Z", "date of the pages, RFC 3339")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}

	day, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: want a time such as 2026-11-22T21:00:00Z, got %q", *date)
	}

	for _, directory := range []string{"man1", "man7", "completions"} {
		if err := os.MkdirAll(filepath.Join(*output, directory), 0o755); err != nil {
			return err
		}
	}

	root := cmd.Commands(builtin.Directives())
	header := doc.GenManHeader{Section: "1", Date: &day, Source: "Seamark " + *version, Manual: "Seamark"}
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &header, filepath.Join(*output, "man1")); err != nil {
		return err
	}
	if err := completions(root, filepath.Join(*output, "completions")); err != nil {
		return err
	}
	return directivePages(*directives, filepath.Join(*output, "man7"), *version, day)
}

// directivePages writes the pages of a folder as manual pages.
func directivePages(folder, output, version string, day time.Time) error {
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		return fmt.Errorf("no pages in %s", folder)
	}

	for _, file := range pages {
		if filepath.Base(file) == "README.md" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		name, page, err := directivePage(text, version, day)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(output, name+".7"), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// purpose returns what a directive is for, in one line.
func purpose(name string) string {
	for _, d := range builtin.Directives() {
		if d.Name == name {
			return d.Brief
		}
	}
	return "insert a snippet or files" // import, which the parser of Corefiles executes
}

// completions writes a script for each shell, with the file name that the shell looks for.
func completions(root *cobra.Command, directory string) error {
	for name, generate := range map[string]func(*bytes.Buffer) error{
		"seamark":      func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"_seamark":     func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"seamark.fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
	} {
		var script bytes.Buffer
		if err := generate(&script); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, name), script.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	// The first lines of a directive's page: its name, and a link to the others.
	pageStart = regexp.MustCompile(`^# (\S+)\n\n\[Directives\].*\n\n`)
	// A link within the documentation, which a manual page cannot follow.
	link = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// directivePage returns the manual page of a directive, and its name, for the page in
// Markdown.
func directivePage(text []byte, version string, day time.Time) (name string, page []byte, err error) {
	m := pageStart.FindSubmatch(text)
	if m == nil {
		return "", nil, fmt.Errorf("want a title and a link at the start, got %.80q", text)
	}
	name = "seamark-" + string(m[1])
	var markdown strings.Builder
	fmt.Fprintf(&markdown, "%% \"%s\" \"7\" \"%s\" \"Seamark %s\" \"Directives of a Corefile\"\n",
		strings.ToUpper(name), day.Format("Jan 2006"), version)
	fmt.Fprintf(&markdown, "# NAME\n\n%s - %s\n\n# DESCRIPTION\n\n", name, purpose(string(m[1])))
	body := link.ReplaceAll(text[len(m[0]):], []byte("$1"))
	markdown.Write(item.ReplaceAll(table.ReplaceAllFunc(body, definitions), []byte("\n$1\n: $3$2\n")))
	markdown.WriteString("\n# SEE ALSO\n\n**seamark(1)**, **seamark-serve(1)**, **seamark-check(1)**\n")
	return name, md2man.Render([]byte(markdown.String())), nil
}

// table is a table in Markdown, whose cells have no vertical bar.
var table = regexp.MustCompile(`(?m)^\|.*\n\|[-|]+\n(\|.*\n)+`)

// item is an item of a list that begins with code, such as the syntax of an option: its lines,
// the first with a dash, which the manual page has as a definition.
var item = regexp.MustCompile("(?m)^- ((?:`[^`]+`,?\\s+)*`[^`]+`)(\\s+\\([^()]+\\))?:\\s+(.*\n(?:  .*\n)*)")

// definitions returns a table as a list of definitions, since a terminal is too narrow for the
// columns: the first cell is the term, the last its meaning, and those between follow it.
func definitions(text []byte) []byte {
	rows := strings.Split(strings.TrimSpace(string(text)), "\n")
	head := cells(rows[0])
	var list strings.Builder

	for _, row := range rows[2:] {
		row := cells(row)
		last := len(row) - 1
		fmt.Fprintf(&list, "%s\n: %s", row[0], row[last])
		for i := 1; i < last; i++ {
			if row[i] != "" {
				fmt.Fprintf(&list, " (%s: %s)", head[i], row[i])
			}
		}
		list.WriteString("\n\n")
	}
	return []byte(list.String())
}

func cells(row string) []string {
	cells := strings.Split(strings.Trim(row, "|"), "|")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	return cells
}
