package cmd

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/spf13/cobra"
)

// replaces completes c, which replaces an earlier program: it adds the flag --version,
// shows the flags in the order in which they were added, and calls run with the
// arguments.
func (p *program) replaces(c *cobra.Command, run func(args []string) error) {
	c.Flags().SortFlags = false
	showVersion := c.Flags().Bool("version", false, "show the version")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *showVersion {
			return p.showVersion()
		}
		return run(args)
	}
}

// runUntilSignal calls run with a context that ends at the first SIGTERM or
// SIGINT.
func (p *program) runUntilSignal(c *cobra.Command, run func(context.Context) error) error {
	// Writing to a closed standard error must not end the process. The signal is
	// caught and not ignored, because child processes inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return failed(run(c.Context()))
}

// klogLogger returns a logger to out at the level of klog's flags, or with debug
// messages, and logs which of these flags have no effect.
func klogLogger(out *linewriter.Writer, klog *flags.Klog, debug bool) *slog.Logger {
	level := klog.Level()
	if debug {
		level = slog.LevelDebug
	}
	log := server.NewLog(out, level)
	if ignored := klog.Ignored(); len(ignored) > 0 {
		log.Info("Ignored flags of klog: the log goes to standard error", "flags", strings.Join(ignored, ","))
	}
	return log
}
