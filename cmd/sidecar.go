package cmd

import (
	"context"
	"net"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/sidecar"
	"github.com/seamark/seamark/corefile"
	"github.com/spf13/cobra"
)

func (p *program) sidecarCommand() *cobra.Command {
	o := sidecar.Options{}
	var dnsmasqAddr, statusAddr string
	var poll int32
	dnsmasqPort, statusPort := flags.Port(53), flags.Port(10054)
	c := &cobra.Command{
		Use:   "sidecar",
		Short: "Probe the DNS servers of a kube-dns pod and export dnsmasq's statistics",
		Long: `Sidecar replaces kube-dns's program of that name. It sends a query to each server
of --probe at an interval, reports the result at /healthcheck/LABEL, and exports the
latencies and dnsmasq's counters at /metrics. Flags may start with one dash or two.`,
		Example: `  seamark sidecar --probe=kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV \
    --probe=dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local,5,SRV`,
		Args: arguments(0, 0),
	}

	f := c.Flags()
	f.Func("probe",
		"`LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]`: send a query, by default every 5 seconds and of type ANY; may"+
			" be repeated", func(text string) error {
			probe, err := sidecar.ParseProbe(text)
			o.Probes = append(o.Probes, probe) // of no use after an error
			return err
		})
	f.StringVar(&dnsmasqAddr, "dnsmasq-addr", "127.0.0.1", "address of dnsmasq, for its statistics")
	f.Var(&dnsmasqPort, "dnsmasq-port", "port of dnsmasq")
	f.Int32Var(&poll, "dnsmasq-poll-interval-ms", 5000, "interval of the queries for statistics, in milliseconds")
	f.StringVar(&statusAddr, "prometheus-addr", "0.0.0.0", "address of the pages")
	f.Var(&statusPort, "prometheus-port", "port of the pages")
	f.StringVar(&o.Path, "prometheus-path", "/metrics", "path of the metrics page")
	f.StringVar(&o.Namespace, "prometheus-namespace", "kubedns", "prefix of the sidecar's own metrics")
	klog := flags.AddKlog(f)

	p.replaces(c, func([]string) error {
		o.Dnsmasq = net.JoinHostPort(corefile.Unbracketed(dnsmasqAddr), dnsmasqPort.String())
		o.Listen = net.JoinHostPort(corefile.Unbracketed(statusAddr), statusPort.String())
		o.Poll = time.Duration(poll) * time.Millisecond
		if err := o.Check(); err != nil {
			return err
		}
		out := newOutput(p.err)
		defer out.Stop()
		o.Log = klogLogger(out, klog, false)
		return p.runUntilSignal(c, func(ctx context.Context) error { return sidecar.Run(ctx, o) })
	})
	return c
}
