package cmd

import (
	"os"

	"github.com/seamark/seamark/compat/kubedns"
	"github.com/spf13/cobra"
)

func (p *program) kubednsCommand() *cobra.Command {
	flags := kubedns.DefaultFlags()
	var verbosity int
	var showVersion, printCorefile bool
	c := &cobra.Command{
		Use:   "kube-dns",
		Short: "Serve a cluster as kube-dns does: its flags, ConfigMap, pages and records",
		Long: `Kube-dns takes the place of the program of that name: flags and environment mean
what they mean there, the ConfigMap kube-dns is followed, and names, records,
/readiness, /cache and the metrics skydns_skydns_dns_* are the same. It answers
stub domains, forwards and caches by itself: dnsmasq is not needed beside it.
With PROMETHEUS_PORT in the environment metrics are served on that port, at
PROMETHEUS_PATH, with names that begin as PROMETHEUS_NAMESPACE and
PROMETHEUS_SUBSYSTEM say. Flags may have one dash or two, and - or _ in names.`,
		Example: `  seamark kube-dns --domain=cluster.local. --dns-port=10053 --config-dir=/kube-dns-config --v=2
  seamark kube-dns --kubecfg-file=$HOME/.kube/config --dns-bind-address=127.0.0.1 --dns-port=1053
  seamark kube-dns --config-dir=/kube-dns-config --print-corefile`,
		Args: cobra.NoArgs,
	}
	kubednsFlags(c, &flags)
	c.Flags().BoolVar(&printCorefile, "print-corefile", false, "show the Corefile that the flags and the environment mean, and end")
	c.Flags().BoolVar(&showVersion, "version", false, "show the version")
	klogFlags(c, &verbosity)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if showVersion {
			return p.showVersion()
		}
		text, notes, err := flags.Corefile(os.Getenv)
		if err != nil {
			return err
		}
		if printCorefile {
			_, err := p.out.Write([]byte(text))
			return err
		}
		out := newOutput(p.err)
		defer out.close()
		log := klogLog(c, out, verbosity)
		for _, note := range notes {
			log.Warn(note)
		}
		return p.follow(c.Context(), out, log, "(kube-dns)", text)
	}
	return c
}

// kubednsFlags adds the flags of kube-dns.
func kubednsFlags(c *cobra.Command, flags *kubedns.Flags) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&flags.Domain, "domain", flags.Domain, "`ZONE` of the cluster")
	f.StringVar(&flags.Nameservers, "nameservers", "", "`IP[:PORT],…` of who is asked for names elsewhere, without a ConfigMap; else those of /etc/resolv.conf")
	f.StringVar(&flags.Kubeconfig, "kubecfg-file", "", "kubeconfig `FILE` of the cluster; else the pod's own service account")
	f.StringVar(&flags.Master, "kube-master-url", "", "`URL` of the API server; may have environment variables ($NAME)")
	f.Var((*port)(&flags.HealthzPort), "healthz-port", "`PORT` of /readiness and /cache")
	f.StringVar(&flags.BindAddress, "dns-bind-address", flags.BindAddress, "`ADDRESS` to answer at")
	f.Var((*port)(&flags.Port), "dns-port", "`PORT` to answer at, UDP and TCP")
	f.StringVar(&flags.Federations, "federations", "", "`NAME=DOMAIN,…`, without a ConfigMap")
	f.StringVar(&flags.ConfigMapNamespace, "config-map-namespace", flags.ConfigMapNamespace, "`NAMESPACE` of --config-map")
	f.StringVar(&flags.ConfigMap, "config-map", "", "`NAME` of the ConfigMap to follow by the API server")
	f.StringVar(&flags.ConfigDir, "config-dir", "", "`DIR` that the ConfigMap to follow is mounted in")
	f.DurationVar(&flags.ConfigPeriod, "config-period", flags.ConfigPeriod, "how often --config-dir is looked at besides, where changes do not tell themselves")
	f.DurationVar(&flags.InitialSyncTimeout, "initial-sync-timeout", flags.InitialSyncTimeout, "after this the log says that the cluster's data is still missing; names elsewhere are answered all the time")
	f.BoolVar(&flags.Profiling, "profiling", false, "serve profiles at localhost:6060")
	f.IntVar(&flags.CacheSize, "cache-size", flags.CacheSize, "how many answers of other servers are kept, and as many denials; 0 is none")
	f.BoolVar(&flags.Wildcards, "wildcards", flags.Wildcards, "let * stand for any label in questions")
	f.StringVar(&flags.CacheFor, "cache-for", flags.CacheFor, "who may see /cache: local is this machine alone, any everybody")
	f.DurationVar(&flags.Lameduck, "lameduck", flags.Lameduck, "go on answering for this long after being told to stop")
}
