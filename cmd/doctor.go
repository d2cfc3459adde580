package cmd

import (
	"context"
	"fmt"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/doctor"
	"github.com/spf13/cobra"
)

func (p *program) doctorCommand() *cobra.Command {
	var source sourceFlags
	var output string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Report what runs as the DNS of a cluster, before you replace it",
		Long: `Doctor reads objects of the API server and reports which DNS server the cluster runs, its
version, its replicas and its configuration, the mode of kube-proxy, node-local caches, the
ndots option and search domains of the pods, managers that would undo a change, and the
permissions that your account lacks. Each finding has a next step where there is one. It
changes nothing.

The exit status is 0 without errors, 1 if a finding is an error, and 2 if the cluster could
not be examined.`,
		Example: `  seamark doctor
  seamark doctor --context staging --output json`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			session, err := source.session()
			if err != nil {
				return incomplete{err}
			}
			defer session.Close()
			return p.doctor(c.Context(), session, output)
		},
	}
	source.flags(c)
	outputFlag(c, &output)
	return c
}

func (p *program) doctor(ctx context.Context, api *apiserver.Session, output string) error {
	report, err := doctor.Run(ctx, api)
	if err != nil {
		return incomplete{err}
	}
	report.Findings = append(report.Findings, p.examineCorefile(ctx, api)...)

	if output == "json" {
		err = indented(p.out, report)
	} else {
		fmt.Fprintf(p.out, "Kubernetes %s\n", report.Kubernetes)
		for _, f := range report.Findings {
			fmt.Fprintf(p.out, "%-8s %s: %s\n", f.Level, f.Subject, f.Text)
			if f.Next != "" {
				fmt.Fprintf(p.out, "         next: %s\n", p.asTyped(f.Next))
			}
		}
	}
	if o, ok := p.out.(*commandOutput); ok && err == nil {
		err = o.err
	}
	if err != nil {
		return incomplete{fmt.Errorf("writing the output: %w", err)}
	}

	for _, f := range report.Findings {
		if f.Level == doctor.Error {
			return different{}
		}
	}
	return nil
}

// examineCorefile reports the errors and warnings of the configuration in the cluster.
func (p *program) examineCorefile(ctx context.Context, api *apiserver.Session) []doctor.Finding {
	const next = "seamark check --from-cluster"
	names, found, err := p.checkCluster(ctx, api, false, func(file string) (errs, warnings []error) {
		plan, _, err := p.plan(file, 53)
		if err != nil {
			return []error{err}, nil
		}
		return planFindings(plan, false)
	})
	if err != nil {
		text := fmt.Sprintf("not examined: %v", err)
		return []doctor.Finding{{Subject: "configuration", Level: doctor.Warning, Text: text,
			Next: "seamark check FILE, with the Corefile that the server runs"}}
	}

	var list []doctor.Finding
	for _, f := range found {
		level := doctor.Warning
		if f.Level == "error" {
			level = doctor.Error
		}
		list = append(list, doctor.Finding{Subject: "configuration", Level: level, Text: f.text(), Next: next})
	}
	if len(found) == 0 {
		for _, name := range names {
			text := name + ": Seamark accepts it"
			list = append(list, doctor.Finding{Subject: "configuration", Level: doctor.Info, Text: text})
		}
	}
	return list
}
