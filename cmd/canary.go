package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/operate/canary"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/terminal"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// canaryFlags are the flags of all subcommands of canary.
type canaryFlags struct {
	canary.Options
	source          sourceFlags
	output, compare string
}

func (p *program) canaryCommand() *cobra.Command {
	var f canaryFlags
	c := &cobra.Command{
		Use:   "canary",
		Short: "Change a cluster's DNS to Seamark in stages that can be reverted",
		Long: `Canary replaces CoreDNS or kube-dns in a running cluster in four stages:

  1  start    Seamark runs beside the old server, with a Service of its own
  2  promote  one pod of Seamark serves behind the Service kube-dns, with the old pods
  3  promote  all pods of Seamark serve behind it, with the old pods
  4  promote  the old Deployment is scaled to zero, but not deleted

Rollback returns from any stage by one command: it first brings the old server back and
waits until it is ready. The stage is read from the cluster's objects, so a command that
was interrupted can be run again, or reverted. Each command prints the kubectl commands
with the same effect; with --dry-run it only prints them.

Linked as kubectl-seamark in PATH, the program is a plugin: kubectl seamark canary status.`,
		Example: `  seamark canary start --image REGISTRY/seamark:TAG
  seamark canary status
  seamark canary promote --dry-run
  seamark canary rollback`,
	}
	wantsCommand(c, "start, status, promote or rollback")

	flags := c.PersistentFlags()
	flags.SortFlags = false
	flags.StringVarP(&f.Namespace, "namespace", "n", "kube-system", "namespace of the cluster's DNS")
	flags.StringVar(&f.Service, "service", "kube-dns", "the cluster's DNS `SERVICE`, which is not changed")
	flags.StringVar(&f.Deployment, "deployment", "",
		"`DEPLOYMENT` of the old server (default: the one with pods that the Service selects)")
	flags.StringVar(&f.Name, "name", "seamark", "`NAME` of Seamark's Deployment and Service")
	flags.IntVar(&f.MetricsPort, "metrics-port", 0,
		"`PORT` of the metrics of both servers' pods (default: 9153, or the PROMETHEUS_PORT of kube-dns)")

	start := p.canarySubcommand(&f, "start", "Install Seamark beside the old server, without traffic", canary.Start)
	start.Flags().StringVar(&f.Image, "image", "", "`REGISTRY/NAME:TAG` of your image (required)")
	start.Flags().IntVar(&f.Replicas, "replicas", 0, "number of pods (default: as many as the old server has)")

	status := &cobra.Command{
		Use: "status", Short: "Show the stage, and compare error rate and p99 of both servers", Args: arguments(0, 0),
		Long: `Status reads the metrics of both servers twice, --interval apart, and compares the shares of
SERVFAIL and other errors, and the 99th percentile of the durations. The exit status is 1 if the
stop rule applies.`,
	}
	watch := false
	status.RunE = func(c *cobra.Command, _ []string) error {
		// The samples of the metrics are --interval apart, so there is no other pause.
		s := screen{watch: watch, every: time.Second}
		return p.watch(c.Context(), s, func() error { return p.canaryStatus(c, &f) })
	}
	outputFlag(status, &f.output)
	status.Flags().BoolVarP(&watch, "watch", "w", false, "compare again and again, until Ctrl-C")

	promote := p.canarySubcommand(&f, "promote",
		"Change to the next stage, if both servers are healthy", canary.Promote)
	rollback := p.canarySubcommand(&f, "rollback", "Return to the old server from any stage", canary.Rollback)
	rollback.Flags().BoolVar(&f.Delete, "delete", false, "delete Seamark's Deployment and Service, too")

	for _, c := range []*cobra.Command{status, promote} {
		ruleFlags(c, &f.Options)
	}
	for _, c := range []*cobra.Command{start, promote} {
		c.Flags().StringVar(&f.compare, "compare", "port-forward",
			"how to query a pod of each server for the comparison of seamark diff: port-forward (through the API"+
				" server), direct (the pod's address) or none")
	}
	for _, sub := range []*cobra.Command{start, status, promote, rollback} {
		f.source.flags(sub)
		c.AddCommand(sub)
	}
	return c
}

