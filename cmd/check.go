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
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Report every error and warning of Corefiles",
		Long: `Check reads Corefiles and plans a server for each, as serve does, but it opens no
socket and contacts no API server or upstream. It prints every error with its
file and line, and warnings about configurations that are valid but probably not
intended. A file that is missing or cannot be read is an error. "-" is standard
input.

The exit status is 1 if there is an error or, with --strict, a warning.`,
		Example: `  seamark check Corefile
  seamark check --strict Corefile
  kubectl -n kube-system get configmap coredns -o jsonpath={.data.Corefile} | seamark check -`,
		Args: arguments(1, -1),
		RunE: func(_ *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				errs = append(errs, p.check(file, at, strict))
			}
			if err := errors.Join(errs...); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	portFlag(c, &at)
	c.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return c
}

// check plans one Corefile and prints its warnings. It returns those about files that
// cannot be read, or all if strict, as errors.
func (p *program) check(file string, at flags.Port, strict bool) error {
	plan, err := p.plan(file, at)
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range corefile.All(plan.Warnings()) {
		// serve waits for such a file, but its name is probably misspelled.
		if _, unreadable := errors.AsType[*fs.PathError](w); strict || unreadable {
			errs = append(errs, w)
		} else {
			fmt.Fprintf(p.err, "warning: %v\n", w)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if file == "-" {
		file = "stdin" // as in errors
	}
	_, err = fmt.Fprintf(p.out, "%s: OK\n", file)
	return err
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
