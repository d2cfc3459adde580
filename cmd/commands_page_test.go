package cmd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const commandsPage = "../docs/reference/commands.md"

// everyday are the commands of the page, as in the help; others have pages of their own.
var everyday = []string{
	"serve", "check", "plan", "fmt", "doctor", "diff", "canary", "shadow",
	"status", "top", "tail", "explain", "query", "records", "cache", "ui",
}

// ownPage has the commands of the help that are on another page.
var ownPage = []string{"node", "resolvconf", "convert", "completion", "version"}

// docs/reference/commands.md has the help of every command; what several have in common is there once.
func TestCommandsPage(t *testing.T) {
	root := cmd.Commands(builtin.Directives())
	var commands []*cobra.Command
	for _, name := range everyday {
		c, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		commands = append(append(commands, c), c.Commands()...)
	}
	for _, c := range root.Commands() {
		if c.GroupID != "older" && c.IsAvailableCommand() && !slices.Contains(slices.Concat(everyday, ownPage), c.Name()) {
			t.Errorf("seamark %s is not on the page", c.Name())
		}
	}

	p := commandPage{flags: map[string]int{}, paragraphs: map[string]int{}, described: map[string]string{}}
	for _, c := range commands {
		p.count(c)
	}
	p.intro()
	for _, c := range commands {
		p.section(c)
	}

	if *update {
		write(t, commandsPage, p.text.String())
	}
	if got := read(t, commandsPage); got != p.text.String() {
		t.Errorf("%s is old: run go test ./cmd -run TestCommandsPage -update; want\n%s", commandsPage, p.text.String())
	}
}

// A commandPage is the text of the page, and how many commands have a flag or a paragraph.
type commandPage struct {
	text       strings.Builder
	flags      map[string]int
	paragraphs map[string]int
	common     pflag.FlagSet     // flags of several commands
	shared     []string          // paragraphs of several commands
	described  map[string]string // by flag, the first command that has it
}

// inCommon is the number of commands from which on a flag or a paragraph is on the page once.
const inCommon = 4

// finding are the flags that find servers, which a command has together.
const finding = "`--admin`, `--token-file`, `--namespace`, `--pod`, `--selector`, `--nodes`, `--port`, `--kubeconfig`, `--context`, `--timeout`"

func flagKey(f *pflag.Flag) string { return f.Name + f.Shorthand + f.Usage + f.DefValue }

func (p *commandPage) count(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if p.flags[flagKey(f)]++; p.flags[flagKey(f)] == inCommon && f.Name != "help" {
			p.common.AddFlag(f)
		}
	})
	for paragraph := range strings.SplitSeq(c.Long, "\n\n") {
		if p.paragraphs[paragraph]++; p.paragraphs[paragraph] == inCommon && paragraph != "" {
			p.shared = append(p.shared, paragraph)
		}
	}
}

func (p *commandPage) intro() {
	p.text.WriteString("# Commands\n\nThe everyday commands, as `seamark help COMMAND` describes them; this page is generated from it." +
		" [node](node.md), [resolvconf](resolvconf.md)\nand [convert](convert.md) have pages of their own, and so have the commands of" +
		" older generations (`seamark help --all`).\n\n## Common flags\n\n")
	for _, paragraph := range p.shared {
		p.paragraph(paragraph)
	}
	fmt.Fprintf(&p.text, "The flags that find servers are %s.\n\n", finding)
	p.common.SortFlags = false
	fmt.Fprintf(&p.text, "```\n%s```\n", p.common.FlagUsages())
}

// section writes the help of a command.
func (p *commandPage) section(c *cobra.Command) {
	level := "##"
	if c.Parent().HasParent() {
		level = "###"
	}
	fmt.Fprintf(&p.text, "\n%s %s\n\n*%s*\n\n", level, c.CommandPath(), c.Short)
	for paragraph := range strings.SplitSeq(strings.TrimSpace(c.Long), "\n\n") {
		if p.paragraphs[paragraph] < inCommon && paragraph != "" {
			p.paragraph(paragraph)
		}
	}

	fmt.Fprintf(&p.text, "```\n%s\n", c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(&p.text, "\n%s\n", c.Example)
	}
	var common, before []string
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "help":
		case p.flags[flagKey(f)] >= inCommon:
			common = append(common, "`--"+f.Name+"`")
		case p.described[flagKey(f)] != "":
			before = append(before, "`--"+f.Name+"` ("+p.described[flagKey(f)]+")")
		default:
			p.described[flagKey(f)] = c.Name()
			own.AddFlag(f)
		}
	})

	if own.HasFlags() {
		fmt.Fprintf(&p.text, "\n%s", own.FlagUsages())
	}
	p.text.WriteString("```\n")
	if before != nil {
		fmt.Fprintf(&p.text, "\nAnd, as of another command: %s.\n", strings.Join(before, ", "))
	}
	if common != nil {
		list := strings.Replace(strings.Join(common, ", "), finding, "the flags that find servers", 1)
		fmt.Fprintf(&p.text, "\nAnd [common flags](#common-flags): %s.\n", list)
	}
}

// paragraph writes a paragraph of a help as Markdown; lines that are indented are code.
func (p *commandPage) paragraph(text string) {
	prose, code, _ := strings.Cut(text+"\n", "\n  ")
	if strings.HasPrefix(text, "  ") {
		prose, code = "", strings.TrimPrefix(text, "  ")+"\n"
	}
	if prose != "" {
		fmt.Fprintf(&p.text, "%s\n\n", strings.NewReplacer("<", "&lt;", "*", `\*`, "[", `\[`).Replace(strings.TrimSpace(prose)))
	}
	if code != "" {
		fmt.Fprintf(&p.text, "```\n  %s```\n\n", code)
	}
}
