package cmd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/spf13/cobra"
)

const commandsPage = "../docs/reference/commands.md"

// everyday are the commands of the page, as in the help; others have pages of their own.
var everyday = []string{
	"serve", "check", "plan", "fmt", "doctor", "diff", "canary", "shadow",
	"status", "top", "tail", "explain", "query", "records", "cache", "ui",
}

// ownPage has the commands of the help that are on another page.
var ownPage = []string{"node", "resolvconf", "convert", "completion", "version"}

// docs/reference/commands.md has every command with its purpose, its examples, and what its exit status means.
// `seamark help` has the rest.
func TestCommandsPage(t *testing.T) {
	root := cmd.Commands(builtin.Directives())
	var page strings.Builder
	page.WriteString(commandsIntroduction)
	for _, name := range everyday {
		c, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range append([]*cobra.Command{c}, c.Commands()...) {
			commandSection(&page, c)
		}
	}
	for _, c := range root.Commands() {
		if c.GroupID != "older" && c.IsAvailableCommand() && !slices.Contains(slices.Concat(everyday, ownPage), c.Name()) {
			t.Errorf("seamark %s is not on the page", c.Name())
		}
	}

	if *update {
		write(t, commandsPage, page.String())
	}
	if got := read(t, commandsPage); got != page.String() {
		t.Errorf("%s is old: run go test ./cmd -run TestCommandsPage -update; want\n%s", commandsPage, page.String())
	}
}

const commandsIntroduction = `# Commands

The everyday commands. ` + "`seamark help COMMAND`" + ` describes each with its flags, and so does its manual page:
` + "`man seamark-status`" + `. The commands that [look into running servers](../how-to/inspect.md) find them, or use
the address in ` + "`--admin`" + `. Exit status 2 is also a mistake in the command line.

[node](node.md), [resolvconf](resolvconf.md) and [convert](convert.md) have pages of their own, and so have
the commands of older generations (` + "`seamark help --all`" + `). This page is generated from the help.
`

// commandSection writes the purpose of a command, its examples, and the paragraph of its help about the exit status.
func commandSection(page *strings.Builder, c *cobra.Command) {
	level := "##"
	if c.Parent().HasParent() {
		level = "###"
	}
	fmt.Fprintf(page, "\n%s %s\n\n%s.\n", level, c.CommandPath(), c.Short)

	for paragraph := range strings.SplitSeq(strings.TrimSpace(c.Long), "\n\n") {
		if strings.Contains(paragraph, "exit status") {
			fmt.Fprintf(page, "\n%s\n", strings.NewReplacer("<", "&lt;", "*", `\*`, "[", `\[`).Replace(paragraph))
		}
	}
	if example := strings.Trim(c.Example, "\n"); example != "" {
		fmt.Fprintf(page, "\n```\n%s\n```\n", example)
	}
}
