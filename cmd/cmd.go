// Package cmd implements the command line: subcommands, flags and exit statuses. A
// main function calls Main with a list of directives: package builtin's or its own.
// Package server does the work.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/terminal"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Main runs the command line of the process and exits: with status 0 on success, 1
// if the command failed, and 2 if the command line is invalid, or if diff, shadow or doctor could
// not do their work: their status 1 is a result.
func Main(directives []config.Directive, build Build) { MainWithTimes(directives, build, NodeTimes{}) }

// MainWithTimes is Main with other times of the command node, for its tests.
func MainWithTimes(directives []config.Directive, build Build, times NodeTimes) {
	signals := server.CatchSignals(context.Background())
	apiserver.QuietKlog()
	etcdclient.QuietGRPC()
	p := program{
		directives: directives, build: build, times: times,
		in: os.Stdin, out: os.Stdout, err: os.Stderr, signals: signals,
	}
	os.Exit(p.run(signals.Context, p.called(os.Args)))
}

// Commands returns the root of the command line, for its documentation.
func Commands(directives []config.Directive) *cobra.Command {
	root := (&program{directives: directives}).root()
	root.RemoveCommand(subcommand(root, "help")) // each command's page is its help
	root.InitDefaultCompletionCmd()
	return root
}

type program struct {
	directives []config.Directive
	build      Build
	times      NodeTimes
	admin      adminFlag // of the command that serves
	plugin     bool      // run by kubectl, as kubectl seamark
	in         io.Reader
	out, err   io.Writer
	signals    *server.Signals
}

// A failure is the error of a command whose command line is valid.
type failure struct{ error }

// failed returns err as a failure, if it is one.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

func (p *program) run(ctx context.Context, args []string) (code int) {
	out := &commandOutput{out: p.out}
	p.out = out
	defer func() {
		if out.err != nil && code == 0 {
			fmt.Fprintf(p.err, "seamark: writing the output: %v\n", out.err)
			code = 1
		}
	}()

	root := p.root()
	root.InitDefaultCompletionCmd()
	if word, ok := unknownCommand(root, args); ok {
		var known []string
		for _, c := range root.Commands() {
			known = append(known, c.Name())
		}
		fmt.Fprintf(p.err, "seamark: unknown command %q%s\nSee %s --help.\n",
			word, corefile.DidYouMean(word, known), root.CommandPath())
		return 2
	}

	// cobra's command prints its help at an unknown shell, with status 0.
	if c := subcommand(root, "completion"); c != nil {
		wantsCommand(c, "bash, fish, powershell or zsh")
	}

	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // others need no time for it
		completeFlags(root)
	}
	root.SetArgs(longForm(root, args))
	c, err := root.ExecuteContextC(ctx)
	return p.report(c, err, out)
}

// report prints the error of a command, and returns the exit status.
func (p *program) report(c *cobra.Command, err error, out *commandOutput) (code int) {
	var f failure
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(different)): // it has been reported
		return 1
	case errors.As(err, new(incomplete)):
		fmt.Fprintf(p.err, "seamark: %s\n", visible(err.Error()))
		return 2
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &f):
		fmt.Fprintln(p.err, visible(f.Error()))
		return 1
	case out.err != nil: // of a command of cobra's
		fmt.Fprintf(p.err, "seamark: writing the output: %v\n", out.err)
		return 1
	}
	fmt.Fprintf(p.err, "seamark: %s\nSee %s --help.\n", visible(err.Error()), c.CommandPath())
	return 2
}

// visible returns text with escapes in place of control characters, which an error may have
// from a file or from an object.
func visible(text string) string {
	var out strings.Builder
	for _, c := range text {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			fmt.Fprintf(&out, "\\u%04x", c)
		} else {
			out.WriteRune(c)
		}
	}
	return out.String()
}

