package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/local"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/operate/stub"
	"github.com/spf13/cobra"
)

// explainFlags are the flags of the command explain.
type explainFlags struct {
	local          serve      // conf, manifests and port of a server in this process
	running        adminFlags // of running servers
	portSet        bool
	client, server string
	pod, domain    string
}

func (p *program) explainCommand() *cobra.Command {
	var e explainFlags
	c := &cobra.Command{
		Use:   "explain NAME [TYPE]",
		Short: "Show what answers a name, or why nothing does",
		Long: `Explain shows how a server answers a query: the server block, each directive with its
verdict, the object of the cluster that the answer is from, and the upstreams that were
queried. Without an answer it shows the reason and the nearest name that exists.

With --conf, --manifests, or a file Corefile in this directory, it runs the server of the Corefile
or the folder in its own process, which listens on no address. Otherwise, and with flags such as
--admin and --namespace, running servers explain the query; equal answers are shown once.

` + findServers + `

With --pod it explains each name that the resolver library of the pod tries, with the pod's
search domains and its address as the client's. It reads the pod from the folder of manifests,
if there is one, or else from the API server.

The exit status is 1 if no name has a record.`,
		Example: `  seamark explain web.shop.svc.cluster.local --manifests examples
  seamark explain web.shop --pod shop/cart-7d9c --conf Corefile
  seamark explain web.shop --pod shop/cart-7d9c --manifests examples
  seamark explain www.example.org --admin localhost:8053
  seamark explain www.example.org --namespace kube-system
  seamark explain _http._tcp.web.shop.svc.cluster.local SRV --manifests examples --output json`,
		Args: arguments(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return commonTypes, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			e.portSet = c.Flags().Changed("dns.port")
			return p.explain(c.Context(), e, args)
		},
	}

	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&e.local.conf, "conf", "",
		`Corefile of the server, "-" for standard input (default "Corefile" if it exists)`)
	f.StringVar(&e.local.manifests, "manifests", "",
		"explain the cluster described by the YAML and JSON files of this folder, without a Corefile")
	f.StringVar(&e.client, "client", "", "`IP` address of the client (default: that of --pod, or 127.0.0.1)")
	f.StringVar(&e.server, "server", "",
		"`ADDRESS` of the Corefile that receives the query, such as dns://:53 (default the first)")
	f.StringVar(&e.pod, "pod", "", "resolve as this pod: `NAMESPACE/NAME`")
	f.StringVar(&e.domain, "cluster-domain", "cluster.local", "the kubelet's clusterDomain")
	portFlag(c, &e.local.port)
	e.running.flagsWithPod(c, "server-pod")
	e.running.timeout, f.Lookup("timeout").DefValue = 30*time.Second, "30s"
	outputFlag(c, &e.running.output)
	return c
}

func (p *program) explain(ctx context.Context, e explainFlags, args []string) error {
	q := explain.Query{Name: args[0], Server: e.server}
	if len(args) > 1 {
		q.Type = strings.ToUpper(args[1])
	}
	if err := domainName(args[0]); err != nil {
		return err
	}
	if _, err := queryTypes(args[1:]); err != nil {
		return err
	}
	if err := e.running.check(); err != nil {
		return err
	}

	if e.client != "" {
		var err error
		if q.Client, err = netip.ParseAddr(e.client); err != nil {
			return fmt.Errorf("--client: want an IP address, got %q", e.client)
		}
	}

	pod, ok := cluster.ParseKey(e.pod)
	switch {
	case e.pod != "" && !ok:
		return fmt.Errorf("--pod: want NAMESPACE/NAME, got %q", e.pod)
	case e.local.conf != "" && e.local.manifests != "":
		return errors.New("set only one of --manifests and --conf")
	case e.selectsServers() && (e.local.conf != "" || e.local.manifests != "" || e.portSet):
		return errors.New("flags such as --admin and --namespace ask running servers:" +
			" they have no --conf, --manifests and --dns.port")
	}

	ctx, cancel := context.WithTimeout(ctx, e.running.timeout)
	defer cancel()
	found, own, stop, err := p.explainers(ctx, e)
	if err != nil {
		return err
	}
	defer stop()
	server := explainer(own)
	if own == nil {
		server = found[0]
	}

	names := []string{q.Name}
	if e.pod != "" {
		config, address, err := p.podConfig(ctx, e, server, pod)
		if err != nil {
			return failure{err}
		}
		if names, err = stub.New(config).Candidates(q.Name); err != nil {
			return failure{err}
		}
		if !q.Client.IsValid() {
			q.Client = address
		}
	}

	if len(found) > 1 {
		return p.explainByAll(ctx, e, found, q, names)
	}
	results, err := explainNames(ctx, server, q, names)
	if err != nil {
		return failure{err}
	}
	if err := e.running.show(p.out, results, func() { p.showExplanations(results) }); err != nil {
		return err
	}
	return unanswered(results)
}

