package cmd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) checkCommand() *cobra.Command {
	var at port
	c := &cobra.Command{
		Use:     "check FILE…",
		Short:   "Read Corefiles and say everything that is wrong with them",
		Long:    "Check reads and plans, as serve would, but opens nothing and needs no cluster.",
		Example: "  seamark check Corefile",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				if _, err := p.plan(file, at); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(p.out, "%s: OK\n", file)
			}
			if len(errs) > 0 {
				return failure{errors.Join(errs...)}
			}
			return nil
		},
	}
	portFlag(c, &at)
	return c
}

func (p *program) planCommand() *cobra.Command {
	var at port
	c := &cobra.Command{
		Use:     "plan FILE",
		Short:   "Show which handlers a query meets, for each address and zone",
		Example: "  seamark plan Corefile",
		Args:    cobra.ExactArgs(1),
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

// plan reads a Corefile and opens nothing.
func (p *program) plan(file string, at port) (*server.Plan, error) {
	read, err := p.reader(serve{conf: file})
	if err != nil {
		return nil, err
	}
	r := server.Run{Read: func() corefile.Reading { return kubedns.ExpandOnce(read()) }, Options: server.Options{
		Directives: p.directives, Port: uint16(at), Log: server.NewLog(io.Discard, slog.LevelError),
	}}
	return r.Check()
}
