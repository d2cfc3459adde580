package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/local"
	"github.com/seamark/seamark/operate/stub"
	"github.com/spf13/cobra"
)

// explainFlags are the flags of the command explain.
type explainFlags struct {
	conf, manifests string
	admin, token    string // of a running server; token is a file
	port            flags.Port
	portSet         bool
	client, server  string
	output          string
	timeout         time.Duration
	query           queryFlags // of --pod
}

func (p *program) explainCommand() *cobra.Command {
	var e explainFlags
	c := &cobra.Command{
		Use:   "explain NAME [TYPE]",
		Short: "Show what answers a name, or why nothing does",
		Long: `Explain shows how a server answers a query: the server block, each directive with its
verdict, the object of the cluster that the answer is from with its resourceVersion and age,
and the upstreams that were queried. If there is no answer, it shows the reason and the
nearest name that exists: a misspelled name, another namespace, an endpoint that is not
ready, a port that the Service does not have, a namespace that the server hides.

It runs the server of the Corefile of --conf, or of the folder of --manifests, in its own
process. This server reads the objects of the cluster and queries upstreams as any server
does, but listens on no address. With --admin a running server explains the query, which
needs the directive admin.

With --pod it explains each name that the resolver library of the pod tries, with the pod's
search domains and its address as the client's. It reads the pod from the folder of
--manifests or of the Corefile (kubernetes, option manifests). Without such a folder, and with
--kubeconfig or --admin, it reads the pod from the API server.

The exit status is 1 if no name has a record.`,
		Example: `  seamark explain web.shop.svc.cluster.local --manifests examples
  seamark explain web.shop --pod shop/cart-7d9c --conf Corefile
  seamark explain web.shop --pod shop/cart-7d9c --manifests examples
  seamark explain www.example.org --admin localhost:8053
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
	f.StringVar(&e.conf, "conf", "", `Corefile of the server, "-" for standard input (default "Corefile" if it exists)`)
	f.StringVar(&e.manifests, "manifests", "",
		"explain the cluster described by the YAML and JSON files of this folder, without a Corefile")
	f.StringVar(&e.admin, "admin", "", "ask a running server: "+adminUsage+" (such as localhost:8053)")
	tokenFlag(c, &e.token)
	f.StringVar(&e.client, "client", "", "`IP` address of the client (default: that of --pod, or 127.0.0.1)")
	f.StringVar(&e.server, "server", "",
		"`ADDRESS` of the Corefile that receives the query, such as dns://:53 (default the first)")
	f.StringVar(&e.query.pod, "pod", "", "resolve as this pod: `NAMESPACE/NAME`")
	e.query.source.flags(c)
	f.StringVar(&e.query.domain, "cluster-domain", "cluster.local", "the kubelet's clusterDomain")
	portFlag(c, &e.port)
	f.DurationVar(&e.timeout, "timeout", 30*time.Second, "how long to wait for the objects and the answers")
	f.StringVarP(&e.output, "output", "o", "text", "format: text or json")
	complete(c, "output", "text", "json")
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
	if err := oneOf("output", e.output, "text", "json"); err != nil {
		return err
	}

	if e.client != "" {
		var err error
		if q.Client, err = netip.ParseAddr(e.client); err != nil {
			return fmt.Errorf("--client: want an IP address, got %q", e.client)
		}
	}

	pod, ok := objectKey(e.query.pod)
	switch {
	case e.query.pod != "" && !ok:
		return fmt.Errorf("--pod: want NAMESPACE/NAME, got %q", e.query.pod)
	case e.conf != "" && e.manifests != "":
		return errors.New("set only one of --manifests and --conf")
	case e.admin != "" && (e.conf != "" || e.manifests != "" || e.portSet):
		return errors.New("--admin asks a running server: it has no --conf, --manifests and --dns.port")
	case e.admin == "" && e.token != "":
		return errors.New("--token-file needs --admin")
	case e.timeout <= 0:
		return fmt.Errorf("--timeout: want a positive duration, got %v", e.timeout)
	}

	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	server, stop, err := p.explainer(ctx, e)
	if err != nil {
		return err
	}
	defer stop()

	names := []string{q.Name}
	if e.query.pod != "" {
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

	results := []explain.Result{}
	for _, name := range names {
		q.Name = name
		r, err := server.Explain(ctx, q)
		if err != nil {
			return failure{err}
		}
		results = append(results, r)
		if e.output == "text" {
			explain.Write(p.out, r)
		}
		if len(r.Answer) > 0 {
			break
		}
	}

	if e.output == "json" {
		if err := indented(escaped{p.out}, results); err != nil {
			return failure{err}
		}
	}
	if len(results[len(results)-1].Answer) == 0 {
		return different{}
	}
	return nil
}

// explainer returns the server that e selects, and a function that releases it.
func (p *program) explainer(ctx context.Context, e explainFlags) (explainer, func(), error) {
	if e.admin != "" {
		client, err := newAdminClient(e.admin, e.token, e.timeout)
		if err != nil {
			return nil, nil, err
		}
		return client, client.Close, nil
	}
	own, err := p.startLocal(ctx, e)
	if err != nil {
		return nil, nil, failure{err}
	}
	return own, own.Stop, nil
}

// An explainer explains queries: a running server, or one in this process.
type explainer interface {
	Explain(context.Context, explain.Query) (explain.Result, error)
}

// startLocal starts the server that e selects.
func (p *program) startLocal(ctx context.Context, e explainFlags) (*local.Server, error) {
	if _, err := os.Stat(defaultFile); e.conf == "" && e.manifests == "" && err != nil {
		return nil, errors.New("no file Corefile in this directory: set --conf FILE or --manifests FOLDER")
	}
	read, err := p.reader(serve{conf: e.conf, manifests: e.manifests})
	if err != nil {
		return nil, err
	}
	reading := read()
	o := p.options(slog.New(slog.NewTextHandler(io.Discard, nil)))
	o.Port = uint16(e.port)
	if reading.Err != nil {
		return nil, corefile.Sorted(reading.Err)
	}
	return local.Start(ctx, reading.Servers, o)
}
