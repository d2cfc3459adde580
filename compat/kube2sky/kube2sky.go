// Package kube2sky writes a cluster's names into etcd, in SkyDNS's layout: Services,
// the endpoints of headless ones, pods and reverse names. Package cmd calls it for
// the subcommand kube2sky; flags, keys and metrics are in docs/reference/kube2sky.md.
// It answers no questions, and no server of ours depends on it.
//
// Data flows one way. The state is the sink of a cluster's objects and knows what
// is wanted at each place: a Service, a pod's address, a reverse name. The writer
// takes the places that have changed, reads what etcd has there, and mends what
// differs. Nothing of etcd is remembered between: what is not known cannot be wrong.
//
// It must never take a key from a name that is still wanted before another is
// there, and never touch a key that it has not written itself.
package kube2sky

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/internal/status"
	"github.com/seamark/seamark/metrics"
)

// Options is what the flags say.
type Options struct {
	Domain     string // of the cluster, with or without a dot at its end
	PathPrefix string // of SkyDNS's tree in etcd, without slashes at its ends
	Kubeconfig string // file
	Master     string // URL of the API server; both empty: the pod's own cluster

	Etcd            etcdclient.Options
	MutationTimeout time.Duration // of one request to etcd

	LeaderElection bool
	Lease          time.Duration // how long a leader that is gone is waited for; whole seconds

	Listen string // HOST:PORT of the pages
	Log    *slog.Logger
}

// Check says what is wrong with the options, all of it, in terms of the flags.
func (o *Options) Check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(!isName(strings.TrimSuffix(o.Domain, ".")), "--domain: want a name such as cluster.local, got %q", o.Domain)
	wrong(!isPrefix(o.PathPrefix), "--path-prefix: want words with slashes between them, such as skydns, the first not %s, got %q", ours, o.PathPrefix)
	wrong(o.Kubeconfig != "" && o.Master != "", "--kubecfg-file and --kube-master-url: want one of them: the file can name the server")
	if err := o.cluster().Check(); err != nil {
		errs = append(errs, fmt.Errorf("--kubecfg-file, --kube-master-url: %w", err))
	}
	if err := o.Etcd.Check(); err != nil {
		errs = append(errs, fmt.Errorf("--etcd-servers and the other flags of etcd: %w", err))
	}
	wrong(o.MutationTimeout < time.Millisecond, "--etcd-mutation-timeout: want a duration such as 10s, got %v", o.MutationTimeout)
	wrong(o.Lease < 2*time.Second || o.Lease > time.Hour, "--lease-duration: want 2s to 1h, got %v", o.Lease)
	wrong(o.Lease%time.Second != 0, "--lease-duration: want whole seconds, got %v", o.Lease)
	return errors.Join(errs...)
}

func isPrefix(prefix string) bool {
	words := strings.Split(prefix, "/")
	for _, w := range words {
		if w == "" || w == "." || w == ".." {
			return false
		}
	}
	return words[0] != ours
}

// cluster is where the objects come from.
func (o *Options) cluster() cluster.Options {
	c := cluster.Options{Kubeconfig: o.Kubeconfig, Endpoint: o.Master, Pods: true}
	if c.Kubeconfig != "" {
		c.Endpoint = "" // both are told of by Check
	}
	return c
}

// Run writes until ctx ends, which is no error. The options have passed Check.
// Neither etcd nor the API server has to be there. It waits for what it has started.
func Run(ctx context.Context, o Options) error {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serving status pages: %w: see --healthz-port", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	registry := new(metrics.Registry)
	registry.RegisterProcess()
	registry.RegisterGo()
	source := cluster.Open(o.cluster(), o.Log, registry)
	layout := newLayout(o.PathPrefix, o.Domain)
	state := newState(layout.zone, o.cluster().Kinds())
	w := newWriter(o, layout, state, registry)
	all.Go(func() { source.Run(ctx, state) })
	all.Go(func() { w.run(ctx, o.Etcd) })

	o.Log.Info("Serving status pages", "address", listener.Addr())
	return status.Serve(ctx, listener, &pages{ready: w.ready.Load, metrics: status.Metrics(registry)})
}
