package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/compat/dnsmasq"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/internal/kubednsconfig"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

// nanny is the flags of the command dnsmasq-nanny.
type nanny struct {
	configDir, resolver, exec string
	restart, print            bool
	sync, statistics          time.Duration
	lameduck                  time.Duration
}

func (p *program) nannyCommand() *cobra.Command {
	var n nanny
	var verbosity int
	var showVersion bool
	c := &cobra.Command{
		Use:   "dnsmasq-nanny [flags] -- DNSMASQ-OPTIONS",
		Short: "Serve as dnsmasq does with the same options, and follow the ConfigMap kube-dns",
		Long: `Dnsmasq-nanny takes the place of kube-dns's dnsmasq and of the program of that
name: what stands behind -- are dnsmasq's options, of which this server does the
same by its own cache, hosts and forward; no dnsmasq is started. Stub domains and
upstream servers of the ConfigMap are served as it changes. Flags may have one dash
or two.`,
		Example: `  seamark dnsmasq-nanny -configDir=/etc/k8s/dns/dnsmasq-nanny -restartDnsmasq=true -- \
    -k --cache-size=1000 --no-negcache --server=/cluster.local/127.0.0.1#10053
  seamark dnsmasq-nanny --print-corefile -- --no-resolv --server=192.0.2.53`,
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&n.configDir, "configDir", "/etc/k8s/dns/dnsmasq-nanny", "`DIR` that the ConfigMap kube-dns is mounted in; without it nothing is followed")
	f.BoolVar(&n.restart, "restartDnsmasq", false, "serve changes of the ConfigMap; nothing is restarted for that. Otherwise the log tells them")
	f.DurationVar(&n.sync, "syncInterval", 10*time.Second, "how often -configDir is looked at besides, where changes do not tell themselves")
	f.StringVar(&n.resolver, "kubednsServer", "127.0.0.1:10053", "`IP:PORT` of who is asked for the addresses of stub domains' servers that have names in the cluster")
	f.DurationVar(&n.statistics, "logInterval", 0, "how often the log tells the numbers of cache and servers; 0 is never")
	f.StringVar(&n.exec, "dnsmasqExec", "/usr/sbin/dnsmasq", "changes nothing: no dnsmasq is started")
	f.DurationVar(&n.lameduck, "lameduck", 5*time.Second, "go on answering for this long after being told to stop")
	f.BoolVar(&n.print, "print-corefile", false, "show the Corefile that the options mean, and end")
	f.BoolVar(&showVersion, "version", false, "show the version")
	klogFlags(c, &verbosity)
	c.Args = func(c *cobra.Command, args []string) error {
		if at := c.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
			return fmt.Errorf("unknown word %q: dnsmasq's options stand behind --", args[0])
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if showVersion {
			return p.showVersion()
		}
		if err := n.check(); err != nil {
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
		return p.nanny(c, n, options, verbosity)
	}
	return c
}

func (n *nanny) check() error {
	var errs []error
	if addr, err := netip.ParseAddr(n.resolver); err == nil {
		n.resolver = netip.AddrPortFrom(addr, 53).String()
	} else if _, err := netip.ParseAddrPort(n.resolver); err != nil {
		errs = append(errs, fmt.Errorf("-kubednsServer: want IP:PORT, got %q", n.resolver))
	}
	if n.sync < 10*time.Millisecond || n.sync > 24*time.Hour {
		errs = append(errs, fmt.Errorf("-syncInterval: want 10ms..24h, got %s", n.sync))
	}
	if n.statistics < 0 {
		errs = append(errs, fmt.Errorf("-logInterval: want a time, got %s", n.statistics))
	}
	if n.lameduck < 0 || n.lameduck > time.Hour {
		errs = append(errs, fmt.Errorf("--lameduck: want 0s..1h, got %s", n.lameduck))
	}
	if strings.ContainsAny(n.configDir, "\"\\{}\n") || n.configDir != "" && !strings.HasPrefix(n.configDir, "/") && !strings.HasPrefix(n.configDir, ".") {
		errs = append(errs, fmt.Errorf("-configDir: want a directory that begins with / or ., got %q", n.configDir))
	}
	return errors.Join(errs...)
}

// nanny serves what the options ask for.
func (p *program) nanny(c *cobra.Command, n nanny, options dnsmasq.Options, verbosity int) error {
	at := dnsmasq.Environment{Resolver: n.resolver, Period: n.sync, Lameduck: n.lameduck, Interfaces: interfaces()}
	at.ConfigMap = n.configDir
	text, err := options.Corefile(at)
	switch {
	case err != nil:
		return err
	case options.Test:
		_, err := fmt.Fprintln(p.out, "syntax check OK")
		return err
	}
	ctx, cancel := context.WithCancel(c.Context())
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	var out *output
	if !n.print {
		if options.Debug {
			verbosity = max(verbosity, 4)
		}
		out = newOutput(p.err)
		defer out.close()
		log = klogLog(c, out, verbosity)
	}
	r := server.Run{Options: p.options(log), Out: out, Greeting: p.greeting(), PIDFile: options.PIDFile}
	if !n.restart && n.configDir != "" {
		if text, err = n.once(ctx, &beside, &r, text); err != nil {
			return failure{err}
		}
	}
	if n.print {
		_, err := p.out.Write([]byte(text))
		return err
	}
	if len(options.Notes) > 0 {
		log.Warn("dnsmasq-nanny: what these options mean is done in another way or not: " + strings.Join(options.Notes, "; "))
	}
	limitMemory(log)
	if n.statistics > 0 {
		beside.Go(func() { tellNumbers(ctx, n.statistics, r.Metrics, log) })
	}
	return p.serves(ctx, &r, func() corefile.Reading { return corefile.ReadText("(dnsmasq-nanny)", []byte(text)) })
}

// once gives the Corefile with what the ConfigMap says now. That it says something
// else later is told, and not served.
func (n *nanny) once(ctx context.Context, beside *sync.WaitGroup, r *server.Run, text string) (string, error) {
	read := corefile.ReadText("(dnsmasq-nanny)", []byte(text))
	with := func(c kubednsconfig.Config) ([]corefile.Server, error) {
		servers, err := kubedns.Expand(read.Servers, c)
		return servers, errors.Join(read.Err, err)
	}
	first := make(chan kubednsconfig.Config, 1)
	seen := false
	d := kubedns.Directory{Path: n.configDir, Period: n.sync, Log: r.Log, Metrics: r.Metrics, Check: func(c kubednsconfig.Config) error {
		servers, err := with(c)
		if err == nil {
			err = planned(r.Options, servers)
		}
		return err
	}}
	beside.Go(func() {
		d.Run(ctx, func(c kubednsconfig.Config) {
			if !seen {
				seen = true
				first <- c
				return
			}
			r.Log.Warn("dnsmasq-nanny: the ConfigMap in " + n.configDir + " has changed; -restartDnsmasq=false is to go on as before")
		})
	})
	select {
	case c := <-first:
		servers, err := with(c)
		if err != nil {
			return "", err
		}
		return corefile.Format(servers)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// interfaces are the machine's that have addresses.
func interfaces() (names []string) {
	all, err := net.Interfaces()
	if err != nil {
		return nil // each that is named is looked for later, and told
	}
	for _, i := range all {
		if addrs, err := i.Addrs(); err == nil && len(addrs) > 0 {
			names = append(names, i.Name)
		}
	}
	return names
}
