package cmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// complete sets the values that the shell completes for a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	// It fails for an unknown flag only.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// answering returns the directives that may answer queries by themselves.
func (p *program) answering() (names []string) {
	for _, d := range p.directives {
		if d.Answers {
			names = append(names, d.Name)
		}
	}
	return names
}

// flagValues are the values of flags that have the same ones in every command.
var flagValues = map[string][]string{
	"output":     {"text", "json"},
	"transport":  {"udp", "tcp", "port-forward"},
	"fail-on":    {"diff", "all", "none"},
	"compare":    {"port-forward", "direct", "none"},
	"log-format": {"text", "json"},
	"cache-for":  {"local", "any"},
	"capture":    {"auto", "tcx", "clsact", "address", "none"},
	"sandbox":    {"on", "required", "off"},
	"selector":   {"app.kubernetes.io/name=seamark", "k8s-app=kube-dns", "k8s-app=node-local-dns"},
	"namespace":  {"kube-system"},
	"admin":      {"localhost:8053", "unix:/run/seamark/admin.sock"},
}

// completeFlags sets the completions of the flags of a command and its subcommands that have none:
// their values, or nothing unless they are files. A shell offers files for all others.
func completeFlags(c *cobra.Command) {
	set := func(f *pflag.Flag) {
		usage := strings.ToLower(f.Usage)
		isFile := slices.ContainsFunc([]string{"file", "folder", "director", "path"}, // a Corefile, too
			func(word string) bool { return strings.Contains(usage, word) })
		_, completed := c.GetFlagCompletionFunc(f.Name)
		switch values := flagValues[f.Name]; {
		case completed, f.NoOptDefVal != "":
		case values != nil:
			complete(c, f.Name, values...)
		case !isFile:
			complete(c, f.Name)
		}
	}
	c.LocalFlags().VisitAll(set)
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}