func ruleFlags(c *cobra.Command, o *canary.Options) {
	flags := c.Flags()
	flags.DurationVar(&o.Interval, "interval", time.Minute, "time between two samples of the metrics")
	flags.IntVar(&o.Rule.MinQueries, "min-queries", 100, "stop if Seamark had fewer queries in that time")
	flags.Float64Var(&o.Rule.MaxServfail, "max-servfail", 0.005,
		"stop if Seamark's share of SERVFAIL exceeds the old server's by more, 0 to 1")
	flags.Float64Var(&o.Rule.MaxErrors, "max-errors", 0.005,
		"stop if Seamark's share of other errors exceeds the old server's by more, 0 to 1")
	flags.Float64Var(&o.Rule.MaxSlowdown, "max-slowdown", 2,
		"stop if Seamark's p99 exceeds the old server's by this factor")
	flags.DurationVar(&o.Rule.MinP99, "min-p99", 5*time.Millisecond, "a p99 of Seamark that is always acceptable")
}

// check returns an error for each flag whose value is out of range. Flags that a subcommand
// does not have are at their defaults.
func (f *canaryFlags) check() error {
	var errs []error
	// NaN fails every comparison.
	check := func(flag string, value any, valid bool, want string) {
		if !valid {
			errs = append(errs, fmt.Errorf("--%s: want %s, got %v", flag, want, value))
		}
	}
	name := func(flag, value string, problems []string) {
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--%s: %q: %s", flag, value, problems[0]))
		}
	}

	name("namespace", f.Namespace, validation.IsDNS1123Label(f.Namespace))
	name("service", f.Service, validation.IsDNS1123Label(f.Service))
	name("name", f.Name, validation.IsDNS1035Label(f.Name)) // also of a Service
	if f.Deployment != "" {
		name("deployment", f.Deployment, validation.IsDNS1123Subdomain(f.Deployment))
	}
	check("metrics-port", f.MetricsPort, f.MetricsPort >= 0 && f.MetricsPort <= 65535, "0..65535")
	check("replicas", f.Replicas, f.Replicas >= 0 && f.Replicas <= 1000, "0..1000")

	r := f.Rule
	check("timeout", f.Timeout, f.Timeout >= time.Second && f.Timeout <= 24*time.Hour, "1s..24h")
	check("interval", f.Interval, f.Interval >= time.Millisecond && f.Interval <= 24*time.Hour, "1ms..24h")
	check("min-queries", r.MinQueries, r.MinQueries >= 1,
		"1 or more, since without queries there is nothing to compare")
	check("max-servfail", r.MaxServfail, r.MaxServfail >= 0 && r.MaxServfail <= 1, "0..1")
	check("max-errors", r.MaxErrors, r.MaxErrors >= 0 && r.MaxErrors <= 1, "0..1")
	check("max-slowdown", r.MaxSlowdown, r.MaxSlowdown > 0 && r.MaxSlowdown <= 1000, "more than 0 and at most 1000")
	check("min-p99", r.MinP99, r.MinP99 >= 0 && r.MinP99 <= time.Minute, "0s..1m")
	return errors.Join(errs...)
}

// canarySubcommand returns a command that changes the cluster.
func (p *program) canarySubcommand(
	f *canaryFlags, name, short string, run func(context.Context, canary.Options) error,
) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if name == "start" {
				if err := checkImage(f.Image); err != nil {
					return err
				}
			}
			if c.Flags().Changed("force") && strings.TrimSpace(f.Force) == "" {
				return errors.New("--force: want the reason, which is printed")
			}
			if err := oneOf("compare", f.compare, "port-forward", "direct", "none"); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}

			o, err := p.canaryOptions(f)
			if err != nil {
				return err
			}
			defer o.API.Close()
			return failed(run(c.Context(), o))
		},
	}
	c.Flags().BoolVar(&f.DryRun, "dry-run", false, "print the commands, change nothing")
	c.Flags().DurationVar(&f.Timeout, "timeout", 5*time.Minute, "how long to wait for the pods of one step")
	c.Flags().StringVar(&f.Force, "force", "", "continue in spite of problems, for this `REASON`")
	return c
}

