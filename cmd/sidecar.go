package cmd

import (
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/seamark/seamark/compat/sidecar"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) sidecarCommand() *cobra.Command {
	o := sidecar.Options{}
	var dnsmasq, pages string
	var poll int32
	var verbosity int
	var showVersion bool
	dnsmasqPort, pagesPort := port(53), port(10054)
	c := &cobra.Command{
		Use:   "sidecar",
		Short: "Probe the DNS servers of a kube-dns pod, and show dnsmasq's statistics",
		Long: `Sidecar takes the place of kube-dns's sidecar: it puts questions to servers, says
at /healthcheck/LABEL whether they are answered, and shows at /metrics how long
that took and what dnsmasq counts. Flags may have one dash or two.`,
		Example: `  seamark sidecar --probe=kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV \
    --probe=dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local,5,SRV`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.SortFlags = false
	f.Var((*probes)(&o.Probes), "probe", "`LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]`: what to ask, every 5 seconds and of type ANY unless given; may be given several times")
	f.StringVar(&dnsmasq, "dnsmasq-addr", "127.0.0.1", "address of dnsmasq, which is asked for its statistics")
	f.Var(&dnsmasqPort, "dnsmasq-port", "port of dnsmasq")
	f.Int32Var(&poll, "dnsmasq-poll-interval-ms", 5000, "milliseconds from one round of questions for statistics to the next")
	f.StringVar(&pages, "prometheus-addr", "0.0.0.0", "address of the pages")
	f.Var(&pagesPort, "prometheus-port", "port of the pages")
	f.StringVar(&o.Path, "prometheus-path", "/metrics", "path of the page of metrics")
	f.StringVar(&o.Namespace, "prometheus-namespace", "kubedns", "what the names of the sidecar's own metrics begin with")
	f.BoolVar(&showVersion, "version", false, "show the version")
	klogFlags(c, &verbosity)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if showVersion {
			return p.showVersion()
		}
		o.Dnsmasq = net.JoinHostPort(strings.Trim(dnsmasq, "[]"), dnsmasqPort.String())
		o.Listen = net.JoinHostPort(strings.Trim(pages, "[]"), pagesPort.String())
		o.Poll = time.Duration(poll) * time.Millisecond
		if err := o.Check(); err != nil {
			return err
		}
		out := newOutput(p.err)
		defer out.close()
		o.Log = klogLog(c, out, verbosity)
		ctx, release := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
		defer release()
		signal.Ignore(syscall.SIGPIPE) // whoever reads standard error may go away: probes go on
		if err := sidecar.Run(ctx, o); err != nil {
			return failure{err}
		}
		return nil
	}
	return c
}

// probes is the value of --probe.
type probes []sidecar.Probe

func (p *probes) Set(text string) error {
	parsed, err := sidecar.ParseProbe(text)
	if err == nil {
		*p = append(*p, parsed)
	}
	return err
}

func (p *probes) String() string {
	var all []string
	for _, one := range *p {
		all = append(all, one.String())
	}
	return strings.Join(all, " ")
}

// Type is what the library calls it.
func (p *probes) Type() string { return "probe" }

// klogIgnored is the flags that change nothing here, of the library that
// Kubernetes' programs log with.
var klogIgnored = []struct {
	name, value string // as it is if it is not given
	truth       bool   // true or false, and true if it stands alone
}{
	{"logtostderr", "true", true},
	{"alsologtostderr", "false", true},
	{"add-dir-header", "false", true},
	{"one-output", "false", true},
	{"skip-headers", "false", true},
	{"skip-log-headers", "false", true},
	{"legacy-stderr-threshold-behavior", "true", true},
	{"log-backtrace-at", "", false},
	{"log-dir", "", false},
	{"log-file", "", false},
	{"log-file-max-size", "", false},
	{"log-flush-frequency", "", false},
	{"stderrthreshold", "", false},
	{"alsologtostderrthreshold", "", false},
	{"vmodule", "", false},
}

// klogFlags adds that library's flags, which manifests have. One of them has an
// effect: -v.
func klogFlags(c *cobra.Command, verbosity *int) {
	f := c.Flags()
	f.IntVarP(verbosity, "v", "v", 0, "`LEVEL` of the log: 4 and above tell everything")
	for _, k := range klogIgnored {
		if k.truth {
			f.Bool(k.name, k.value == "true", "")
		} else {
			f.String(k.name, k.value, "")
		}
		_ = f.MarkHidden(k.name)
	}
}

// klogLog makes the log that those flags ask for, as far as it can: one on
// standard error.
func klogLog(c *cobra.Command, out *output, verbosity int) *slog.Logger {
	level := slog.LevelInfo
	if verbosity >= 4 {
		level = slog.LevelDebug
	}
	log := server.NewLog(out, level)
	var given []string
	for _, k := range klogIgnored {
		if f := c.Flags().Lookup(k.name); f.Value.String() != k.value {
			given = append(given, "--"+k.name)
		}
	}
	if len(given) > 0 {
		log.Info("these flags change nothing here: the log goes to standard error", "flags", strings.Join(given, ","))
	}
	return log
}
