package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

// checkFlags are the flags of the command check.
type checkFlags struct {
	at              flags.Port
	strict, cluster bool
	source          sourceFlags
	output, coredns string
}

func (p *program) checkCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Report every error and warning of Corefiles",
		Long: `Check reads Corefiles and plans a server for each, as serve does, but it opens no
socket and contacts no API server or upstream. It prints every error with its
file and line, and warnings about configurations that are valid but probably not
intended. A file that is missing or cannot be read is an error. "-" is standard
input.

With --from-cluster it checks the configuration in a cluster, in place of files: the
ConfigMaps coredns, with coredns-custom in its folder custom, and kube-dns in kube-system.

With --coredns VERSION it also reports what that version of CoreDNS has removed or ignores,
and the directives and options that it does not have, or not yet.

With --output json, sarif or github, standard output has the errors and warnings in that
format (Seamark's own JSON, SARIF 2.1.0, or workflow commands of GitHub), and standard
error has the errors as text.

The exit status is 1 if there is an error or, with --strict, a warning.`,
		Example: `  seamark check Corefile
  seamark check --strict Corefile
  seamark check --output github Corefile
  seamark check --from-cluster
  seamark check --coredns 1.15.0 Corefile
  kubectl -n kube-system get configmap coredns -o jsonpath={.data.Corefile} | seamark check -`,
		RunE: func(c *cobra.Command, files []string) error { return p.runCheck(c, f, files) },
	}
	portFlag(c, &f.at)
	c.Flags().BoolVar(&f.strict, "strict", false, "treat warnings as errors")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "format: text, json, sarif or github")
	c.Flags().BoolVar(&f.cluster, "from-cluster", false, "check the configuration in the ConfigMaps of a cluster")
	f.source.flags(c)
	c.Flags().StringVar(&f.coredns, "coredns", "", "report what this `VERSION` of CoreDNS does not accept, too")
	complete(c, "output", slices.Concat([]string{"text"}, slices.Sorted(maps.Keys(findingWriters)))...)
	complete(c, "coredns", corednsVersions()...)
	return c
}

func (p *program) runCheck(c *cobra.Command, f checkFlags, files []string) error {
	if err := oneOf("output", f.output, "text", "json", "sarif", "github"); err != nil {
		return err
	}
	least, most := 1, -1
	if f.cluster {
		least, most = 0, 0
	} else if f.source != (sourceFlags{}) {
		return errors.New("--kubeconfig and --context are for --from-cluster")
	}
	if err := arguments(least, most)(c, files); err != nil {
		return err
	}

	v, ok := parseVersion(f.coredns)
	if f.coredns != "" && !ok {
		return fmt.Errorf("--coredns: want a version such as %v, got %q", newestCoreDNS(), f.coredns)
	}
	if newest := newestCoreDNS(); f.coredns != "" && slices.Compare(v[:], newest[:]) > 0 {
		return fmt.Errorf("--coredns: the changes of CoreDNS are known up to version %v, got %q", newest, f.coredns)
	}

	check := func(file string) (errs, warnings []error) { return p.checkFile(c.Context(), file, f, v) }
	names, found, err := p.findings(c.Context(), f, files, check)
	if err != nil {
		return failure{err}
	}
	if write := findingWriters[f.output]; write != nil {
		err = write(p.out, p.build.Version, found)
	} else {
		p.writeFindings(names, found)
	}
	if err != nil {
		return failure{err}
	}

	var errs []error
	for _, f := range found {
		if f.Level == "error" {
			errs = append(errs, errors.New(f.text()))
		}
	}
	if len(errs) > 0 {
		return failure{errors.Join(errs...)}
	}
	return nil
}

// checkFile checks a Corefile.
func (p *program) checkFile(ctx context.Context, file string, f checkFlags, v version) (errs, warnings []error) {
	plan, servers, err := p.plan(file, f.at)
	if errs = corefile.All(err); err == nil {
		errs, warnings = planFindings(plan, f.strict)
		errs = append(errs, objectErrors(ctx, plan, f)...)
	}
	if f.coredns == "" {
		return errs, warnings
	}

	corednsErrs, corednsWarnings := corednsFindings(servers, v, func(name string) bool {
		return slices.ContainsFunc(p.directives, func(d config.Directive) bool { return d.Name == name })
	})
	errs = append(errs, corednsErrs...)
	if f.strict {
		return append(errs, corednsWarnings...), warnings
	}
	return errs, append(warnings, corednsWarnings...)
}

