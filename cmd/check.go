package cmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/internal/flags"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) checkCommand() *cobra.Command {
	var at flags.Port
	var strict bool
	var output string
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Report every error and warning of Corefiles",
		Long: `Check reads Corefiles and plans a server for each, as serve does, but it opens no
socket and contacts no API server or upstream. It prints every error with its
file and line, and warnings about configurations that are valid but probably not
intended. A file that is missing or cannot be read is an error. "-" is standard
input.

With --output json, sarif or github, standard output has the errors and warnings in that
format (Seamark's own JSON, SARIF 2.1.0, or workflow commands of GitHub), and standard
error has the errors as text.

The exit status is 1 if there is an error or, with --strict, a warning.`,
		Example: `  seamark check Corefile
  seamark check --strict Corefile
  seamark check --output github Corefile
  kubectl -n kube-system get configmap coredns -o jsonpath={.data.Corefile} | seamark check -`,
		Args: arguments(1, -1),
		RunE: func(_ *cobra.Command, files []string) error {
			write := findingWriters[output]
			if write == nil && output != "text" {
				return fmt.Errorf("--output: want text, json, sarif or github, got %q", output)
			}
			var errs []error
			var found []finding
			for _, file := range files {
				name := file
				if file == "-" {
					name = "stdin" // as in errors
				}
				failed, warnings := p.check(file, at, strict)
				for _, err := range failed {
					found = append(found, newFinding(name, "error", err))
				}
				for _, w := range warnings {
					found = append(found, newFinding(name, "warning", w))
					if write == nil {
						fmt.Fprintf(p.err, "warning: %v\n", w)
					}
				}
				if errs = append(errs, failed...); write == nil && len(failed) == 0 {
					fmt.Fprintf(p.out, "%s: OK\n", name)
				}
			}
			if write != nil {
				if err := write(p.out, p.build.Version, found); err != nil {
					return failure{err}
				}
			}
			if len(errs) > 0 {
				return failure{errors.Join(errs...)}
			}
			return nil
		},
	}
	portFlag(c, &at)
	c.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	c.Flags().StringVarP(&output, "output", "o", "text", "format: text, json, sarif or github")
	return c
}

// check plans one Corefile and returns its errors and warnings. Warnings about files that
// cannot be read, and with strict all of them, are errors.
func (p *program) check(file string, at flags.Port, strict bool) (errs, warnings []error) {
	plan, err := p.plan(file, at)
	if err != nil {
		return corefile.All(err), nil
	}
	for _, w := range corefile.All(plan.Warnings()) {
		// serve waits for such a file, but its name is probably misspelled.
		if _, unreadable := errors.AsType[*fs.PathError](w); strict || unreadable {
			errs = append(errs, w)
		} else {
			warnings = append(warnings, w)
		}
	}
	return errs, warnings
}

func (p *program) planCommand() *cobra.Command {
	var at flags.Port
	c := &cobra.Command{
		Use:     "plan FILE",
		Short:   "Show the chain of handlers of each address and zone",
		Example: "  seamark plan Corefile",
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, files []string) error {
			plan, err := p.plan(files[0], at)
			if err == nil {
				err = plan.Describe(p.out)
			}
			if err != nil {
				return failure{err}
			}
			return nil
		},
	}
	portFlag(c, &at)
	return c
}

// plan plans the server of a Corefile and opens nothing.
func (p *program) plan(file string, at flags.Port) (*server.Plan, error) {
	read, err := p.reader(serve{conf: file})
	if err != nil {
		return nil, err
	}
	r := server.Run{Read: func() corefile.Reading { return kubedns.ExpandOnce(read()) }, Options: server.Options{
		Directives: p.directives, Port: uint16(at), Log: server.NewLog(io.Discard, slog.LevelError),
	}}
	return r.Check()
}