func (p *program) canaryStatus(c *cobra.Command, f *canaryFlags) error {
	if err := errors.Join(oneOf("output", f.output, "text", "json"), f.check()); err != nil {
		return err
	}
	o, err := p.canaryOptions(f)
	if err != nil {
		return err
	}
	defer o.API.Close()
	status, err := canary.ReadStatus(c.Context(), o)
	if err == nil && f.output == "json" {
		err = indented(p.out, status)
	} else if err == nil {
		status.Print(p.out)
	}
	if err == nil && len(status.Stop) > 0 {
		err = errors.New("the stop rule applies: seamark canary rollback returns to the old server")
	}
	return failed(err)
}

func (p *program) canaryOptions(f *canaryFlags) (canary.Options, error) {
	o := f.Options
	source, err := f.source.options()
	if err != nil {
		return o, failure{err}
	}
	session, err := apiserver.NewSession(source)
	if err != nil {
		return o, failure{err}
	}

	o.API, o.Out, o.Check, o.Poll = session, p.out, p.checkMounted, 500*time.Millisecond
	o.Convert = p.convertObjects
	o.Columns = terminal.Columns(p.console())
	o.Progress = func(text string) { fmt.Fprintln(p.err, text) }
	if f.compare != "none" {
		o.DiffNeeds = apiserver.Watched()
		o.Diff = func(ctx context.Context, pod canary.Pod, corefile string) (canary.Differences, error) {
			return p.canaryDiff(ctx, f, source, pod, corefile)
		}
	}
	if f.compare == "port-forward" {
		o.DiffNeeds = append(o.DiffNeeds, apiserver.Permission{
			Verb: "create", Resource: "pods", Subresource: "portforward", Namespace: f.Namespace,
		})
	}

	o.Kubectl = "kubectl"
	if f.source.kubeconfig != "" {
		o.Kubectl += " " + shellWord("--kubeconfig="+f.source.kubeconfig)
	}
	if f.source.context != "" {
		o.Kubectl += " " + shellWord("--context="+f.source.context)
	}
	return o, nil
}

// shellWord returns a word of a shell command.
func shellWord(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-_=./:@%+,", r) &&
			(r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// checkImage rejects names without a registry or a tag. A container runtime would add the
// default registry, in which the name may belong to anyone, or the tag latest.
func checkImage(image string) error {
	registry, rest, ok := strings.Cut(image, "/")
	switch {
	case image == "":
		return errors.New("--image: want REGISTRY/NAME:TAG of your image")
	case !ok || !strings.ContainsAny(registry, ".:") && registry != "localhost":
		return fmt.Errorf("--image: want REGISTRY/NAME:TAG with the host name of the registry, got %q", image)
	case !strings.ContainsAny(rest, ":@"):
		return fmt.Errorf("--image: want a tag or a digest, got %q", image)
	case strings.ContainsAny(image, " \t\r\n'\"\\"):
		return fmt.Errorf("--image: invalid character in %q", image)
	}
	return nil
}

// checkMounted checks a Corefile that is mounted in a container with these files.
func (p *program) checkMounted(file string, files map[string]string) (errs, warnings []error) {
	root, err := os.MkdirTemp("", "seamark-canary-")
	if err != nil {
		return []error{err}, nil
	}
	defer os.RemoveAll(root)

	// The Corefile's paths of mounted files are changed to paths below root.
	var paths []string
	for name := range files {
		for _, before := range []string{" ", "\t", `"`} {
			paths = append(paths, before+path.Dir(name)+"/", before+root+path.Dir(name)+"/")
		}
	}
	move := strings.NewReplacer(paths...)
	for name, text := range files {
		text = move.Replace(text)
		at := filepath.Join(root, name)
		if err = os.MkdirAll(filepath.Dir(at), 0o700); err == nil {
			err = os.WriteFile(at, []byte(text), 0o600)
		}
		if err != nil {
			return []error{err}, nil
		}
	}

	run := server.Run{
		Read:    func() corefile.Reading { return corefile.Read(filepath.Join(root, file)) },
		Options: server.Options{Directives: p.directives, Port: 53, Log: server.NewLog(io.Discard, slog.LevelError)},
	}
	plan, err := run.Check()
	if err != nil {
		return cleaned(corefile.All(err), root), nil
	}
	return nil, cleaned(corefile.All(plan.Warnings()), root)
}

// cleaned returns the errors with root removed from their texts.
func cleaned(errs []error, root string) (clean []error) {
	for _, err := range errs {
		clean = append(clean, errors.New(strings.ReplaceAll(err.Error(), root, "")))
	}
	return clean
}
