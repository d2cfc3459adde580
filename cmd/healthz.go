package cmd

import (
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/seamark/seamark/compat/healthz"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) healthzCommand() *cobra.Command {
	var o healthz.Options
	var addr string
	var quiet, showVersion bool
	pagesPort := port(8080)
	c := &cobra.Command{
		Use:     "exec-healthz",
		Aliases: []string{"exechealthz"}, // as the old image has it
		Short:   "Run commands, and say over HTTP whether they succeed",
		Long: `Exec-healthz takes the place of Kubernetes' exec-healthz, the probe of the first
kube-dns pods: it runs each -cmd by sh -c, again and again, and answers 200 at the
-url of the same place if it succeeded, else 503. Where there is no shell it runs
simple commands by itself, and asks DNS servers as nslookup does. Flags may have one
dash or two.`,
		Example: `  seamark exec-healthz -cmd="nslookup kubernetes.default.svc.cluster.local 127.0.0.1 >/dev/null" -port=8080
  seamark exec-healthz -quiet -cmd="nslookup kubernetes.default.svc.cluster.local 127.0.0.1:53" -url=/healthz-dnsmasq \
    -cmd="nslookup kubernetes.default.svc.cluster.local 127.0.0.1:10053" -url=/healthz-kubedns`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.Commands, "cmd", []string{"echo healthz"}, "`COMMAND` to run; may be given several times")
	f.StringArrayVar(&o.URLs, "url", []string{"/healthz"}, "`PATH` of the page of a command: one for each, in the same order")
	f.Var(&pagesPort, "port", "port of the pages")
	f.StringVar(&addr, "addr", "", "address of the pages; all of the machine's unless given")
	f.DurationVar(&o.Period, "period", 2*time.Second, "from one run of a command to the next")
	f.DurationVar(&o.Latency, "latency", 30*time.Second, "how old a result may be")
	f.DurationVar(&o.Timeout, "timeout", 0, "how long a command may run before it is killed; as long as -latency unless given")
	f.BoolVar(&o.Output, "output", false, "show on the pages what the commands have written")
	f.BoolVar(&quiet, "quiet", false, "log nothing")
	f.BoolVar(&showVersion, "version", false, "show the version")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if showVersion {
			return p.showVersion()
		}
		if !f.Changed("timeout") {
			o.Timeout = o.Latency
		}
		o.Listen = net.JoinHostPort(strings.Trim(addr, "[]"), pagesPort.String())
		if err := o.Check(); err != nil {
			return err
		}
		o.Log = slog.New(slog.DiscardHandler)
		if !quiet {
			out := newOutput(p.err)
			defer out.close()
			o.Log = server.NewLog(out, slog.LevelInfo)
		}
		ctx, release := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
		defer release()
		// Whoever reads standard error may go away: commands go on. The signal is
		// caught and not ignored, which they would inherit.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		if err := healthz.Run(ctx, o); err != nil {
			return failure{err}
		}
		return nil
	}
	return c
}
