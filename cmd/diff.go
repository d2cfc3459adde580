package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/operate/diff"
	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

// diffFlags are the flags of the command diff.
type diffFlags struct {
	source          sourceFlags
	against, output string
	transport, conf string
	failOn          string
	rate            int
	timeout         time.Duration
	quiet           bool
}

func (p *program) diffCommand() *cobra.Command {
	var d diffFlags
	c := &cobra.Command{
		Use:   "diff --against ADDRESS",
		Short: "Compare the answers of a running DNS server with the objects of a cluster",
		Long: `Diff reads the objects of a cluster from its API server, or from a folder of manifests,
and queries the server at ADDRESS, such as CoreDNS or kube-dns, for every name that they have,
and names near them that do not exist. It compares each answer with the one that Seamark has
for the same objects. It changes nothing in the cluster.

The order of records, lower TTLs, serials and additional records are not compared.
Differences are grouped by their cause, with an example each; intended ones are marked with
their reason. A query with another difference is repeated after two seconds.

With --transport port-forward the queries pass through the API server, as with kubectl
port-forward, so that the server need not be reachable. ADDRESS is then NAMESPACE/POD, or a
pod of the Service kube-dns if it is not set.

The options that answers depend on, such as ttl and pods, are those of the kubernetes
directive in --conf or in the ConfigMap kube-system/coredns. Without either, they are
kubeadm's, or the directive's defaults if the server's SOA record has the TTL 5.

The exit status is 0 without differences, 1 with differences, and 2 if the comparison is
not complete. --fail-on all counts intended differences too; --fail-on none does not count
any.`,
		Example: `  seamark diff --against 10.96.0.10
  seamark diff --against 127.0.0.1:1053 --manifests examples
  seamark diff --against 10.96.0.10 --transport tcp --rate 500 --output json
  seamark diff --transport port-forward
  seamark diff --transport port-forward --against kube-system/coredns-7db6d8ff4d-x2x7k`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return p.diff(c.Context(), d) },
	}

	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&d.against, "against", "",
		"server to compare: `HOST[:PORT]`, or NAMESPACE/POD[:PORT] with --transport port-forward")
	f.StringVar(&d.source.manifests, "manifests", "", "read the objects from the YAML and JSON files of this `FOLDER`")
	d.source.flags(c)
	f.StringVar(&d.conf, "conf", "",
		"Corefile `FILE` whose kubernetes directive has the zones and options of the server (default: the ConfigMap"+
			" kube-system/coredns)")
	f.StringVar(&d.transport, "transport", "udp", "udp, tcp or port-forward")
	f.IntVar(&d.rate, "rate", diff.DefaultRate, "largest number of queries a second")
	f.DurationVar(&d.timeout, "timeout", 2*time.Second, "time to wait for a reply; a query is sent three times")
	f.StringVar(&d.failOn, "fail-on", "diff", "what makes the exit status 1: diff, all or none")
	outputFlag(c, &d.output)
	f.BoolVar(&d.quiet, "quiet", false, "do not print the progress")
	return c
}

func (p *program) diff(ctx context.Context, d diffFlags) error {
	if err := d.check(); err != nil {
		return err
	}

	report, err := p.compare(ctx, d)
	if report != nil { // maybe of a part of the names
		if err := p.showReport(report, d.output); err != nil {
			return incomplete{fmt.Errorf("writing the output: %w", err)}
		}
	}
	switch {
	case err != nil:
		return incomplete{err}
	case d.failOn != "none" && report.Different > 0, d.failOn == "all" && report.Documented > 0:
		return different{}
	}
	return nil
}

