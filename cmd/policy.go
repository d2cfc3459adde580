package cmd

import (
	"bytes"
	"context"
	"errors"

	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/operate/servers"
	"github.com/spf13/cobra"
)

func (p *program) policyCommand() *cobra.Command {
	var a adminFlags
	var suffixes bool
	c := &cobra.Command{
		Use:   "policy",
		Short: "Write groups of the directive policy from an audit",
		Long: `Policy writes the directive policy of the servers with groups that allow what groups with audit
would have denied since their audit began: a group for each namespace and label of pods, before the
group that selected them. No group audits in it, and all other lines are as they were. Put it into the
Corefile in place of the one there, after you have read it.

` + findServers + `

What several servers have seen is added. A server that is restarted begins anew. The text says for how
long the audit ran, and how many queries had no room in the record: 20,000 names, of these 2,000 for the
pods of a namespace. From 100 names below one parent on, such as random names, the record has the
parent as *.PARENT, unless the parent is a public suffix, such as co.uk.`,
		Example: `  seamark policy
  seamark policy --suffixes --admin localhost:8053
  seamark policy --nodes --output json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			found, stop, err := a.find(c.Context())
			if err != nil {
				return err
			}
			defer stop()
			return p.policy(c.Context(), &a, found, suffixes)
		},
	}
	c.Flags().BoolVar(&suffixes, "suffixes", false, "write *.PARENT in place of ten or more names below one parent")
	a.flags(c)
	outputFlag(c, &a.output)
	return c
}

// policy writes the directive policy of servers with what their audits have seen.
func (p *program) policy(ctx context.Context, a *adminFlags, found []*servers.Server, suffixes bool) error {
	replies, err := answered(p.err, askAll(found, func(s *servers.Server) ([]audit.Report, error) { return s.Audits(ctx) }))
	if err != nil {
		return err
	}
	var sums []audit.Sum
	for _, r := range replies {
		sums = audit.Add(sums, r.value)
	}
	if len(sums) == 0 {
		return failure{errors.New("no server has groups of the directive policy that audit")}
	}

	var text bytes.Buffer
	for i := range sums {
		if i > 0 {
			text.WriteByte('\n')
		}
		if err := sums[i].Write(&text, suffixes); err != nil {
			return failure{err}
		}
	}
	if err := a.show(p.out, sums, func() { _, _ = p.out.Write(text.Bytes()) }); err != nil {
		return err
	}
	return partial(len(found), len(replies))
}
