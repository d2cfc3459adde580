package cmd

import (
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seamark/seamark/compat/kube2sky"
	"github.com/spf13/cobra"
)

func (p *program) kube2skyCommand() *cobra.Command {
	var o kube2sky.Options
	var verbosity int
	var showVersion bool
	healthzPort := port(8081)
	c := &cobra.Command{
		Use:   "kube2sky",
		Short: "Write a cluster's names into etcd, for SkyDNS and who reads its layout",
		Long: `Kube2sky takes the place of the program of that name: it watches the API server
and writes the names of Services, endpoints and pods into etcd (version 3), with the
same keys and values, and reverse names and ExternalNames too. It answers no
questions. Neither etcd nor the API server has to be there when it starts. Flags may
have one dash or two, and - or _ in names.`,
		Example: `  seamark kube2sky --domain=cluster.local --etcd-servers=http://127.0.0.1:2379
  seamark kube2sky --kubecfg-file=$HOME/.kube/config --etcd-servers=https://10.0.0.1:2379,https://10.0.0.2:2379 \
    --etcd-cafile=/etc/etcd/ca.crt --etcd-certfile=/etc/etcd/client.crt --etcd-keyfile=/etc/etcd/client.key`,
		Args: cobra.NoArgs,
	}
	kube2skyFlags(c, &o)
	f := c.Flags()
	f.Var(&healthzPort, "healthz-port", "`PORT` of /readiness and /metrics")
	f.BoolVar(&showVersion, "version", false, "show the version")
	klogFlags(c, &verbosity)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if showVersion {
			return p.showVersion()
		}
		o.Master = os.ExpandEnv(o.Master)
		o.Listen = net.JoinHostPort("", healthzPort.String())
		if err := o.Check(); err != nil {
			return err
		}
		out := newOutput(p.err)
		defer out.close()
		o.Log = klogLog(c, out, verbosity)
		ctx, release := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
		defer release()
		signal.Ignore(syscall.SIGPIPE) // whoever reads standard error may go away: writing goes on
		if err := kube2sky.Run(ctx, o); err != nil {
			return failure{err}
		}
		return nil
	}
	return c
}

func kube2skyFlags(c *cobra.Command, o *kube2sky.Options) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.Domain, "domain", "cluster.local", "`ZONE` of the cluster")
	f.StringVar(&o.Kubeconfig, "kubecfg-file", "", "kubeconfig `FILE` of the cluster; else the pod's own service account")
	f.StringVar(&o.Master, "kube-master-url", "", "`URL` of the API server; may have environment variables ($NAME)")
	f.StringVar(&o.Etcd.Endpoints, "etcd-servers", "http://127.0.0.1:4001", "`URL,…` of etcd's members")
	f.StringVar(&o.Etcd.Endpoints, "etcd-server", "http://127.0.0.1:4001", "`URL,…`: the same")
	f.StringVar(&o.Etcd.CA, "etcd-cafile", "", "`FILE` with the certificates of who signs etcd's; else the machine's own")
	f.StringVar(&o.Etcd.Cert, "etcd-certfile", "", "`FILE` with the certificate to show etcd")
	f.StringVar(&o.Etcd.Key, "etcd-keyfile", "", "`FILE` with its key")
	f.StringVar(&o.Etcd.Username, "etcd-username", "", "`USER` to be for etcd")
	f.StringVar(&o.Etcd.Password, "etcd-password", "", "`PASSWORD` of that user")
	f.DurationVar(&o.MutationTimeout, "etcd-mutation-timeout", 10*time.Second, "how long etcd may take for a request before it is tried again")
	f.Bool("etcd-quorum-read", false, "changes nothing: every read has the word of a quorum")
	f.StringVar(&o.PathPrefix, "path-prefix", "skydns", "`PATH` in etcd below which SkyDNS looks")
	f.BoolVar(&o.LeaderElection, "leader-election", true, "let one of several replicas write; without it there must be only one")
	f.DurationVar(&o.Lease, "lease-duration", 5*time.Second, "how long a leader that says nothing is waited for")
}