// arguments returns a function that checks the number of a command's arguments.
// If most is negative, there is no maximum.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case most == 0 && len(args) > 0:
			return fmt.Errorf("want no arguments, got %q", args[0])
		case len(args) < least || most >= 0 && len(args) > most:
			return fmt.Errorf("got %d arguments, usage: %s", len(args), c.UseLine())
		}
		return nil
	}
}

// wantsCommand makes a command that only has subcommands print its help, and refuse other words.
func wantsCommand(c *cobra.Command, names string) {
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("want %s, got %q", names, args[0])
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

func (p *program) root() *cobra.Command {
	var s serve
	var showVersion, plugins bool
	root := &cobra.Command{
		Use:   "seamark",
		Short: "A DNS server for Kubernetes clusters",
		Long: `Seamark answers queries for the names of a Kubernetes cluster, which it reads from
the API server or from a folder of manifests. A Corefile configures it. Without a
subcommand it serves, and accepts CoreDNS's flags with one dash or two.`,
		Example: `  seamark -conf /etc/coredns/Corefile -dns.port 53
  seamark serve --manifests examples --listen 127.0.0.1:1053
  seamark check Corefile
  seamark plan Corefile`,
		Args:          arguments(0, 0),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			if c.HasParent() { // a command of cobra's
				p.signals.Release()
			}
		},
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case showVersion:
				return p.showVersion()
			case plugins:
				return p.showDirectives()
			}
			if c.Flags().NFlag() == 0 && p.typed() && !exists(defaultFile) {
				fmt.Fprint(p.err, p.asTyped(introduction))
				return exitStatus(2)
			}
			p.signals.Starting()
			return p.serve(c.Context(), s)
		},
	}

	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)

	s.flags(root)
	p.admin.flag(root)
	root.Flags().BoolVar(&showVersion, "version", false, "show the version")
	root.Flags().BoolVar(&plugins, "plugins", false, "list the directives of a Corefile")
	p.addCommands(root)
	foldOlder(root)
	if p.plugin {
		renameAsPlugin(root)
	}
	return root
}

// The commands of older generations have a group whose title tells how to list them.
const (
	older       = "older"
	olderHidden = "Older generations, such as kube-dns and SkyDNS: seamark help --all"
)

// foldOlder makes the help leave out the commands of older generations without the flag --all of
// the command help.
func foldOlder(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	all := false
	if c := subcommand(root, "help"); c != nil {
		c.Flags().BoolVar(&all, "all", false, "list the commands of older generations, too")
	}

	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		for _, sub := range root.Commands() {
			sub.Hidden = sub.GroupID == older && !all && c == root
		}
		for _, g := range root.Groups() {
			if g.ID == older && all {
				g.Title = "Older generations:"
			}
		}
		help(c, args)
	})
}

// introduction is printed in place of serving to users who type only the program's name.
const introduction = `Seamark, a DNS server for Kubernetes clusters. There is no file Corefile in this directory.
  seamark serve --manifests FOLDER --listen 127.0.0.1:1053   serve a folder of Kubernetes manifests
  seamark serve --conf FILE                                  serve what a Corefile configures
  seamark check FILE                                         report every error of a Corefile
  seamark doctor                                             examine the DNS of your cluster
  seamark --help                                             list all commands
`