// check returns a mistake in the flags.
func (d *diffFlags) check() error {
	if err := errors.Join(
		oneOf("transport", d.transport, "udp", "tcp", "port-forward"),
		oneOf("fail-on", d.failOn, "diff", "all", "none"),
		oneOf("output", d.output, "text", "json"),
	); err != nil {
		return err
	}

	switch {
	case d.against == "" && d.transport != "port-forward":
		return errors.New("want --against HOST[:PORT]")
	case d.rate < 1 || d.rate > 1e6:
		return fmt.Errorf("--rate: want 1..1000000, got %d", d.rate)
	case d.timeout < time.Millisecond || d.timeout > time.Minute:
		return fmt.Errorf("--timeout: want 1ms..1m, got %v", d.timeout)
	case d.transport != "port-forward":
		return checkServer(d.against)
	case d.source.manifests != "":
		return errors.New("--transport port-forward needs an API server: set --kubeconfig in place of --manifests")
	}
	_, _, err := forwardTarget(d.against)
	return err
}

// compare queries the server for all names of the cluster.
func (p *program) compare(ctx context.Context, d diffFlags) (*diff.Report, error) {
	source, err := d.source.options()
	if err != nil {
		return nil, err
	}
	o := diff.Options{
		Directives: p.directives, Cluster: source, Address: query.WithPort(d.against), Transport: d.transport,
		Rate: d.rate, Timeout: d.timeout, Log: server.NewLog(p.err, slog.LevelWarn),
	}

	var session *apiserver.Session // nil for a folder
	if source.Manifests != "" {
		if err := source.CheckFiles(); err != nil {
			return nil, fmt.Errorf("--%w", err)
		}
	} else {
		if session, err = apiserver.NewSession(source); err != nil {
			return nil, err
		}
		defer session.Close()
	}

	if d.transport == "port-forward" {
		end, err := forward(ctx, &o, d.against, session)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	if err := p.setCorefile(ctx, &o, d.conf, session); err != nil {
		return nil, err
	}
	if !d.quiet {
		o.Reading = func(duration time.Duration) {
			fmt.Fprintf(p.err, "reading the objects of the cluster: %v\n", duration.Round(time.Second))
		}
		o.Progress = func(done, total int) { fmt.Fprintf(p.err, "%d of %d queries\n", done, total) }
	}
	return diff.Run(ctx, o)
}

// forward makes the queries of o pass through the API server to a pod, until end is called.
func forward(
	ctx context.Context, o *diff.Options, target string, session *apiserver.Session,
) (end func(), err error) {
	pod, port, err := forwardTarget(target)
	if err == nil && target == "" {
		pod, err = dnsPod(ctx, session)
	}
	if err != nil {
		return nil, err
	}
	forwarder := apiserver.PortForward(o.Cluster, pod, port)
	o.Address, o.Transport = net.JoinHostPort(pod.String(), strconv.Itoa(port)), "tcp"
	o.Dial = forwarder.Dial
	return forwarder.Close, nil
}

// setCorefile sets the Corefile whose options the answers depend on: that of a file, or the one of
// the cluster. Without either, the user learns which options were assumed, and why.
func (p *program) setCorefile(
	ctx context.Context, o *diff.Options, file string, session *apiserver.Session,
) (err error) {
	reason := errors.New("a folder has no Corefile")
	switch {
	case file != "":
		text, err := corefile.Text(file)
		if err != nil {
			return fmt.Errorf("reading the Corefile: %w", err)
		}
		o.Corefile = string(text)
		return diff.CheckCorefile(file, o.Corefile)
	case session != nil:
		if o.Corefile, reason, err = runningCorefile(ctx, session); err != nil {
			return err
		}
	}
	o.Assumed = func(options string) {
		fmt.Fprintf(p.err, "Comparing with %s, since %v. Set --conf to use the options of the server's Corefile.\n",
			options, reason)
	}
	return nil
}

// runningCorefile returns the Corefile of the cluster's CoreDNS. If there is none, or it has no
// kubernetes directive, it returns "" and the reason. It returns an error if the API server
// cannot be reached.
func runningCorefile(ctx context.Context, session *apiserver.Session) (text string, reason, err error) {
	config, err := clusterConfig(ctx, session)
	if _, response := errors.AsType[*apiserver.ResponseError](err); err != nil && !response {
		return "", nil, err
	}
	text = readable(config.coredns["Corefile"])
	switch {
	case err != nil:
		reason = err
	case config.coredns == nil:
		reason = errors.New("it does not exist")
	case text == "":
		reason = errors.New("it has no Corefile")
	default:
		reason = diff.CheckCorefile("Corefile", text)
	}
	if reason != nil {
		return "", fmt.Errorf("the ConfigMap kube-system/coredns cannot be used: %w", reason), nil
	}
	return text, nil, nil
}

// checkServer returns an error unless a server has the form HOST[:PORT].
func checkServer(server string) error {
	host, number, err := net.SplitHostPort(query.WithPort(server))
	if err == nil && host == "" {
		err = errors.New("no host")
	}
	port, numberErr := strconv.Atoi(number)
	if err != nil || numberErr != nil || port < 1 || port > 65535 {
		return fmt.Errorf("--against: want HOST[:PORT] with a port of 1..65535, got %q", server)
	}
	return nil
}

// forwardTarget returns the pod and the port of NAMESPACE/POD[:PORT]; no pod if target is
// empty.
func forwardTarget(target string) (pod cluster.Key, port int, err error) {
	if target == "" {
		return pod, 53, nil
	}
	name, number, found := strings.Cut(target, ":")
	if port = 53; found {
		if port, err = strconv.Atoi(number); err != nil || port < 1 || port > 65535 {
			return pod, 0, fmt.Errorf("--against: want a port of 1..65535 in %q", target)
		}
	}
	pod, ok := cluster.ParseKey(name)
	if !ok {
		return pod, 0, fmt.Errorf("--against: want NAMESPACE/POD[:PORT] with --transport port-forward, got %q", target)
	}
	return pod, port, nil
}

// dnsPod returns a ready pod behind the Service kube-dns. One that is being deleted stays ready for
// seconds, and would end during the comparison.
func dnsPod(ctx context.Context, session *apiserver.Session) (pod cluster.Key, err error) {
	const selector = "k8s-app=kube-dns"
	var pods struct{ Items []api.Pod }
	path := "/api/v1/namespaces/kube-system/pods?limit=100&labelSelector=" + url.QueryEscape(selector)
	if err := session.Read(ctx, path, "the pods with the labels "+selector, &pods); err != nil {
		return pod, err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Conditions.Ready() {
			return cluster.Key{Namespace: p.Namespace, Name: p.Name}, nil
		}
	}
	return pod, errors.New("no ready pod has the label k8s-app=kube-dns in kube-system: set --against NAMESPACE/POD")
}

// An incomplete is the error of a comparison or an examination that could not be completed.
type incomplete struct{ error }

// A different is the outcome of a comparison or an examination that has been printed.
type different struct{}

func (different) Error() string { return "the answers differ" }

func (p *program) showReport(r *diff.Report, output string) error {
	if output == "json" {
		return indented(p.out, r)
	}
	return writeReport(p.out, r)
}

// writeReport writes a report as text.
func writeReport(w io.Writer, r *diff.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s in %v: %d same, %d differ, %d differ as documented\n",
		r.Server, counted(r.Names, "name", "names"), counted(r.Queries, "query", "queries"),
		rounded(r.Time), r.Same, r.Different, r.Documented)
	if r.Changed > 0 {
		fmt.Fprintf(&b, "%d answers changed while they were compared, and are the same now\n", r.Changed)
	}
	if r.Unrepeated > 0 {
		fmt.Fprintf(&b, "%d of the differences were not checked by a second query: there are too many\n", r.Unrepeated)
	}

	for _, g := range r.Groups {
		fmt.Fprintf(&b, "\n%s: %s, %s (%s)\n", g.Subject, g.Cause, counted(g.Count, "time", "times"), g.Type)
		if g.Reason != "" {
			fmt.Fprintf(&b, "  documented: %s\n", g.Reason)
		}
		fmt.Fprintf(&b, "  example: %s %s\n", g.Example.Name, g.Example.Type)
		for _, line := range g.Example.Expected {
			fmt.Fprintf(&b, "    - %s\n", line)
		}
		for _, line := range g.Example.Received {
			fmt.Fprintf(&b, "    + %s\n", line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
