package cmd

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/filepages"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/seamark/seamark/sys/memory"
)

// follow serves the text of a Corefile until ctx ends. Errors in the text name
// file as their file.
func (p *program) follow(ctx context.Context, out *linewriter.Writer, log *slog.Logger, file, text string) error {
	r := server.Run{Options: p.options(log), Out: out, Greeting: p.build.String(), Signals: p.signals}
	return p.serves(ctx, &r, func() corefile.Reading { return corefile.ReadText(file, []byte(text)) })
}

// options returns the options that all servers share.
func (p *program) options(log *slog.Logger) server.Options {
	o := server.Options{Directives: p.directives, Port: 53, Log: log, Metrics: new(metrics.Registry)}
	o.Default = p.admin.directive()
	o.Memory = memory.Detect(os.DirFS("/"))
	o.Memory.Log(log)
	p.build.register(o.Metrics)
	return o
}

// planned returns a function that plans server blocks and returns the errors. It logs nothing.
func planned(o server.Options) func([]corefile.Server) error {
	return func(blocks []corefile.Server) error {
		o.Log, o.Level, o.Metrics, o.Memory = slog.New(slog.DiscardHandler), nil, new(metrics.Registry), nil
		_, err := server.NewPlan(blocks, o)
		return err
	}
}

// serves runs a server with the Corefile that read returns, and with the
// ConfigMaps that the Corefile names.
func (p *program) serves(ctx context.Context, r *server.Run, read func() corefile.Reading) error {
	f := kubedns.NewFollower(read, r.Log, r.Metrics)
	f.Check = planned(r.Options)
	defer f.Stop()
	r.Read, r.Changed = f.Read, f.Changed()
	ctx, cancel := context.WithCancel(ctx)
	var releases sync.WaitGroup
	defer releases.Wait()
	defer cancel()
	releases.Go(func() { filepages.ReleaseAfterStart(ctx) })
	return failed(r.Serve(ctx))
}