// writeFindings writes warnings and the files without errors as text. Errors follow.
func (p *program) writeFindings(names []string, found []finding) {
	for _, f := range found {
		if f.Level != "error" {
			fmt.Fprintf(p.err, "warning: %s\n", f.text())
		}
	}
	for _, name := range names {
		isError := func(f finding) bool { return f.checked == name && f.Level == "error" }
		if !slices.ContainsFunc(found, isError) {
			fmt.Fprintf(p.out, "%s: OK\n", name)
		}
	}
}

// A checker checks a Corefile.
type checker func(file string) (errs, warnings []error)

// findings checks the files, or the configuration of the cluster. It also returns the names
// of the checked files.
func (p *program) findings(
	ctx context.Context, f checkFlags, files []string, check checker,
) (names []string, found []finding, err error) {
	if f.cluster {
		session, err := f.source.session()
		if err != nil {
			return nil, nil, err
		}
		defer session.Close()
		return p.checkCluster(ctx, session, f.strict, check)
	}

	for _, file := range files {
		name := file
		if file == "-" {
			name = "stdin" // as in errors
		}
		names = append(names, name)
		errs, warnings := check(file)
		found = append(found, newFindings(name, errs, warnings)...)
	}
	return names, found, nil
}

// planFindings returns a plan's warnings. Warnings about files that cannot be read, and with
// strict all warnings, are errors.
func planFindings(plan *server.Plan, strict bool) (errs, warnings []error) {
	for _, w := range corefile.All(plan.Warnings()) {
		// serve waits for such a file, but its name is probably misspelled.
		if _, unreadable := errors.AsType[*fs.PathError](w); strict || unreadable {
			errs = append(errs, w)
		} else {
			warnings = append(warnings, w)
		}
	}
	for _, d := range server.Find[interface{ NodeOnly() corefile.Directive }](plan) {
		if w := d.NodeOnly().Errorf("only seamark node accepts it, and seamark serve does not"); strict {
			errs = append(errs, w)
		} else {
			warnings = append(warnings, w)
		}
	}
	return errs, warnings
}

// objectErrors returns what is wrong with objects that have records: those in folders that the
// Corefile names, or those of the cluster with --from-cluster.
func objectErrors(ctx context.Context, plan *server.Plan, f checkFlags) (errs []error) {
	var at cluster.Options
	if f.cluster {
		var err error
		if at, err = f.source.options(); err != nil {
			return []error{err}
		}
	}
	for _, h := range server.Find[interface {
		CheckObjects(context.Context, cluster.Options) []error
	}](plan) {
		errs = append(errs, h.CheckObjects(ctx, at)...)
	}
	return errs
}

func (p *program) planCommand() *cobra.Command {
	var at flags.Port
	var output string
	c := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show the chain of handlers of each address and zone",
		Example: `  seamark plan Corefile
  seamark plan --output json Corefile`,
		Args: arguments(1, 1),
		RunE: func(_ *cobra.Command, files []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}

			plan, _, err := p.plan(files[0], at)
			switch {
			case err != nil:
			case output == "json":
				err = indented(p.out, plan.Routes())
			default:
				err = plan.Describe(p.out)
			}
			return failed(err)
		},
	}

	portFlag(c, &at)
	outputFlag(c, &output)
	return c
}

// plan plans the server of a Corefile and opens nothing. It also returns the Corefile's
// server blocks.
func (p *program) plan(file string, at flags.Port) (*server.Plan, []corefile.Server, error) {
	read, err := p.reader(serve{conf: file})
	if err != nil {
		return nil, nil, err
	}
	reading := read()
	r := server.Run{
		Node: true,
		Read: func() corefile.Reading { return kubedns.ExpandOnce(reading) },
		Options: server.Options{
			Directives: p.directives, Port: uint16(at), Log: server.NewLog(io.Discard, slog.LevelError),
		},
	}
	plan, err := r.Check()
	return plan, reading.Servers, err
}
