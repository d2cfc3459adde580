package cmd

import (
	"os"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/kubedns"
	"github.com/spf13/cobra"
)

func (p *program) kubednsCommand() *cobra.Command {
	options := kubedns.DefaultFlags()
	var printCorefile bool
	c := &cobra.Command{
		Use:   "kube-dns",
		Short: "Serve a cluster with kube-dns's flags, ConfigMap, pages and records",
		Long: `Kube-dns replaces the program of that name: flags and environment have the same
meaning, the server follows the ConfigMap kube-dns, and names, records, /readiness,
/cache and the metrics skydns_skydns_dns_* are the same. It also does the work of
dnsmasq: stub domains, forwarding and caching. With PROMETHEUS_PORT in the
environment it serves metrics on that port, at PROMETHEUS_PATH, with names that start
with PROMETHEUS_NAMESPACE and PROMETHEUS_SUBSYSTEM. Flags may start with one dash or
two, with - or _ in their names.`,
		Example: `  seamark kube-dns --domain=cluster.local. --dns-port=10053 --config-dir=/kube-dns-config --v=2
  seamark kube-dns --kubecfg-file=$HOME/.kube/config --dns-bind-address=127.0.0.1 --dns-port=1053
  seamark kube-dns --config-dir=/kube-dns-config --print-corefile`,
		Args: arguments(0, 0),
	}

	f := c.Flags()
	options.AddFlags(f)
	p.admin.flag(c)
	f.BoolVar(&printCorefile, "print-corefile", false,
		"print the Corefile for these flags and the environment, and exit")
	klog := flags.AddKlog(f)

	p.replaces(c, func([]string) error {
		text, ignored, err := options.Corefile(os.Getenv)
		if err != nil {
			return err
		}
		if printCorefile {
			_, err := p.out.Write([]byte(text))
			return err
		}
		out := newOutput(p.err)
		defer out.Stop()
		log := klogLogger(out, klog, false)
		for _, note := range ignored {
			log.Warn("Ignored a flag", "reason", note)
		}
		return p.follow(c.Context(), out, log, "(kube-dns)", text)
	})
	return c
}
