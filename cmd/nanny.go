package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/seamark/seamark/compat/dnsmasq"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/nanny"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/spf13/cobra"
)

func (p *program) nannyCommand() *cobra.Command {
	var n nanny.Flags
	var printCorefile bool
	c := &cobra.Command{
		Use:   "dnsmasq-nanny [flags] -- DNSMASQ-OPTIONS",
		Short: "Serve with dnsmasq's options and follow the ConfigMap kube-dns",
		Long: `Dnsmasq-nanny replaces kube-dns's program of that name and its dnsmasq. The server
implements the options of dnsmasq after -- with its own cache, hosts and forward; it
starts no dnsmasq. It follows the stub domains and upstreams in the ConfigMap. Flags
may start with one dash or two.`,
		Example: `  seamark dnsmasq-nanny -configDir=/etc/k8s/dns/dnsmasq-nanny -restartDnsmasq=true -- \
    -k --cache-size=1000 --no-negcache --server=/cluster.local/127.0.0.1#10053
  seamark dnsmasq-nanny --print-corefile -- --no-resolv --server=192.0.2.53`,
	}

	f := c.Flags()
	n.AddFlags(f)
	p.admin.flag(c)
	f.BoolVar(&printCorefile, "print-corefile", false, "print the Corefile for the options, and exit")
	klog := flags.AddKlog(f)
	c.Args = func(c *cobra.Command, args []string) error {
		if at := c.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
			return fmt.Errorf("unknown word %q: write dnsmasq's options after --", args[0])
		}
		return nil
	}

	p.replaces(c, func(args []string) error {
		if err := n.Check(); err != nil {
			return err
		}
		options, err := dnsmasq.Parse(args)
		switch {
		case err != nil:
			return err
		case options.Version:
			return p.showVersion()
		case options.Help:
			_, err := fmt.Fprint(p.out, dnsmasq.Help())
			return err
		}
		return p.nanny(c, n, options, klog, printCorefile)
	})
	return c
}

// nanny serves or prints the Corefile for dnsmasq's options.
func (p *program) nanny(
	c *cobra.Command, n nanny.Flags, options dnsmasq.Options, klog *flags.Klog, printCorefile bool,
) error {
	env := n.Environment()
	env.Interfaces = nanny.Interfaces()
	text, err := options.Corefile(env)
	switch {
	case err != nil:
		return err
	case options.Test:
		_, err := fmt.Fprintln(p.out, "syntax check OK")
		return err
	}

	ctx, cancel := context.WithCancel(c.Context())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	log := slog.New(slog.DiscardHandler)
	var out *linewriter.Writer
	if !printCorefile {
		out = newOutput(p.err)
		defer out.Stop()
		log = klogLogger(out, klog, options.Debug)
	}

	r := server.Run{
		Options: p.options(log), Out: out, Greeting: p.build.String(), Signals: p.signals, PIDFile: options.PIDFile,
	}

	if !n.Restart && n.ConfigDir != "" {
		s := nanny.Snapshot{
			Dir: n.ConfigDir, Period: n.SyncInterval, Log: log, Metrics: r.Metrics, Check: planned(r.Options),
		}
		if text, err = s.Corefile(ctx, &tasks, text); err != nil {
			return failure{err}
		}
	}

	if printCorefile {
		_, err := p.out.Write([]byte(text))
		return err
	}

	for _, note := range options.Notes {
		log.Warn("Option of dnsmasq is ignored or works differently", "reason", note)
	}
	if n.LogInterval > 0 {
		tasks.Go(func() { nanny.LogStatistics(ctx, n.LogInterval, r.Metrics, log) })
	}
	return p.serves(ctx, &r, func() corefile.Reading {
		return corefile.ReadText("(dnsmasq-nanny)", []byte(text))
	})
}