// typed reports whether a user typed the command line: CoreDNS listens on port 53 without a
// Corefile, and a container does so with Seamark, too, also one with a terminal (docker run -t).
func (p *program) typed() bool {
	return os.Getpid() != 1 && terminal.Is(p.in) && terminal.Is(p.log())
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// A signalPolicy is what a command does at SIGTERM and SIGINT, and at SIGHUP and SIGUSR1.
type signalPolicy int

const (
	ends    signalPolicy = iota // all end it at once: it has nothing to clean up
	stops                       // the first two end its context, and the others end it at once
	reloads                     // it is a server: the others make it read its Corefile again
)

// A command is a subcommand, with its signalPolicy for itself and its own subcommands.
type command struct {
	*cobra.Command
	atSignal signalPolicy
}

// addCommands adds the subcommands, in the groups of the help.
func (p *program) addCommands(root *cobra.Command) {
	for _, g := range []struct {
		id, title string
		commands  []command
	}{
		{"serving", "Serving:", []command{
			{p.serveCommand(), reloads},
			{p.nodeCommand(), reloads},
			{p.checkCommand(), ends},
			{p.formatCommand(), ends},
			{p.planCommand(), ends},
		}},
		{"inspecting", "Inspecting:", []command{
			{p.explainCommand(), ends},
			{p.queryCommand(), ends},
			{p.statusCommand(), ends},
			{p.topCommand(), ends},
			{p.tailCommand(), stops},
			{p.recordsCommand(), ends},
			{p.cacheCommand(), ends},
			{p.policyCommand(), ends},
			{p.uiCommand(), stops},
			{p.resolvconfCommand(), ends},
		}},
		{"migrating", "Migrating:", []command{
			{p.doctorCommand(), ends},
			{p.diffCommand(), ends},
			{p.shadowCommand(), stops},
			{p.canaryCommand(), stops},
			{p.convertCommand(), ends},
		}},
		{older, olderHidden, []command{
			{p.kubednsCommand(), reloads},
			{p.nannyCommand(), reloads},
			{p.sidecarCommand(), stops},
			{p.healthzCommand(), stops},
			{p.skydnsCommand(), reloads},
			{p.kube2skyCommand(), stops},
		}},

		{"", "", []command{{p.versionCommand(), ends}}}, // in no group
	} {
		if g.id != "" {
			root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		}
		for _, c := range g.commands {
			c.GroupID = g.id
			p.add(root, c)
		}
	}
}

// add adds a subcommand.
func (p *program) add(parent *cobra.Command, c command) {
	c.PersistentPreRun = func(*cobra.Command, []string) {
		switch c.atSignal {
		case ends:
			p.signals.Release()
		case stops:
			p.signals.ReleaseReload()
		case reloads: // server.Run handles them
			p.signals.Starting()
		}
	}
	parent.AddCommand(c.Command)
}

// called returns the arguments after the program's name. If it is the name of a
// subcommand, as in images that replace other programs, it becomes the first
// argument.
func (p *program) called(line []string) []string {
	if len(line) == 0 {
		return nil
	}
	name := strings.TrimSuffix(filepath.Base(line[0]), ".exe")
	p.plugin = name == "kubectl-seamark"
	if name == "kubectl_complete-seamark" { // kubectl runs it for the completion of its plugin
		name = cobra.ShellCompRequestCmd
	} else if subcommand(p.root(), name) == nil {
		if !isNodeCache(line[1:]) {
			return line[1:]
		}
		name = "node"
	}
	return append([]string{name}, line[1:]...)
}

// unknownCommand returns the first argument, or the first argument of help, if it
// is not a flag and not a subcommand.
func unknownCommand(root *cobra.Command, args []string) (word string, unknown bool) {
	if len(args) > 1 && args[0] == "help" {
		args = args[1:]
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || subcommand(root, args[0]) != nil {
		return "", false
	}
	// Completions run it; cobra adds it later.
	completes := args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd
	return args[0], !completes
}

func subcommand(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// longForm rewrites the flags of the command line for pflag: see flags.LongForm.
func longForm(root *cobra.Command, args []string) []string {
	root.InitDefaultHelpFlag()
	sets := []*pflag.FlagSet{root.Flags()}
	if len(args) > 0 {
		if sub := subcommand(root, args[0]); sub != nil {
			sub.InitDefaultHelpFlag()
			sets = append(sets, sub.Flags())
		}
	}
	return flags.LongForm(args, sets...)
}

func (p *program) showDirectives() error {
	fmt.Fprintln(p.out, "Directives, in the order of the chain:")
	for _, d := range p.directives {
		fmt.Fprintf(p.out, "  dns.%-14s %s\n", d.Name, d.Brief)
	}
	return nil
}
