package cmd

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// asPlugin returns a function that renames command lines in texts, from seamark COMMAND to kubectl
// seamark COMMAND, as users of kubectl's plugin type them.
func asPlugin(root *cobra.Command) func(text string) string {
	words := []string{"-"} // a flag
	for _, c := range root.Commands() {
		words = append(words, c.Name()+`\b`)
	}
	typed := regexp.MustCompile(`(?:kubectl )?\bseamark (` + strings.Join(words, "|") + `)`)
	return func(text string) string { return typed.ReplaceAllString(text, "kubectl seamark $1") }
}

// asTyped returns a text with command lines as the user types them.
func (p *program) asTyped(text string) string {
	if p.plugin {
		return asPlugin(p.root())(text)
	}
	return text
}

// renameAsPlugin renames the command lines in the help of all commands.
func renameAsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl seamark"}
	renamed := asPlugin(root)
	rename := func(text *string) { *text = renamed(*text) }

	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		rename(&c.Short)
		rename(&c.Long)
		rename(&c.Example)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { rename(&f.Usage) })
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, g := range root.Groups() {
		rename(&g.Title)
	}
}
