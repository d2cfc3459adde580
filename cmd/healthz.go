package cmd

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/healthz"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) healthzCommand() *cobra.Command {
	var o healthz.Options
	var addr string
	var quiet bool
	port := flags.Port(8080)
	c := &cobra.Command{
		Use:     "exec-healthz",
		Aliases: []string{"exechealthz"}, // the entry point of the original image
		Short:   "Run commands and report their success over HTTP",
		Long: `Exec-healthz replaces Kubernetes' program of that name, the probe of the first
kube-dns pods. It runs each -cmd with sh -c at an interval; the page at the -url in
the same position answers 200 if the last run succeeded, else 503. Without a shell in
the image it runs simple commands itself, and replaces nslookup. Flags may start with
one dash or two.`,
		Example: `  seamark exec-healthz -cmd="nslookup kubernetes.default.svc.cluster.local 127.0.0.1 >/dev/null" -port=8080
  seamark exec-healthz -quiet -cmd="nslookup kubernetes.default.svc.cluster.local 127.0.0.1:53" -url=/healthz-dnsmasq \
    -cmd="nslookup kubernetes.default.svc.cluster.local 127.0.0.1:10053" -url=/healthz-kubedns`,
		Args: arguments(0, 0),
	}

	f := c.Flags()
	f.StringArrayVar(&o.Commands, "cmd", []string{"echo healthz"}, "`COMMAND` to run; may be repeated")
	f.StringArrayVar(&o.URLs, "url", []string{"/healthz"},
		"`PATH` of a command's page: one for each -cmd, in the same order")
	f.Var(&port, "port", "port of the pages")
	f.StringVar(&addr, "addr", "", "address of the pages (default all addresses)")
	f.DurationVar(&o.Period, "period", 2*time.Second, "interval between runs of a command")
	f.DurationVar(&o.Latency, "latency", 30*time.Second, "maximum age of a result")
	f.DurationVar(&o.Timeout, "timeout", 0, "kill a command after this time (default the value of -latency)")
	f.BoolVar(&o.Output, "output", false, "include the output of the commands in their pages")
	f.BoolVar(&quiet, "quiet", false, "do not log")

	p.replaces(c, func([]string) error {
		if !f.Changed("timeout") {
			o.Timeout = o.Latency
		}
		o.Listen = net.JoinHostPort(corefile.Unbracketed(addr), port.String())
		if err := o.Check(); err != nil {
			return err
		}
		o.Log = slog.New(slog.DiscardHandler)
		if !quiet {
			out := newOutput(p.err)
			defer out.Stop()
			o.Log = server.NewLog(out, slog.LevelInfo)
		}
		return p.runUntilSignal(c, func(ctx context.Context) error { return healthz.Run(ctx, o) })
	})
	return c
}