// explainNames explains names until one has an answer.
func explainNames(ctx context.Context, server explainer, q explain.Query, names []string) ([]explain.Result, error) {
	results := []explain.Result{}
	for _, name := range names {
		q.Name = name
		r, err := server.Explain(ctx, q)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
		if len(r.Answer) > 0 {
			break
		}
	}
	return results, nil
}

func (p *program) showExplanations(results []explain.Result) {
	for _, r := range results {
		explain.Write(p.out, r)
	}
}

// unanswered returns the outcome of explanations: different unless the last name has an answer.
func unanswered(results []explain.Result) error {
	if len(results[len(results)-1].Answer) == 0 {
		return different{}
	}
	return nil
}

// explainers returns the running servers that e selects, or the server of a Corefile in this process,
// and a function that releases them.
func (p *program) explainers(
	ctx context.Context, e explainFlags,
) (running []*servers.Server, own *local.Server, stop func(), err error) {
	if e.selectsServers() || e.local.conf == "" && e.local.manifests == "" && !exists(defaultFile) && !e.portSet {
		if running, stop, err = e.running.find(ctx); err != nil {
			return nil, nil, nil, withoutCorefile(e, err)
		}
		return running, nil, stop, nil
	}

	if e.running.tokenFile != "" {
		return nil, nil, nil, errors.New("--token-file needs --admin")
	}
	if own, err = p.startLocal(ctx, e.local); err != nil {
		return nil, nil, nil, failure{err}
	}
	return nil, own, own.Stop, nil
}

// selectsServers reports whether the flags select running servers.
func (e *explainFlags) selectsServers() bool {
	return len(e.running.addresses) > 0 ||
		slices.ContainsFunc([]string{"namespace", "server-pod", "selector", "nodes", "port"}, e.running.changed)
}

// withoutCorefile adds to the error of a search for servers that there is no Corefile either.
func withoutCorefile(e explainFlags, err error) error {
	if f, ok := errors.AsType[failure](err); ok && !e.selectsServers() {
		return failure{fmt.Errorf("no file Corefile in this directory: set --conf FILE or --manifests FOLDER; and %w",
			f.error)}
	}
	return err
}

// An explainer explains queries: a running server, or one in this process.
type explainer interface {
	Explain(context.Context, explain.Query) (explain.Result, error)
}

// startLocal starts the server of a Corefile or a folder.
func (p *program) startLocal(ctx context.Context, s serve) (*local.Server, error) {
	if s.conf == "" && s.manifests == "" && !exists(defaultFile) { // --dns.port is set
		return nil, errors.New("no file Corefile in this directory: set --conf FILE or --manifests FOLDER")
	}
	read, err := p.reader(s)
	if err != nil {
		return nil, err
	}
	reading := read()
	o := p.options(slog.New(slog.NewTextHandler(io.Discard, nil)))
	o.Port = uint16(s.port)
	if reading.Err != nil {
		return nil, corefile.Sorted(reading.Err)
	}
	return local.Start(ctx, reading.Servers, o)
}
