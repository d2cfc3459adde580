package cmd

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/kube2sky"
	"github.com/spf13/cobra"
)

func (p *program) kube2skyCommand() *cobra.Command {
	var o kube2sky.Options
	healthzPort := flags.Port(8081)
	c := &cobra.Command{
		Use:   "kube2sky",
		Short: "Write a cluster's names to etcd for SkyDNS",
		Long: `Kube2sky replaces the program of that name: it watches the API server and writes
the names of Services, endpoints and pods to etcd (version 3), with the same keys and
values, and in addition reverse names and ExternalNames. It answers no queries. It
starts without etcd and the API server and waits for both. Flags may start with one
dash or two, with - or _ in their names.`,
		Example: `  seamark kube2sky --domain=cluster.local --etcd-servers=http://127.0.0.1:2379
  seamark kube2sky --kubecfg-file=$HOME/.kube/config --etcd-servers=https://10.0.0.1:2379,https://10.0.0.2:2379 \
    --etcd-cafile=/etc/etcd/ca.crt --etcd-certfile=/etc/etcd/client.crt --etcd-keyfile=/etc/etcd/client.key`,
		Args: arguments(0, 0),
	}

	f := c.Flags()
	f.StringVar(&o.Domain, "domain", "cluster.local", "`ZONE` of the cluster")
	f.StringVar(&o.Kubeconfig, "kubecfg-file", "",
		"kubeconfig `FILE` of the cluster (default the pod's service account)")
	f.StringVar(&o.Master, "kube-master-url", "", "`URL` of the API server; may contain environment variables ($NAME)")
	f.StringVar(&o.Etcd.Endpoints, "etcd-servers", "http://127.0.0.1:4001", "`URL,...` of etcd's members")
	f.StringVar(&o.Etcd.Endpoints, "etcd-server", "http://127.0.0.1:4001", "`URL,...`: the same")
	f.StringVar(&o.Etcd.CA, "etcd-cafile", "", "CA certificate `FILE` to verify etcd (default the system's CAs)")
	f.StringVar(&o.Etcd.Cert, "etcd-certfile", "", "client certificate `FILE` for etcd")
	f.StringVar(&o.Etcd.Key, "etcd-keyfile", "", "key `FILE` of the client certificate")
	f.StringVar(&o.Etcd.Username, "etcd-username", "", "`USER` in etcd")
	f.StringVar(&o.Etcd.Password, "etcd-password", "", "`PASSWORD` of the user")
	f.DurationVar(&o.MutationTimeout, "etcd-mutation-timeout", 10*time.Second,
		"retry a request to etcd after this time")
	f.Bool("etcd-quorum-read", false, "ignored: every read is a quorum read")
	f.StringVar(&o.PathPrefix, "path-prefix", "skydns", "`PATH` in etcd below which SkyDNS reads")
	f.BoolVar(&o.LeaderElection, "leader-election", true,
		"let one of several replicas write; without it, run a single replica")
	f.DurationVar(&o.Lease, "lease-duration", 5*time.Second, "replace a silent leader after this time")
	f.Var(&healthzPort, "healthz-port", "`PORT` of /readiness and /metrics")
	klog := flags.AddKlog(f)

	p.replaces(c, func([]string) error {
		o.Master = os.ExpandEnv(o.Master)
		o.Listen = net.JoinHostPort("", healthzPort.String())
		if err := o.Check(); err != nil {
			return err
		}
		out := newOutput(p.err)
		defer out.Stop()
		o.Log = klogLogger(out, klog, false)
		return p.runUntilSignal(c, func(ctx context.Context) error { return kube2sky.Run(ctx, o) })
	})
	return c
}
